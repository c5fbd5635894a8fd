//! After an invalidation has returned, no request that starts later is given an older value.
//!
//! The loader answers with the number of the load: load 1 began before the invalidation, and load 2
//! after it.

use bellwether::store::Settled;
use bellwether::{CacheStatus, Lifetimes, MemoryStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{
    Cached, JSON, MINUTE, NO_TIME, SECOND, answer, answers, ask, burst, cached, commit, idle,
    is_leased, key, layer, lease, put, put_for,
};
use bellwether_testkit::loaders::Loader;
use tokio::time::{Instant, sleep};

use crate::support::store::{Operation, local, remote};

async fn invalidate(cached: &Cached) {
    cached.handle().invalidate(&key(1)).await.expect("it works");
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_is_not_given_any_more() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    answer(&cached, 1).await;
    invalidate(&cached).await;
    assert_eq!(answer(&cached, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_of_other_keys_stays() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    answer(&cached, 7).await;
    invalidate(&cached).await;
    assert_eq!(answer(&cached, 7).await, 1);
}

#[tokio::test(start_paused = true)]
async fn what_another_process_kept_is_not_given_any_more() {
    let loader = Loader::new();
    let store = MemoryStore::new(10);
    let [one, other] = [(); 2].map(|()| cached(remote(&store), &loader));
    answer(&one, 1).await;
    invalidate(&other).await;
    assert_eq!(answer(&one, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_began_before_it_is_not_kept() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cached = cached(store.clone(), &loader);
    let asked = ask(&cached, 1);
    loader.has_begun(1).await;
    invalidate(&cached).await;
    loader.let_go(1);
    let (_, status) = asked.await.unwrap();
    assert_eq!(status, CacheStatus::Led { stored: false });
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_caller_from_before_a_load_is_still_given_its_answer() {
    let loader = Loader::gated();
    let store = local(&MemoryStore::new(10));
    let acquiring = store.on(Operation::Acquire).nth(1).hold();
    let cached = cached(store, &loader);
    let asked = burst(&cached, 1, 10);
    acquiring.reached().await;
    idle().await;
    acquiring.open();
    loader.has_begun(1).await;
    invalidate(&cached).await;
    loader.let_go(1);
    assert_eq!(answers(asked).await, [1; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_joins_a_load_from_before_it_is_given_a_later_one() {
    let loader = Loader::gated();
    let cached = cached(MemoryStore::new(10), &loader);
    let before = ask(&cached, 1);
    loader.has_begun(1).await;
    invalidate(&cached).await;
    let after = burst(&cached, 1, 10);
    idle().await;
    loader.let_go(2);
    assert_eq!(answers(vec![before]).await, [1]);
    assert_eq!(answers(after).await, [2; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_a_load_of_another_process_from_before_it_is_given_a_later_one() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let elsewhere = lease(&store, 1, MINUTE).await;
    let cached = cached(remote(&store), &loader);
    let mut asked = burst(&cached, 1, 10);
    idle().await;
    invalidate(&cached).await;
    asked.extend(burst(&cached, 1, 10));
    assert_eq!(commit(&store, elsewhere, "1000").await, Settled::Superseded);
    loader.let_go(2);
    assert!(answers(asked).await.iter().all(|answer| *answer < 1000));
}

/// The load has ended; its commit is on the way to the store, and is overtaken.
#[tokio::test(start_paused = true)]
async fn a_commit_that_it_overtakes_stores_nothing() {
    let memory = MemoryStore::new(10);
    let loader = Loader::new();
    let store = local(&memory);
    let committing = store.on(Operation::Commit).nth(1).hold();
    let cached = cached(store, &loader);
    let before = ask(&cached, 1);
    committing.reached().await;
    invalidate(&cached).await;
    let after = ask(&cached, 1);
    idle().await;
    committing.open();
    assert_eq!(answers(vec![before, after]).await, [1, 2]);
    assert_eq!(answer(&cached, 1).await, 2);
}

/// The commit is done before the invalidation, but its answer "stored" arrives last. By then a
/// caller from after the invalidation has joined the flight.
#[tokio::test(start_paused = true)]
async fn the_late_answer_of_a_commit_is_not_for_callers_that_came_after_it() {
    let memory = MemoryStore::new(10);
    let loader = Loader::new();
    let store = local(&memory);
    let committing = store.on(Operation::Commit).nth(1).do_it_and_hold();
    let cached = cached(store, &loader);
    let before = ask(&cached, 1);
    committing.reached().await;
    invalidate(&cached).await;
    let after = burst(&cached, 1, 10);
    idle().await;
    committing.open();
    assert_eq!(answers(vec![before]).await, [1]);
    assert_eq!(answers(after).await, [2; 10]);
}

/// The same for the answer "found": it leaves the store before the invalidation, and arrives when a
/// caller from after the invalidation has joined the flight.
#[tokio::test(start_paused = true)]
async fn the_late_answer_of_an_acquire_is_not_for_callers_that_came_after_it() {
    let memory = MemoryStore::new(10);
    put(&memory, 1, "1000", JSON).await;
    let store = remote(&memory);
    let acquiring = store.on(Operation::Acquire).nth(1).do_it_and_hold();
    let cached = cached(store, &Loader::new());
    let before = burst(&cached, 1, 2);
    acquiring.reached().await;
    invalidate(&cached).await;
    let after = burst(&cached, 1, 10);
    idle().await;
    acquiring.open();
    assert!(answers(after).await.iter().all(|answer| *answer < 1000));
    answers(before).await;
}

/// The same for the answer of a lookup, which one caller makes for itself.
#[tokio::test(start_paused = true)]
async fn the_late_answer_of_a_lookup_is_not_for_callers_that_came_after_it() {
    let memory = MemoryStore::new(10);
    put(&memory, 1, "1000", JSON).await;
    let store = remote(&memory);
    let looking = store.on(Operation::Lookup).nth(1).do_it_and_hold();
    let cached = cached(store, &Loader::new());
    let before = ask(&cached, 1);
    looking.reached().await;
    invalidate(&cached).await;
    let after = burst(&cached, 1, 10);
    idle().await;
    looking.open();
    assert_eq!(answers(after).await, [1; 10]);
    answers(vec![before]).await;
}

/// The same for a lookup that a flight makes for callers that came too late for its commit.
#[tokio::test(start_paused = true)]
async fn the_late_answer_of_a_lookup_for_others_is_not_for_callers_that_came_after_it() {
    let memory = MemoryStore::new(10);
    let loader = Loader::new();
    let store = local(&memory);
    let committing = store.on(Operation::Commit).nth(1).do_it_and_hold();
    let looking = store.on(Operation::Lookup).nth(1).do_it_and_hold();
    let cached = cached(store.clone(), &loader);
    let first = ask(&cached, 1);
    committing.reached().await;
    memory.invalidate(key(1)).await.unwrap();
    let second = ask(&cached, 1);
    idle().await;
    put(&memory, 1, "1000", JSON).await;
    committing.open();
    looking.reached().await;
    memory.invalidate(key(1)).await.unwrap();
    let third = burst(&cached, 1, 10);
    idle().await;
    looking.open();
    assert_eq!(answers(vec![first, second]).await, [1, 1000]);
    assert_eq!(answers(third).await, [2; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_in_another_process_is_notified_at_once() {
    let store = MemoryStore::new(10);
    let slow = cached(store.clone(), &Loader::gated());
    let quick = cached(store, &Loader::new());
    let _before = ask(&slow, 1);
    idle().await;
    let waits = ask(&quick, 1);
    sleep(SECOND).await;
    let began = Instant::now();
    invalidate(&slow).await;
    answers(vec![waits]).await;
    assert_eq!(began.elapsed(), NO_TIME);
}

#[tokio::test(start_paused = true)]
async fn it_leaves_the_key_free() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cached = cached(store.clone(), &loader);
    let _before = ask(&cached, 1);
    loader.has_begun(1).await;
    invalidate(&cached).await;
    assert!(!is_leased(&store, 1).await);
}

#[tokio::test(start_paused = true)]
async fn it_holds_when_it_was_asked_for_before_anything_was_loaded() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    invalidate(&cached).await;
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert_eq!(status, CacheStatus::Led { stored: true });
}

#[tokio::test(start_paused = true)]
async fn expiring_removes_an_entry_without_a_stale_lifetime() {
    let loader = Loader::new();
    let store = MemoryStore::new(10);
    let cached = cached(store.clone(), &loader);
    answer(&cached, 1).await;
    cached.handle().expire(&key(1)).await.unwrap();
    assert!(store.find(key(1)).await.unwrap().is_none());
    assert_eq!(answer(&cached, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn expiring_keeps_an_entry_with_a_stale_lifetime_as_stale() {
    let store = MemoryStore::new(10);
    put_for(&store, 1, "42", JSON, Lifetimes::fresh_for(MINUTE).stale_if_error(MINUTE)).await;
    layer(store.clone()).build().unwrap().handle().expire(&key(1)).await.unwrap();
    let entry = store.find(key(1)).await.unwrap().expect("it is there");
    assert!(!entry.is_fresh());
}

#[tokio::test(start_paused = true)]
async fn expiring_refuses_a_load_that_began_before_it() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cached = cached(store.clone(), &loader);
    let asked = ask(&cached, 1);
    loader.has_begun(1).await;
    cached.handle().expire(&key(1)).await.unwrap();
    loader.let_go(1);
    answers(vec![asked]).await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_expired_entry_is_loaded_again() {
    for place in [local, remote] {
        let store = MemoryStore::new(10);
        put_for(&store, 1, "42", JSON, Lifetimes::fresh_for(MINUTE).stale_if_error(MINUTE)).await;
        let cached = cached(place(&store), &Loader::new());
        cached.handle().expire(&key(1)).await.unwrap();
        assert_eq!(answer(&cached, 1).await, 1);
    }
}

/// Its flight makes a lookup, and finds an entry of another process that was expired after that.
#[tokio::test(start_paused = true)]
async fn an_expired_entry_is_not_for_callers_that_came_too_late_for_a_commit() {
    let memory = MemoryStore::new(10);
    let store = local(&memory);
    let committing = store.on(Operation::Commit).nth(1).do_it_and_hold();
    let cached = cached(store, &Loader::new());
    let first = ask(&cached, 1);
    committing.reached().await;
    memory.invalidate(key(1)).await.unwrap();
    let second = ask(&cached, 1);
    idle().await;
    put_for(&memory, 1, "42", JSON, Lifetimes::fresh_for(MINUTE).stale_if_error(MINUTE)).await;
    memory.expire(key(1)).await.unwrap();
    committing.open();
    assert_eq!(answers(vec![first, second]).await, [1, 2]);
}
