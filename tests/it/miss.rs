//! Callers that miss together are answered by one load.

use std::sync::Arc;

use bellwether::store::Marker;
use bellwether::{BypassReason, CacheStatus, Key, LoadLocation, MemoryStore, ReadThroughLayer};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::codec::{Faults, Text};
use bellwether_testkit::caches::{
    Cached, JSON, MINUTE, NO_TIME, SECOND, answer, answers, ask, burst, cached, idle, layer, put,
    settled,
};
use bellwether_testkit::loaders::Loader;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service};

use crate::support::store::{Operation, UNREACHABLE, local, remote};

#[tokio::test(start_paused = true)]
async fn ten_thousand_callers_in_one_process_share_one_load() {
    let loader = Loader::gated();
    let asked = burst(&cached(MemoryStore::new(10), &loader), 1, 10_000);
    idle().await;
    loader.let_go(10_000);
    assert_eq!(answers(asked).await, [1; 10_000]);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_callers_of_a_remote_store_share_one_load_and_three_requests() {
    let loader = Loader::gated();
    let store = remote(&MemoryStore::new(10));
    let asked = burst(&cached(store.clone(), &loader), 1, 10_000);
    idle().await;
    loader.let_go(10_000);
    assert_eq!(answers(asked).await, [1; 10_000]);
    let requests =
        [Operation::Lookup, Operation::Acquire, Operation::Commit].map(|op| store.calls(op));
    assert_eq!((requests, store.total_calls()), ([1, 1, 1], 3));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_eight_causes_one_load() {
    let loader = Loader::taking(SECOND);
    let store = MemoryStore::new(10);
    let fleet = [(); 8].map(|()| cached(remote(&store), &loader));
    let asked = fleet.iter().flat_map(|process| burst(process, 1, 100)).collect();
    assert_eq!(answers(asked).await, [1; 800]);
    assert_eq!(loader.loads(), 1);
}

/// On threads that really run at once, in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fleet_on_many_threads_causes_one_load_per_key() {
    let loader = Loader::new();
    let store = MemoryStore::new(1_000);
    let fleet = [(); 4].map(|()| cached(local(&store), &loader));
    for round in 1..=300 {
        let start = Arc::new(Barrier::new(32));
        let callers = (0..32).map(|caller| {
            let mut process = fleet[caller % 4].clone();
            let start = Arc::clone(&start);
            tokio::spawn(async move {
                start.wait().await;
                process.call(round).with_status().await
            })
        });
        assert_eq!(answers(callers.collect()).await, [round as usize; 32]);
    }
}

#[tokio::test(start_paused = true)]
async fn different_keys_load_in_parallel() {
    let loader = Loader::gated();
    let cached = cached(MemoryStore::new(1_000), &loader);
    let asked = (0..100).map(|item| ask(&cached, item)).collect();
    idle().await;
    assert_eq!(loader.running(), 100);
    loader.let_go(100);
    settled(asked).await;
}

#[tokio::test(start_paused = true)]
async fn the_status_says_that_a_caller_led() {
    let (_, status) = ask(&cached(MemoryStore::new(10), &Loader::new()), 1).await.unwrap();
    assert_eq!(status, CacheStatus::Led { stored: true });
}

#[tokio::test(start_paused = true)]
async fn the_status_says_that_a_caller_waited_in_its_process() {
    let cached = cached(MemoryStore::new(10), &Loader::taking(SECOND * 3));
    let _leads = ask(&cached, 1);
    sleep(SECOND).await;
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert_eq!(status, CacheStatus::Collapsed { place: LoadLocation::Local, waited: SECOND * 2 });
}

#[tokio::test(start_paused = true)]
async fn the_status_says_that_a_caller_waited_for_another_process() {
    let loader = Loader::taking(SECOND * 3);
    let store = MemoryStore::new(10);
    let _leads = ask(&cached(store.clone(), &loader), 1);
    sleep(SECOND).await;
    let (_, status) = ask(&cached(store, &loader), 1).await.unwrap();
    assert_eq!(status, CacheStatus::Collapsed { place: LoadLocation::Remote, waited: SECOND * 2 });
}

#[test]
fn a_status_is_written_in_the_words_of_rfc_9211() {
    let waited = SECOND;
    let table = [
        (CacheStatus::Hit { fresh_for: Some(SECOND * 7) }, "bellwether; hit; ttl=7"),
        (CacheStatus::Hit { fresh_for: None }, "bellwether; hit"),
        (CacheStatus::Led { stored: true }, "bellwether; fwd=miss; stored"),
        (CacheStatus::Led { stored: false }, "bellwether; fwd=miss"),
        (
            CacheStatus::Collapsed { place: LoadLocation::Remote, waited },
            "bellwether; fwd=miss; collapsed; detail=remote",
        ),
        (CacheStatus::Bypass(BypassReason::NoKey), "bellwether; fwd=bypass; detail=no-key"),
    ];
    for (status, written) in table {
        assert_eq!(status.to_string(), written);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_key_are_loaded_each_for_itself() {
    let loader = Loader::gated();
    let layer = ReadThroughLayer::builder(MemoryStore::new(10), |_: &u64| None::<Key>)
        .ttl(MINUTE)
        .build()
        .unwrap();
    let mut cached = layer.layer(loader.clone());
    let mut requests = [(); 3].map(|()| tokio_test::task::spawn(cached.call(1)));
    assert!(requests.iter_mut().all(|request| request.poll().is_pending()));
    assert_eq!(loader.running(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_status_says_that_a_request_without_a_key_bypassed_the_cache() {
    let layer =
        ReadThroughLayer::builder(MemoryStore::new(10), |_: &u64| None::<Key>).build().unwrap();
    let (answer, status) = layer.layer(Loader::new()).call(1).with_status().await;
    assert_eq!(answer.unwrap(), 1);
    assert_eq!(status, CacheStatus::Bypass(BypassReason::NoKey));
}

#[tokio::test(start_paused = true)]
async fn without_a_ttl_the_waiters_share_a_load() {
    let layer = layer(MemoryStore::new(10)).ttl(NO_TIME).build().unwrap();
    let cached = layer.layer(Loader::taking(SECOND));
    assert_eq!(answers(burst(&cached, 1, 100)).await, [1; 100]);
}

#[tokio::test(start_paused = true)]
async fn without_a_ttl_nothing_is_kept() {
    let store = MemoryStore::new(10);
    let cached = layer(store.clone()).ttl(NO_TIME).build().unwrap().layer(Loader::new());
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert_eq!(status, CacheStatus::Led { stored: false });
    assert!(store.is_empty());
    assert_eq!(answer(&cached, 1).await, 2);
}

/// Answers that cannot be kept, for the reason given.
fn not_keeping(faults: Faults, store: &MemoryStore, loader: &Loader) -> Cached<Text> {
    let layer = layer(store.clone()).codec(Text::new(faults));
    layer.max_entry_bytes(100).build().unwrap().layer(loader.clone())
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_large_to_keep_is_given_to_all_at_once() {
    gives_all_what_it_does_not_keep(Faults::Long).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_encoded_is_given_to_all_at_once() {
    gives_all_what_it_does_not_keep(Faults::FailsToEncode).await;
}

async fn gives_all_what_it_does_not_keep(faults: Faults) {
    let began = Instant::now();
    let cached = not_keeping(faults, &MemoryStore::new(10), &Loader::taking(SECOND));
    assert_eq!(answers(burst(&cached, 1, 100)).await, [1; 100]);
    assert_eq!(began.elapsed(), SECOND, "no caller waited for another load");
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_large_is_not_kept() {
    loads_again_what_it_does_not_keep(Faults::Long).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_encoded_is_not_kept() {
    loads_again_what_it_does_not_keep(Faults::FailsToEncode).await;
}

async fn loads_again_what_it_does_not_keep(faults: Faults) {
    let store = MemoryStore::new(10);
    let cached = not_keeping(faults, &store, &Loader::taking(SECOND));
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert_eq!(status, CacheStatus::Led { stored: false });
    let entry =
        store.find(bellwether_testkit::caches::key(1)).await.expect("an answer").expect("a marker");
    assert_eq!(entry.as_marker(), Some(Marker::Uncacheable));
    assert_eq!(answers(burst(&cached, 1, 100)).await, [2; 100]);
}

#[tokio::test(start_paused = true)]
async fn a_load_slower_than_its_lease_keeps_it() {
    let loader = Loader::taking(SECOND * 10);
    let store = MemoryStore::new(10);
    let lease = |store| layer(store).lease(SECOND);
    let [one, other] =
        [(); 2].map(|()| lease(store.clone()).build().unwrap().layer(loader.clone()));
    let first = ask(&one, 1);
    sleep(SECOND * 6).await;
    assert_eq!(answers(vec![first, ask(&other, 1)]).await, [1, 1]);
    assert_eq!(loader.loads(), 1);
}

/// A process whose renewals never arrive, with a lease of a second.
fn losing_its_lease(store: &MemoryStore, loader: &Loader) -> Cached {
    let store = local(store);
    store.on(Operation::Renew).fail(UNREACHABLE);
    layer(store).lease(SECOND).build().unwrap().layer(loader.clone())
}

#[tokio::test(start_paused = true)]
async fn a_load_that_outlives_its_lease_is_kept_if_nothing_newer_came() {
    let cached = losing_its_lease(&MemoryStore::new(10), &Loader::taking(SECOND * 3));
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert_eq!(status, CacheStatus::Led { stored: true });
    assert_eq!(answer(&cached, 1).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_outlives_its_lease_does_not_replace_what_is_newer() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cached = losing_its_lease(&store, &loader);
    let slow = ask(&cached, 1);
    sleep(SECOND * 2).await;
    put(&store, 1, "42", JSON).await;
    loader.let_go(1);
    let (_, status) = slow.await.unwrap();
    assert_eq!(status, CacheStatus::Led { stored: false });
    assert_eq!(answer(&cached, 1).await, 42);
}
