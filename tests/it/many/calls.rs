//! How many calls a batch makes, and when they are flushed.

use bellwether::{MemoryStore, Wait};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{MINUTE, SECOND, idle, key, lease};

use super::query::{End, Query};
use super::{Catalog, answers, ask_many, builder, catalog, ended};
use crate::support::store::{Operation, remote};

#[tokio::test(start_paused = true)]
async fn a_page_of_misses_is_one_lookup_one_claim_and_one_commit_of_each_and_one_call() {
    let query = Query::new();
    let store = remote(&MemoryStore::new(1_000));
    answers(ask_many(&catalog(store.clone(), &query), 0..100)).await;
    assert_eq!(query.calls(), [(0..100).collect::<Vec<_>>()]);
    let asked =
        [Operation::Lookup, Operation::Acquire, Operation::Commit].map(|op| store.calls(op));
    assert_eq!((asked, store.total_calls()), ([100; 3], 300));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_are_ten_calls() {
    let query = Query::new();
    let catalog = catalog(remote(&MemoryStore::new(20_000)), &query);
    let page = answers(ask_many(&catalog, 0..10_000)).await;
    assert_eq!(page, (0..10_000).map(|item| item * 10).collect::<Vec<_>>());
    assert_eq!(query.calls().iter().map(Vec::len).collect::<Vec<_>>(), [1_000; 10]);
    assert_eq!(query.loaded(), (0..10_000).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_full_call_does_not_wait_for_undecided_items() {
    let query = Query::new();
    let store = remote(&MemoryStore::new(2_000));
    let catalog = catalog(store.clone(), &query);
    let gate = store.on(Operation::Lookup).nth(1).hold();
    let page = ask_many(&catalog, 0..1_002);
    idle().await;
    let full = query.loaded();
    assert_eq!((query.calls().len(), full.len(), full[0]), (1, 1_000, 1), "one more waits for 0");
    gate.open();
    assert_eq!(answers(page).await, (0..1_002).map(|item| item * 10).collect::<Vec<_>>());
    assert_eq!((query.calls().len(), query.calls()[1][0]), (2, 0));
    assert_eq!(query.loaded(), (0..1_002).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_items_that_are_still_being_looked_up() {
    for op in [Operation::Lookup, Operation::Acquire] {
        let query = Query::new();
        let store = remote(&MemoryStore::new(10));
        let gate = store.on(op).nth(1).do_it_and_hold();
        let page = ask_many(&catalog(store, &query), [1, 2, 3]);
        gate.reached().await;
        idle().await;
        assert!(query.calls().is_empty());
        gate.open();
        answers(page).await;
        assert_eq!(query.calls(), [[1, 2, 3]]);
    }
}

#[tokio::test(start_paused = true)]
async fn items_that_have_to_be_loaded_later_share_one_further_call() {
    let theirs = Query::gated();
    let ours = Query::new();
    let memory = MemoryStore::new(100);
    theirs.ends_by(End::Fail);
    let there = catalog(remote(&memory), &theirs);
    let here = catalog(remote(&memory), &ours);
    let failing = ask_many(&there, 0..20);
    theirs.has_begun(1).await;
    let page = ask_many(&here, 0..30);
    idle().await;
    theirs.let_go(1);
    answers(page).await;
    ended(failing).await;
    assert_eq!(ours.calls(), [(20..30).collect::<Vec<_>>(), (0..20).collect()]);
}

/// Among many items that wait for other processes, one is asking at any moment.
#[tokio::test(start_paused = true)]
async fn an_item_that_waits_for_another_process_delays_no_other_item() {
    let query = Query::new();
    let memory = MemoryStore::new(10);
    let _elsewhere = lease(&memory, 3, MINUTE * 60).await;
    let store = remote(&memory);
    let looks = store.on(Operation::Lookup).nth(1).hold();
    let catalog = catalog(store.clone(), &query);
    let _page = ask_many(&catalog, [2, 1, 3]);
    idle().await;
    let asks_again = store.on(Operation::Acquire).nth(1).hold();
    asks_again.reached().await;
    assert!(query.calls().is_empty(), "1 waits for the lookup of 2");
    looks.open();
    query.has_begun(1).await;
    assert_eq!(query.calls(), [[1, 2]]);
}

#[tokio::test(start_paused = true)]
async fn items_whose_wait_ends_are_loaded_by_one_call() {
    let query = Query::new();
    let memory = MemoryStore::new(100);
    for item in 0..20 {
        drop(lease(&memory, item, MINUTE * 60).await);
    }
    let cache = builder(remote(&memory)).wait(Wait::at_most(SECOND).then_load());
    let catalog = Catalog::new(cache, &query);
    answers(ask_many(&catalog, 0..20)).await;
    assert_eq!(query.calls(), [(0..20).collect::<Vec<_>>()]);
}

#[tokio::test(start_paused = true)]
async fn stale_items_are_loaded_again_by_one_call() {
    let query = Query::new();
    let memory = MemoryStore::new(100);
    let cache = builder(remote(&memory)).stale_while_revalidate(MINUTE);
    let catalog = Catalog::new(cache, &query);
    answers(ask_many(&catalog, 0..20)).await;
    for item in 0..20 {
        memory.expire(key(item)).await.expect("expired");
    }
    answers(ask_many(&catalog, 0..20)).await;
    query.has_begun(2).await;
    idle().await;
    assert_eq!(query.calls(), [(0..20).collect::<Vec<_>>(), (0..20).collect()]);
}

#[tokio::test(start_paused = true)]
async fn more_keys_than_may_be_loaded_at_a_time_are_asked_for_in_parts() {
    let query = Query::new();
    let catalog = catalog(MemoryStore::new(100_000), &query);
    let expected: Vec<_> = (0..25_000).map(|request| request * 10).collect();
    assert_eq!(answers(ask_many(&catalog, 0..25_000)).await, expected);
    assert_eq!(query.calls().len(), 25);
}
