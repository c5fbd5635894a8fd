//! Loads whose waiters leave, or are not polled any more.

use std::task::Poll;

use bellwether::{CacheStatus, MemoryStore, Wait, WhenAbandoned};
use bellwether_testkit::caches::{
    Cached, MINUTE, NO_TIME, SECOND, answers, ask, burst, cached, idle, is_leased, layer, lease,
    tasks,
};
use bellwether_testkit::loaders::Loader;
use tokio::time::Instant;
use tokio_test::task::spawn;
use tower::{Layer, Service};

use crate::support::store::{Operation, local, remote};

fn cancelling(store: impl bellwether::store::Store, loader: &Loader) -> Cached {
    layer(store).when_abandoned(WhenAbandoned::Cancel).build().unwrap().layer(loader.clone())
}

#[tokio::test(start_paused = true)]
async fn a_load_goes_on_when_the_caller_that_began_it_goes() {
    let loader = Loader::gated();
    let cached = cached(MemoryStore::new(10), &loader);
    let began = ask(&cached, 1);
    let others = burst(&cached, 1, 99);
    loader.has_begun(1).await;
    began.abort();
    idle().await;
    loader.let_go(1);
    assert_eq!(answers(others).await, [1; 99]);
}

#[tokio::test(start_paused = true)]
async fn a_load_is_not_cancelled_while_it_has_a_waiter() {
    let loader = Loader::gated();
    let cached = cancelling(MemoryStore::new(10), &loader);
    let mut asked = burst(&cached, 1, 100);
    loader.has_begun(1).await;
    let last = asked.pop().expect("there are a hundred");
    asked.iter().for_each(|asked| asked.abort());
    idle().await;
    loader.let_go(1);
    assert_eq!(answers(vec![last]).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_load_is_finished_and_stored() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cached = cached(store.clone(), &loader);
    let asked = ask(&cached, 1);
    loader.has_begun(1).await;
    asked.abort();
    idle().await;
    loader.let_go(1);
    idle().await;
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert!(matches!(status, CacheStatus::Hit { .. }), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_load_is_dropped_if_the_policy_says_so() {
    let loader = Loader::gated();
    let asked = burst(&cancelling(MemoryStore::new(10), &loader), 1, 10);
    loader.has_begun(1).await;
    asked.iter().for_each(|asked| asked.abort());
    idle().await;
    assert_eq!(loader.dropped(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_was_dropped_leaves_its_key_free_at_once() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let asked = ask(&cancelling(store.clone(), &loader), 1);
    loader.has_begun(1).await;
    let left = Instant::now();
    let elsewhere = ask(&cached(store, &Loader::new()), 1);
    asked.abort();
    assert_eq!(answers(vec![elsewhere]).await, [1]);
    assert_eq!(left.elapsed(), NO_TIME);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_returns_to_a_dropped_load_begins_another() {
    let loader = Loader::gated();
    let cached = cancelling(MemoryStore::new(10), &loader);
    let asked = ask(&cached, 1);
    loader.has_begun(1).await;
    asked.abort();
    idle().await;
    loader.let_go(1);
    assert_eq!(answers(vec![ask(&cached, 1)]).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn no_load_begins_for_callers_that_left_before_the_lease() {
    let loader = Loader::new();
    let store = local(&MemoryStore::new(10));
    let acquiring = store.on(Operation::Acquire).nth(1).do_it_and_hold();
    let asked = ask(&cancelling(store, &loader), 1);
    acquiring.reached().await;
    asked.abort();
    idle().await;
    acquiring.open();
    idle().await;
    assert_eq!(loader.loads(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_uncached_load_is_dropped_too_if_the_policy_says_so() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let layer = layer(store).when_abandoned(WhenAbandoned::Cancel);
    let asked =
        ask(&layer.wait(Wait::fail_fast().then_load()).build().unwrap().layer(loader.clone()), 1);
    loader.has_begun(1).await;
    asked.abort();
    idle().await;
    assert_eq!(loader.dropped(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flight_that_waits_for_another_process_ends_with_its_last_caller() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let cached = cached(store, &Loader::new());
    let asked = burst(&cached, 1, 10);
    idle().await;
    asked.iter().for_each(|asked| asked.abort());
    idle().await;
    assert_eq!((cached.in_flight(), tasks()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_never_polled_begins_nothing() {
    let store = remote(&MemoryStore::new(10));
    let mut cached = cached(store.clone(), &Loader::new());
    let request = cached.call(1);
    idle().await;
    assert_eq!((cached.in_flight(), tasks(), store.total_calls()), (0, 0, 0));
    drop(request);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_is_not_polled_delays_no_other_caller() {
    let store = remote(&MemoryStore::new(10));
    let cached = cached(store.clone(), &Loader::new());
    let mut idler = spawn(cached.clone().call(1));
    assert!(idler.poll().is_pending());
    assert_eq!(store.calls(Operation::Lookup), 1);
    assert_eq!(answers(burst(&cached, 1, 10)).await, [1; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_polled_late_after_its_lookup_is_given_what_others_loaded() {
    let cached = cached(remote(&MemoryStore::new(10)), &Loader::new());
    let mut idler = spawn(cached.clone().call(1));
    assert!(idler.poll().is_pending());
    answers(burst(&cached, 1, 10)).await;
    assert_eq!(idler.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_began_a_flight_and_is_not_polled_delays_no_other() {
    let loader = Loader::new();
    let store = MemoryStore::new(10);
    let cached = cached(store.clone(), &loader);
    let mut idler = spawn(cached.clone().call(1));
    assert!(idler.poll().is_pending());
    assert_eq!(answers(burst(&cached, 1, 10)).await, [1; 10]);
    assert!(!is_leased(&store, 1).await);
    assert_eq!(idler.poll().map(|answer| answer.unwrap()), Poll::Ready(1));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_began_an_uncached_load_and_is_not_polled_delays_no_other() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let wait = Wait::at_most(SECOND).then_load();
    let cached = layer(store).wait(wait).build().unwrap().layer(Loader::taking(SECOND));
    let mut idler = spawn(cached.clone().call(1));
    assert!(idler.poll().is_pending());
    tokio::time::sleep(SECOND).await;
    assert!(idler.poll().is_pending());
    assert_eq!(answers(burst(&cached, 1, 10)).await.len(), 10);
}

/// It was woken for an answer and dropped before it fetched it.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_fetched_is_dropped_with_its_caller() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    let mut request = spawn(cached.clone().call(1));
    assert!(request.poll().is_pending());
    idle().await;
    assert!(request.is_woken());
    drop(request);
    assert_eq!((cached.in_flight(), tasks()), (0, 0));
}
