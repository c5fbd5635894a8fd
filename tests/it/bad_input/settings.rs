//! Absurd settings are refused by name, or harmless.

use std::fmt::Display;
use std::time::Duration;

use bellwether::{Cache, CacheErrorKind, CacheStatus, Key, MemoryStore, ReadThroughLayer, Wait};
use bellwether_testkit::caches::{
    Cached, MINUTE, SECOND, answer, answers, ask, cached, kind_of, layer, lease,
};
use bellwether_testkit::loaders::Loader;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::support::store::remote;

fn refused<T>(knob: Result<T, impl Display>) -> String {
    match knob {
        Ok(_) => panic!("it was accepted"),
        Err(error) => error.to_string(),
    }
}

const MILLI: Duration = Duration::from_millis(1);

#[test]
fn a_lease_out_of_range_is_refused_by_name() {
    for lease in [Duration::ZERO, MILLI * 99, MINUTE * 60 + MILLI, Duration::MAX] {
        let message = refused(layer(MemoryStore::new(1)).lease(lease).build());
        assert!(message.starts_with("lease must be from 100ms to 3600s, not "), "{message}");
    }
}

#[test]
fn a_lease_at_the_ends_of_its_range_is_accepted() {
    for lease in [MILLI * 100, MINUTE * 60] {
        layer(MemoryStore::new(1)).lease(lease).build().unwrap();
    }
}

#[test]
fn a_load_timeout_out_of_range_is_refused_by_name() {
    for limit in [Duration::ZERO, Duration::from_nanos(1), MINUTE * 1440 + MILLI, Duration::MAX] {
        let message = refused(layer(MemoryStore::new(1)).load_timeout(limit).build());
        assert!(message.starts_with("load timeout must be from 1ms to 86400s, not "), "{message}");
    }
}

#[test]
fn a_largest_entry_out_of_range_is_refused_by_name() {
    for most in [0, 511 * 1024 * 1024 + 1, usize::MAX] {
        let message = refused(layer(MemoryStore::new(1)).max_entry_bytes(most).build());
        assert!(message.starts_with("max entry bytes must be from 1 to 535822336"), "{message}");
    }
}

#[test]
fn bounds_of_nothing_are_refused_by_name() {
    let at_least_one = [
        refused(layer(MemoryStore::new(1)).max_waiters(0).build()),
        refused(layer(MemoryStore::new(1)).max_flights(0).build()),
        refused(layer(MemoryStore::new(1)).max_loads(0).build()),
    ];
    let names = ["max waiters", "max flights", "max loads"];
    for (message, name) in at_least_one.iter().zip(names) {
        assert!(message.starts_with(name) && message.contains("from 1 to "), "{message}");
    }
}

#[test]
fn cooldowns_out_of_range_are_refused_by_name() {
    for (first, longest) in [(SECOND * 2, SECOND), (SECOND, MINUTE * 60 + MILLI)] {
        let message = refused(layer(MemoryStore::new(1)).failure_windows(first, longest).build());
        assert!(message.starts_with("longest failure window must be from "), "{message}");
    }
}

#[test]
fn shares_out_of_range_are_refused_by_name() {
    for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let message = refused(layer(MemoryStore::new(1)).jitter(share).build());
        assert!(message.starts_with("jitter must be from 0 to 1, not "), "{message}");
    }
    for beta in [0.0, 0.009, 100.1, -1.0, f64::NAN, f64::INFINITY] {
        let message = refused(layer(MemoryStore::new(1)).refresh_early(beta).build());
        assert!(message.starts_with("beta must be from 0.01 to 100, not "), "{message}");
    }
}

#[test]
fn the_first_of_two_wrong_options_is_named() {
    let layer = || layer(MemoryStore::new(1));
    let message = refused(layer().jitter(2.0).lease(MILLI).jitter(0.5).build());
    assert!(message.starts_with("jitter must be"), "{message}");
    let message = refused(layer().lease(MILLI).ttl(MINUTE).jitter(2.0).build());
    assert!(message.starts_with("lease must be"), "{message}");
    let cache = Cache::<u64, u64>::builder("item", MemoryStore::new(1)).ttl(MINUTE);
    let message = refused(cache.max_flights(0).max_waiters(0).build());
    assert!(message.starts_with("max flights must be"), "{message}");
}

/// It would have the keys of version 2 of `item`.
#[test]
fn a_name_that_ends_like_a_version_is_refused() {
    let cache = |name| Cache::<u64, u64>::builder(name, MemoryStore::new(1)).ttl(MINUTE);
    let message = refused(cache("item@2").build());
    assert!(message.contains("item@2") && message.contains(".version"), "{message}");
    assert!(cache("item.2").build().is_ok() && cache("user@host").build().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_longest_ttl_is_a_leap_year() {
    let cached: Cached =
        layer(MemoryStore::new(1)).ttl(Duration::MAX).build().unwrap().layer(Loader::new());
    answer(&cached, 1).await;
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert_eq!(status, CacheStatus::Hit { fresh_for: Some(MINUTE * 60 * 24 * 366) });
}

#[tokio::test(start_paused = true)]
async fn the_shortest_ttl_is_a_millisecond() {
    let cached = layer(MemoryStore::new(1))
        .ttl(Duration::from_nanos(1))
        .build()
        .unwrap()
        .layer(Loader::new());
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert_eq!(status, CacheStatus::Led { stored: true });
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert_eq!(status, CacheStatus::Hit { fresh_for: Some(MILLI) });
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_end_ends_with_the_load() {
    let for_ages = [1 << 32, 1 << 53, i64::MAX as u64, u64::MAX].map(Duration::from_secs);
    let waits = for_ages.map(Wait::at_most).into_iter();
    for wait in waits.chain([Wait::at_most(Duration::MAX), Wait::tries(u32::MAX, Duration::MAX)]) {
        let store = MemoryStore::new(1);
        let _leads = ask(&cached(store.clone(), &Loader::taking(SECOND * 29)), 1);
        let patient = layer(store).wait(wait).build().unwrap().layer(Loader::new());
        assert_eq!(answers(vec![ask(&patient, 1)]).await, [1]);
    }
}

/// Pauses as long as that are cut at the end of the lease, or a dead leader would be waited for
/// without end.
#[tokio::test(start_paused = true)]
async fn absurd_intervals_do_not_outlast_a_dead_leader() {
    let store = MemoryStore::new(1);
    drop(lease(&store, 1, SECOND * 2).await);
    let wait = Wait::tries(u32::MAX, Duration::MAX);
    let patient =
        layer(remote(&store).without_push()).wait(wait).build().unwrap().layer(Loader::new());
    let began = Instant::now();
    assert_eq!(answer(&patient, 1).await, 1);
    assert!(began.elapsed() <= SECOND * 2 + MILLI * 5, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_tries_are_to_fail_fast() {
    for interval in [Duration::ZERO, SECOND, Duration::MAX] {
        let store = MemoryStore::new(1);
        let _held = lease(&store, 1, MINUTE).await;
        let hasty =
            layer(store).wait(Wait::tries(0, interval)).build().unwrap().layer(Loader::new());
        let (answer, _) = ask(&hasty, 1).await.unwrap();
        assert_eq!(kind_of(&answer), CacheErrorKind::Contended);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_below_a_millisecond_counts_as_one() {
    let store = MemoryStore::new(1);
    let _held = lease(&store, 1, MINUTE).await;
    let brisk =
        layer(store).wait(Wait::tries(3, Duration::ZERO)).build().unwrap().layer(Loader::new());
    let began = Instant::now();
    let (answer, _) = ask(&brisk, 1).await.unwrap();
    assert_eq!((kind_of(&answer), began.elapsed()), (CacheErrorKind::WaitTimedOut, MILLI * 3));
}

/// A key of this many bytes, as `Key::MAX_BYTES` counts.
fn key_of_bytes(bytes: usize) -> Key {
    let empty = Key::of("upload").with("").byte_len();
    Key::of("upload").with("x".repeat(bytes - empty))
}

fn uploads(loader: &Loader) -> impl Service<u64, Response = usize, Error = LoadError> {
    let layer =
        ReadThroughLayer::builder(MemoryStore::new(1), |bytes: &u64| key_of_bytes(*bytes as usize))
            .build()
            .unwrap();
    layer.layer(loader.clone())
}

type LoadError = bellwether::Error<bellwether_testkit::loaders::Refusal>;

#[tokio::test(start_paused = true)]
async fn a_key_that_is_too_long_is_an_error_that_names_its_kind_and_not_its_text() {
    let loader = Loader::new();
    let error = uploads(&loader).call(Key::MAX_BYTES as u64 + 1).await.unwrap_err();
    assert_eq!(error.cache().map(|error| error.kind()), Some(CacheErrorKind::KeyTooLong));
    let message = error.to_string();
    assert!(message.contains("upload") && message.contains("1025 bytes"), "{message}");
    assert!(!message.contains("xx"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_too_long_is_never_loaded() {
    let loader = Loader::new();
    drop(uploads(&loader).call(1_000_000).await);
    assert_eq!(loader.loads(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_longest_key_is_accepted() {
    let answered = uploads(&Loader::new()).call(Key::MAX_BYTES as u64).await;
    assert_eq!(answered.unwrap(), 1);
}

/// As a program may have one for each of its tenants.
#[test]
fn the_time_to_build_a_cache_does_not_grow_with_their_number() {
    let began = Instant::now();
    let store = MemoryStore::new(10);
    let cache = |tenant| -> Cache<u64, u64> {
        let name = format!("settings.tenant-{tenant}");
        Cache::builder(&name, store.clone()).ttl(Duration::from_secs(60)).build().expect("options")
    };
    let caches: Vec<_> = (0..12_000).map(cache).collect();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?} for {}", began.elapsed(), caches.len());
}
