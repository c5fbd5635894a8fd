//! Each request counts once, by its outcome.

use bellwether::codec::Cacheability;
use bellwether::service::KeyRequest;
use bellwether::stats::RequestStats;
use bellwether::{Key, Lifetimes, MemoryStore, ReadThroughLayer, Wait};
use bellwether_testkit::caches::{
    JSON, MINUTE, SECOND, answer, answers, ask, burst, cached, commit, idle, key, layer, lease,
    put, put_for, settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service};

use super::PLACES;
use crate::support::store::{Operation, local, remote};

/// A snapshot with nothing but these counters.
fn only(counters: &[(&str, u64)]) -> Vec<(String, u64)> {
    counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// The counters that are not zero.
fn counted(stats: &RequestStats) -> Vec<(String, u64)> {
    let counted = stats.by_name().filter(|(_, count)| *count > 0);
    counted.map(|(name, count)| (name.to_owned(), count)).collect()
}

#[tokio::test(start_paused = true)]
async fn of_a_burst_one_led_and_the_others_were_collapsed() {
    for place in PLACES {
        let loader = Loader::gated();
        let cached = layer(place(&MemoryStore::new(10))).build().unwrap().layer(loader.clone());
        let asked = burst(&cached, 1, 100);
        loader.has_begun(1).await;
        loader.let_go(1);
        answers(asked).await;
        let expected = only(&[("led_stored", 1), ("collapsed_local", 99)]);
        assert_eq!(counted(&cached.stats().requests), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_another_process_answers_is_collapsed_there() {
    let memory = MemoryStore::new(10);
    let other = lease(&memory, 1, MINUTE).await;
    let cached = cached(remote(&memory), &Loader::new());
    let asked = burst(&cached, 1, 10);
    idle().await;
    commit(&memory, other, "42").await;
    answers(asked).await;
    assert_eq!(counted(&cached.stats().requests), only(&[("collapsed_remote", 10)]));
}

#[tokio::test(start_paused = true)]
async fn hits_in_this_process_and_in_the_store_are_told_apart() {
    for (place, name) in PLACES.into_iter().zip(["hit_local", "hit_store"]) {
        let memory = MemoryStore::new(10);
        put(&memory, 1, "42", JSON).await;
        let cached = cached(place(&memory), &Loader::new());
        // The first one decodes the entry.
        for _ in 0..3 {
            answer(&cached, 1).await;
        }
        assert_eq!(counted(&cached.stats().requests), only(&[(name, 3)]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_is_counted_as_that() {
    let loader = Loader::gated();
    let cached = cached(MemoryStore::new(10), &loader);
    let asked = burst(&cached, 1, 3);
    loader.has_begun(1).await;
    asked[2].abort();
    idle().await;
    drop(cached.clone().call(7));
    loader.let_go(1);
    answers(asked.into_iter().take(2).collect()).await;
    let expected = only(&[("led_stored", 1), ("collapsed_local", 1), ("left", 2)]);
    assert_eq!(counted(&cached.stats().requests), expected);
}

#[tokio::test(start_paused = true)]
async fn a_hit_that_is_never_polled_is_a_hit() {
    let memory = MemoryStore::new(10);
    put(&memory, 1, "42", JSON).await;
    let cached = cached(memory, &Loader::new());
    answer(&cached, 1).await;
    drop(cached.clone().call(1));
    assert_eq!(counted(&cached.stats().requests), only(&[("hit_local", 2)]));
}

#[tokio::test(start_paused = true)]
async fn stale_answers_are_counted_by_their_reason() {
    let memory = MemoryStore::new(10);
    let lifetimes = Lifetimes::fresh_for(SECOND).stale_if_error(MINUTE);
    put_for(&memory, 1, "42", JSON, lifetimes).await;
    sleep(SECOND).await;
    let loader = Loader::new();
    loader.ends_by(End::Fail);
    let cached = layer(memory).stale_if_error(MINUTE).build().unwrap().layer(loader);
    answer(&cached, 1).await;
    assert_eq!(counted(&cached.stats().requests), only(&[("stale_load_failed", 1)]));
}

#[tokio::test(start_paused = true)]
async fn errors_are_counted_by_their_kind() {
    for (end, name) in [(End::Fail, "failed_loader"), (End::Panic, "failed_panicked")] {
        let loader = Loader::new();
        loader.ends_by(end);
        let cached = cached(MemoryStore::new(10), &loader);
        settled(vec![ask(&cached, 1)]).await;
        assert_eq!(counted(&cached.stats().requests), only(&[(name, 1)]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_runs_out_is_counted() {
    let memory = MemoryStore::new(10);
    let _held = lease(&memory, 1, MINUTE).await;
    let waits = [
        (Wait::at_most(SECOND), "failed_wait_timed_out"),
        (Wait::at_most(SECOND).then_load(), "bypassed_wait_ran_out"),
        (Wait::fail_fast(), "failed_contended"),
    ];
    for (wait, name) in waits {
        let cached = layer(remote(&memory)).wait(wait).build().unwrap().layer(Loader::new());
        settled(vec![ask(&cached, 1)]).await;
        assert_eq!(counted(&cached.stats().requests), only(&[(name, 1)]));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_past_the_cache_and_too_late_are_counted() {
    let late = Instant::now();
    sleep(SECOND).await;
    let lookup_of = move |item: &u64| match item {
        0 => KeyRequest::none(),
        1 => KeyRequest::none().deadline(late),
        2 => KeyRequest::of(Key::of("x".repeat(Key::MAX_BYTES).leak()).with(1)),
        _ => KeyRequest::of(key(*item)).deadline(late),
    };
    let layer = ReadThroughLayer::builder(local(&MemoryStore::new(10)), lookup_of).build().unwrap();
    let mut cached = layer.layer(Loader::new());
    for item in 0..4 {
        _ = cached.call(item).await;
    }
    let expected = [("bypassed_no_key", 1), ("failed_deadline", 2), ("failed_misuse", 1)];
    assert_eq!(counted(&layer.stats().requests), only(&expected));
}

#[tokio::test(start_paused = true)]
async fn a_failed_load_past_the_cache_counts_as_a_failure() {
    for (end, name) in [(End::Fail, "failed_loader"), (End::Panic, "failed_panicked")] {
        let loader = Loader::new();
        let private = layer(MemoryStore::new(10)).classify(|_: &usize| Cacheability::PrivateKey);
        let mut cached = private.build().unwrap().layer(loader.clone());
        for _ in 0..2 {
            answer(&cached, 1).await;
        }
        let unkeyed = ReadThroughLayer::builder(MemoryStore::new(10), |_: &u64| KeyRequest::none());
        let mut past = unkeyed.build().unwrap().layer(loader.clone());
        loader.ends_by(end);
        assert!(cached.call(1).await.is_err() && past.call(1).await.is_err());
        assert_eq!(counted(&cached.stats().requests), only(&[("led_unstored", 2), (name, 1)]));
        assert_eq!(counted(&past.stats().requests), only(&[(name, 1)]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_look_at_the_store_counts_no_second_request() {
    let memory = MemoryStore::new(10);
    let store = remote(&memory);
    let asking = store.on(Operation::Acquire).nth(1).do_it_and_hold();
    put(&memory, 1, "42", JSON).await;
    let cached = cached(store, &Loader::new());
    let looking = burst(&cached, 1, 2);
    asking.reached().await;
    let later = burst(&cached, 1, 2);
    idle().await;
    asking.open();
    answers(looking).await;
    answers(later).await;
    assert_eq!(cached.stats().requests.total(), 4);
}
