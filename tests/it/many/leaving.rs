//! Callers of batches that leave, or are not polled any more.

use std::task::Poll;

use bellwether::{MemoryStore, WhenAbandoned};
use bellwether_testkit::caches::{idle, is_leased, tasks};
use tokio_test::task::spawn;

use super::query::Query;
use super::{Catalog, answers, ask, ask_many, builder, catalog, ended};
use crate::support::store::{AtMoment as _, Faulty, Moment, Operation, remote};

fn cancelling(store: &Faulty, query: &Query) -> Catalog {
    Catalog::new(builder(store.clone()).when_abandoned(WhenAbandoned::Cancel), query)
}

/// No key is stuck, no task runs any more, and no lease is left.
async fn assert_nothing_is_left(catalog: &Catalog, memory: &MemoryStore, tasks_before: usize) {
    idle().await;
    assert_eq!((catalog.cache.in_flight(), tasks()), (0, tasks_before));
    for item in [1, 2, 3] {
        assert!(!is_leased(memory, item).await, "{item}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_never_polled_has_asked_nothing() {
    let query = Query::new();
    let memory = MemoryStore::new(10);
    let store = remote(&memory);
    let catalog = catalog(store.clone(), &query);
    let before = tasks();
    drop(catalog.load_many([1, 2, 3]));
    assert_nothing_is_left(&catalog, &memory, before).await;
    assert_eq!((store.total_calls(), query.calls().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_batch_can_be_dropped_at_every_request() {
    for op in [Operation::Lookup, Operation::Acquire, Operation::Commit] {
        for moment in [Moment::Before, Moment::After] {
            for policy in
                [cancelling, |store: &Faulty, query: &Query| catalog(store.clone(), query)]
            {
                let query = Query::new();
                let memory = MemoryStore::new(10);
                let store = remote(&memory);
                let catalog = policy(&store, &query);
                let before = tasks();
                let gate = store.on(op).nth(1).holds(moment);
                let page = ask_many(&catalog, [1, 2, 3]);
                gate.reached().await;
                let joined = ask(&catalog, 2);
                idle().await;
                page.abort();
                idle().await;
                gate.open();
                assert_eq!(ended(joined).await.ok(), Some(20), "{op:?} {moment:?}");
                assert_nothing_is_left(&catalog, &memory, before).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_answered_though_the_batch_is_dropped_while_it_is_collected() {
    let query = Query::new();
    let memory = MemoryStore::new(10);
    let store = remote(&memory);
    let catalog = cancelling(&store, &query);
    let before = tasks();
    let gate = store.on(Operation::Lookup).nth(1).hold();
    let page = ask_many(&catalog, [1, 2, 3]);
    gate.reached().await;
    idle().await;
    let joined = ask(&catalog, 2);
    idle().await;
    assert!(query.calls().is_empty(), "2 and 3 are collected, and wait for the lookup of 1");
    page.abort();
    assert_eq!(ended(joined).await.ok(), Some(20));
    assert_eq!(query.calls(), [[2]], "3 has no waiter");
    assert_nothing_is_left(&catalog, &memory, before).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_collected_is_loaded_though_the_caller_goes_if_loads_are_finished() {
    let query = Query::new();
    let memory = MemoryStore::new(10);
    let store = remote(&memory);
    let catalog = catalog(store.clone(), &query);
    let before = tasks();
    let gate = store.on(Operation::Lookup).nth(1).hold();
    let page = ask_many(&catalog, [1, 2, 3]);
    gate.reached().await;
    idle().await;
    page.abort();
    assert_nothing_is_left(&catalog, &memory, before).await;
    assert_eq!(query.calls(), [[2, 3]]);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_dropped_if_the_policy_says_so() {
    let query = Query::gated();
    let memory = MemoryStore::new(10);
    let catalog = cancelling(&remote(&memory), &query);
    let before = tasks();
    let page = ask_many(&catalog, [1, 2, 3]);
    query.has_begun(1).await;
    page.abort();
    assert_nothing_is_left(&catalog, &memory, before).await;
    assert_eq!(query.dropped(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_on_while_a_caller_waits_for_one_of_its_keys() {
    let query = Query::gated();
    let memory = MemoryStore::new(10);
    let catalog = cancelling(&remote(&memory), &query);
    let before = tasks();
    let page = ask_many(&catalog, [1, 2, 3]);
    query.has_begun(1).await;
    let joined = ask(&catalog, 3);
    idle().await;
    page.abort();
    idle().await;
    query.let_go(1);
    assert_eq!(ended(joined).await.ok(), Some(30));
    assert_nothing_is_left(&catalog, &memory, before).await;
    assert_eq!(query.dropped(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_not_polled_delays_no_other_caller() {
    let query = Query::new();
    let memory = MemoryStore::new(10);
    let catalog = catalog(remote(&memory), &query);
    let mut left_alone = spawn(catalog.load_many([1, 2, 3]));
    assert!(left_alone.poll().is_pending());
    assert_eq!(answers(ask_many(&catalog, [3, 1])).await, [30, 10]);
    idle().await;
    assert_eq!(query.loaded(), [1, 2, 3]);
    let Poll::Ready(page) = left_alone.poll() else { panic!("it has been answered") };
    assert_eq!(page.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [10, 20, 30]);
}

#[tokio::test(start_paused = true)]
async fn after_a_batch_nothing_is_left() {
    let query = Query::new();
    let memory = MemoryStore::new(10);
    let catalog = catalog(remote(&memory), &query);
    let before = tasks();
    answers(ask_many(&catalog, [1, 2, 3])).await;
    assert_nothing_is_left(&catalog, &memory, before).await;
}
