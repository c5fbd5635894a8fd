//! How long loads and waits take, how many callers share a load, and how far behind a load the
//! callers of other processes are.

use bellwether::stats::HistogramStats;
use bellwether::{MemoryStore, Wait};
use bellwether_testkit::caches::{
    MINUTE, SECOND, answers, ask, burst, cached, commit, idle, key, layer, lease, settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::{Duration, sleep};
use tower::Layer;

use super::PLACES;
use crate::support::store::remote;

/// The bucket of the only value, by its upper bound.
fn bound_of(stats: &HistogramStats) -> f64 {
    assert_eq!(stats.count(), 1, "{stats:?}");
    let bucket = stats.counts.iter().position(|count| *count == 1).unwrap_or_default();
    stats.bounds.get(bucket).copied().unwrap_or(f64::INFINITY)
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_load_is_counted_by_its_result() {
    let loader = Loader::taking(Duration::from_millis(700));
    let cached = layer(MemoryStore::new(10)).build().unwrap().layer(loader.clone());
    settled(vec![ask(&cached, 1)]).await;
    loader.ends_by(End::Fail);
    settled(vec![ask(&cached, 2)]).await;
    loader.ends_by(End::Panic);
    settled(vec![ask(&cached, 3)]).await;
    let stats = cached.stats();
    for (result, times) in stats.load_times.by_name() {
        match result {
            "succeeded" | "failed" | "panicked" => {
                assert_eq!(bound_of(&times), 1.0, "{result}");
                assert!((times.sum() - 0.7).abs() < 0.01, "{result}: {times:?}");
            }
            _ => assert_eq!(times.count(), 0, "{result}"),
        }
    }
}

/// As many as there are loads that have ended and callers that were collapsed.
#[tokio::test(start_paused = true)]
async fn each_load_and_each_collapsed_caller_has_one_time() {
    for place in PLACES {
        let cached =
            layer(place(&MemoryStore::new(10))).build().unwrap().layer(Loader::taking(SECOND));
        for item in 0..3 {
            answers(burst(&cached, item, 20)).await;
        }
        let stats = cached.stats();
        assert_eq!((stats.loads.total(), stats.load_times.total()), (3, 3));
        assert_eq!(stats.wait_times.here.count(), stats.requests.collapsed_local);
        assert_eq!(stats.wait_times.elsewhere.count(), 0);
        assert!((stats.wait_times.here.sum() - 57.0).abs() < 0.1, "{:?}", stats.wait_times);
    }
}

#[tokio::test(start_paused = true)]
async fn each_flight_counts_its_callers() {
    let cached = cached(remote(&MemoryStore::new(10)), &Loader::taking(SECOND));
    answers(burst(&cached, 1, 40)).await;
    answers(burst(&cached, 2, 3)).await;
    idle().await;
    let callers = cached.stats().flight_callers;
    assert_eq!(callers.bounds, &HistogramStats::CALLERS);
    assert_eq!((callers.count(), callers.sum()), (2, 43.0));
    let of = |most: f64| callers.counts[callers.bounds.iter().position(|it| *it == most).unwrap()];
    assert_eq!((of(3.0), of(50.0)), (1, 1), "{callers:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waiters_of_another_process_lose_is_counted_once_per_flight() {
    for (is_told, bound) in [(true, 0.0005), (false, 1.0)] {
        let memory = MemoryStore::new(10);
        let other = lease(&memory, 1, MINUTE).await;
        let store = remote(&memory);
        let store = if is_told { store } else { store.without_push() };
        let cached = layer(store).wait(Wait::at_most(MINUTE)).build().unwrap().layer(Loader::new());
        let asked = burst(&cached, 1, 10);
        sleep(SECOND * 20).await;
        commit(&memory, other, "42").await;
        answers(asked).await;
        let stats = cached.stats();
        assert!(bound_of(&stats.notice_lag) <= bound, "{is_told}: {:?}", stats.notice_lag);
        assert_eq!(stats.wait_times.elsewhere.count(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_not_timed() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    answers(burst(&cached, 1, 1)).await;
    let before = cached.stats();
    answers(burst(&cached, 1, 10)).await;
    let stats = cached.stats();
    assert_eq!(stats.requests.hit_local, 10);
    let times = |stats: &bellwether::stats::CacheStats| {
        (stats.load_times, stats.wait_times, stats.flight_callers, stats.notice_lag)
    };
    assert_eq!(times(&stats), times(&before));
    assert!(cached.handle().invalidate(&key(1)).await.unwrap());
}
