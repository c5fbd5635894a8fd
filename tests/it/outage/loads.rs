//! How often a process loads a key while its store is away, and what callers are told.

use std::time::Duration;

use bellwether::store::{OutageStore, StoreErrorKind};
use bellwether::{BypassReason, CacheStatus, LoadLocation, MemoryStore, StaleReason};
use bellwether_testkit::caches::{
    MINUTE, NO_TIME, SECOND, answer, answers, ask, burst, cached, idle, layer, settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::{Instant, sleep};
use tower::Layer;

use super::{OUTAGES, TTL, down, primary};
use crate::support::store::{Operation, remote};

#[tokio::test(start_paused = true)]
async fn a_key_is_loaded_once_per_ttl_of_an_outage_and_not_once_per_request() {
    for kind in OUTAGES {
        let (primary, store) = primary();
        primary.on_any().fail(kind);
        let loader = Loader::new();
        let cached = cached(store, &loader);
        // A request each ten milliseconds, for ten seconds.
        for _ in 0..1_000 {
            answer(&cached, 1).await;
            sleep(TTL / 100).await;
        }
        assert!((9..=11).contains(&loader.loads()), "{kind:?}: {} loads", loader.loads());
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_store_that_still_answers_lookups_costs_a_load_per_key_and_ttl() {
    let (primary, store) = primary();
    primary.on(Operation::Acquire).fail(StoreErrorKind::Refused);
    let loader = Loader::new();
    let cached = cached(store, &loader);
    for _ in 0..500 {
        answer(&cached, 1).await;
        sleep(TTL / 100).await;
    }
    assert!((4..=6).contains(&loader.loads()), "{} loads", loader.loads());
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_together_share_a_load_while_the_store_is_down() {
    let (_, store) = down();
    let loader = Loader::taking(SECOND / 10);
    let cached = cached(store, &loader);
    let ended = settled(burst(&cached, 1, 100)).await;
    let opened = CacheStatus::Bypass(BypassReason::StoreFailed);
    assert_eq!(ended.iter().filter(|(_, status)| *status == opened).count(), 1);
    let is_collapsed =
        |it: &CacheStatus| matches!(it, CacheStatus::Collapsed { place: LoadLocation::Local, .. });
    assert_eq!(ended.iter().filter(|(_, status)| is_collapsed(status)).count(), 99);
    assert_eq!(loader.loads(), 1);
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert!(matches!(status, CacheStatus::Hit { .. }), "{status:?}");
    let stats = cached.stats();
    assert_eq!((stats.loads.store_failed, stats.loads.leased(), stats.leases.granted), (1, 0, 0));
    assert_eq!(stats.commits.stored, 0, "the fleet does not have it");
}

#[tokio::test(start_paused = true)]
async fn two_caches_over_one_store_share_the_loads_of_an_outage() {
    let (_, store) = down();
    let loader = Loader::taking(SECOND / 10);
    let caches = [cached(store.clone(), &loader), cached(store, &loader)];
    let begun = Instant::now();
    let asked = caches.iter().flat_map(|cached| burst(cached, 1, 10)).collect();
    answers(asked).await;
    assert_eq!(loader.loads(), 1);
    assert!(begun.elapsed() <= SECOND / 10, "a watch wakes the other cache, not a pause");
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_one_failure_of_the_store_and_not_for_two() {
    let (primary, store) = primary();
    primary.on_any().delay(SECOND / 4);
    primary.on_any().fail(StoreErrorKind::TimedOut);
    let cached = cached(store, &Loader::new());
    let begun = Instant::now();
    answer(&cached, 1).await;
    assert_eq!(begun.elapsed(), SECOND / 4);
}

#[tokio::test(start_paused = true)]
async fn a_hit_in_an_outage_asks_the_store_at_most_every_quarter_of_a_second() {
    let (primary, store) = down();
    let cached = cached(store.clone(), &Loader::new());
    answer(&cached, 1).await;
    let before = primary.total_calls();
    for _ in 0..100 {
        answer(&cached, 1).await;
    }
    assert_eq!(primary.total_calls(), before);
    assert_eq!((store.stats().entries, store.stats().hits), (1, 100));
    sleep(SECOND / 4).await;
    answer(&cached, 1).await;
    assert_eq!(primary.total_calls(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_back_is_in_use_within_the_ttl_and_the_memory_is_freed_later() {
    let (primary, store) = down();
    let loader = Loader::new();
    let layer = layer(store.clone()).stale_if_error(MINUTE * 60).build().unwrap();
    let cached = layer.layer(loader.clone());
    answer(&cached, 1).await;
    answer(&cached, 2).await;
    primary.heal();
    let begun = Instant::now();
    while primary.calls(Operation::Commit) == 0 {
        answer(&cached, 1).await;
        sleep(TTL / 100).await;
    }
    assert!(begun.elapsed() <= TTL, "{:?}", begun.elapsed());
    assert_eq!(store.stats().entries, 1, "that of the other key");
    sleep(TTL * 2).await;
    answer(&cached, 1).await;
    assert_eq!(store.stats().entries, 0);
    assert_eq!(loader.loads(), 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_that_was_loaded_without_the_store_is_stored_there() {
    let (primary, store) = down();
    let loader = Loader::gated();
    let cached = cached(store, &loader);
    let asked = ask(&cached, 1);
    loader.has_begun(1).await;
    primary.heal();
    loader.let_go(1);
    settled(vec![asked]).await;
    idle().await;
    assert_eq!(primary.calls(Operation::Commit), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_ttl_a_store_that_is_down_is_no_cache() {
    let primary = remote(&MemoryStore::new(10));
    primary.on_any().fail(StoreErrorKind::Unreachable);
    let loader = Loader::new();
    let cached = cached(OutageStore::new(primary, NO_TIME), &loader);
    answer(&cached, 1).await;
    answer(&cached, 1).await;
    assert_eq!(loader.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_loaded_in_an_outage_is_stale_after_the_ttl_and_serves_errors_and_revalidations() {
    let (_, store) = down();
    let loader = Loader::new();
    let layer = layer(store).stale_while_revalidate(SECOND * 5).stale_if_error(MINUTE);
    let cached = layer.build().unwrap().layer(loader.clone());
    let status = async || ask(&cached, 1).await.unwrap().1;
    status().await;
    sleep(TTL + TTL / 2).await;
    let stale = status().await;
    assert!(
        matches!(stale, CacheStatus::Stale { why: StaleReason::Revalidating, .. }),
        "{stale:?}"
    );
    idle().await;
    assert_eq!(loader.loads(), 2, "replaced in the background");
    loader.ends_by(End::Fail);
    sleep(SECOND * 30).await;
    let stale = status().await;
    assert!(matches!(stale, CacheStatus::Stale { why: StaleReason::LoadFailed, .. }), "{stale:?}");
    sleep(Duration::from_secs(120)).await;
    assert_eq!(status().await, CacheStatus::Failed);
}
