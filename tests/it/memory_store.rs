//! `MemoryStore` keeps its contract, and its bounds.

use std::convert::Infallible;
use std::time::Duration;

use bellwether::store::{MemoryOptions, Renew, Settled, Store, WATERMARK_TTL};
use bellwether::{Cache, CacheStatus, Key, Lifetimes, MemoryStore};
use bellwether_test::{StoreExt as _, conformance};
use bellwether_testkit::caches::{
    JSON, MINUTE, SECOND, answers, burst, cached, commit, is_leased, key, lease, put, put_for,
};
use bellwether_testkit::loaders::Loader;
use tokio::time::advance;

use crate::support::store::remote;

const MANY: u64 = 100_000;

async fn is_kept(store: &MemoryStore, item: u64) -> bool {
    store.find(key(item)).await.expect("an answer").is_some()
}

async fn fill(store: &MemoryStore, items: std::ops::Range<u64>) {
    for item in items {
        put(store, item, "1", JSON).await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract() {
    assert_eq!(conformance::run(MemoryStore::new(10_000)).await, []);
}

#[tokio::test(start_paused = true)]
async fn what_these_tests_put_in_front_of_it_keeps_the_contract() {
    let store = MemoryStore::new(10_000);
    assert_eq!(conformance::run(remote(&store)).await, []);
    assert_eq!(conformance::run(remote(&store).without_push()).await, []);
}

#[tokio::test(start_paused = true)]
async fn it_never_keeps_more_entries_than_it_may() {
    for most in [1, 2, 255, 256, 512, 1_000, 10_007] {
        let store = MemoryStore::new(most);
        for item in 0..MANY / 5 {
            put(&store, item, "1", JSON).await;
            assert!(store.len() <= most, "{} of {most}", store.len());
        }
        assert!(store.len() > most * 9 / 10, "it could keep {most}, and keeps {}", store.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_keys_leave_a_full_store_and_no_more() {
    let store = MemoryStore::new(1_000);
    fill(&store, 0..MANY).await;
    assert_eq!(store.len(), 1_000);
}

fn bytes(store: &MemoryStore) -> u64 {
    store.stats().bytes
}

#[tokio::test(start_paused = true)]
async fn it_never_keeps_more_bytes_than_it_may() {
    let most = 1024 * 1024;
    let store = MemoryStore::new(MemoryOptions::new(1_000_000).max_bytes(most as usize));
    for item in 0..5_000 {
        put(&store, item, &"x".repeat(item as usize % 4_096), JSON).await;
        assert!(bytes(&store) <= most, "{} of {most}", bytes(&store));
    }
    assert!(bytes(&store) > most * 9 / 10, "it could keep {most}, and keeps {}", bytes(&store));
}

#[tokio::test(start_paused = true)]
async fn an_entry_counts_its_key_its_value_twice_and_its_tables() {
    let store = MemoryStore::new(10);
    put(&store, 1, &"x".repeat(1_000), JSON).await;
    assert_eq!(bytes(&store), (2 * 1_000 + key(1).byte_len() + 640) as u64);
}

#[tokio::test(start_paused = true)]
async fn bytes_are_given_back() {
    let store = MemoryStore::new(10);
    for _ in 0..3 {
        put(&store, 1, "1", JSON).await;
        put(&store, 2, "2", JSON).await;
    }
    for item in [1, 2] {
        store.invalidate(key(item)).await.unwrap();
    }
    assert_eq!((store.len(), bytes(&store)), (0, 0));
}

/// Stores a value that is larger than the store.
async fn put_too_large(store: &MemoryStore, item: u64) {
    let commit = commit(store, lease(store, item, MINUTE).await, &"x".repeat(10_000)).await;
    assert_eq!(commit, Settled::TooLarge);
}

#[tokio::test(start_paused = true)]
async fn an_entry_larger_than_the_store_is_not_kept() {
    let store = MemoryStore::new(MemoryOptions::new(10).max_bytes(10_000));
    put_too_large(&store, 1).await;
    assert_eq!((store.len(), bytes(&store)), (0, 0));
    assert!(!is_leased(&store, 1).await);
}

#[tokio::test(start_paused = true)]
async fn callers_are_told_that_an_answer_larger_than_the_store_is_not_stored() {
    let store = MemoryStore::new(MemoryOptions::new(10).max_bytes(10_000));
    let items = Cache::builder("item", store).ttl(MINUTE).build().unwrap();
    let load = || async { Ok::<_, Infallible>("x".repeat(10_000)) };
    for _ in 0..2 {
        let (_, status) = items.get_or_load(1_u64, load).with_status().await;
        assert_eq!(status, CacheStatus::Led { stored: false });
    }
    assert!(!items.put(1, "x".repeat(10_000)).await.unwrap());
}

/// Though it is in parts.
#[tokio::test(start_paused = true)]
async fn a_small_store_keeps_the_largest_answers_that_are_stored_by_default() {
    let store = MemoryStore::new(MemoryOptions::new(10_000).max_bytes(8 * 1024 * 1024));
    for item in 0..10 {
        put(&store, item, &"x".repeat(1024 * 1024), JSON).await;
        assert!(is_kept(&store, item).await);
    }
}

/// No eviction makes enough memory for it, so nothing should be evicted.
#[tokio::test(start_paused = true)]
async fn an_entry_larger_than_the_store_evicts_nothing() {
    let store = MemoryStore::new(MemoryOptions::new(10).max_bytes(10_000));
    fill(&store, 1..6).await;
    put_too_large(&store, 7).await;
    assert_eq!(store.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_entry_larger_than_the_store_replaces_what_was_there() {
    let store = MemoryStore::new(MemoryOptions::new(10).max_bytes(10_000));
    put(&store, 1, "old", JSON).await;
    put_too_large(&store, 1).await;
    assert!(!is_kept(&store, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_memory_still_shares_loads() {
    for store in [MemoryStore::new(0), MemoryStore::new(MemoryOptions::new(10).max_bytes(0))] {
        let asked = burst(&cached(store.clone(), &Loader::taking(SECOND)), 1, 100);
        assert_eq!(answers(asked).await, [1; 100]);
        assert!(store.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_is_gone_when_its_time_is_over() {
    let store = MemoryStore::new(10);
    put(&store, 1, "1", JSON).await;
    advance(MINUTE - Duration::from_millis(1)).await;
    assert!(is_kept(&store, 1).await);
    advance(Duration::from_millis(1)).await;
    assert!(!is_kept(&store, 1).await);
}

#[tokio::test(start_paused = true)]
async fn what_was_read_lately_stays_when_others_have_to_go() {
    let store = MemoryStore::new(100);
    fill(&store, 0..100).await;
    for item in 0..50 {
        assert!(is_kept(&store, item).await);
    }
    // As many as were not read.
    fill(&store, 1_000..1_050).await;
    for item in 0..50 {
        assert!(is_kept(&store, item).await, "{item} was read and had to go");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_read_once_long_ago_goes_like_the_others() {
    let store = MemoryStore::new(100);
    fill(&store, 0..100).await;
    assert!(is_kept(&store, 7).await);
    fill(&store, 1_000..1_300).await;
    assert!(!is_kept(&store, 7).await);
}

#[tokio::test(start_paused = true)]
async fn what_has_run_out_goes_before_what_was_not_read() {
    let store = MemoryStore::new(100);
    for item in 0..50 {
        put_for(&store, item, "1", JSON, Lifetimes::fresh_for(SECOND)).await;
    }
    fill(&store, 50..100).await;
    for item in 0..50 {
        assert!(is_kept(&store, item).await);
    }
    advance(SECOND).await;
    fill(&store, 1_000..1_050).await;
    for item in 50..100 {
        assert!(is_kept(&store, item).await, "{item} had to go for what had run out");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_newest_is_not_what_has_to_go() {
    let store = MemoryStore::new(100);
    for item in 0..1_000 {
        put(&store, item, "1", JSON).await;
        assert!(is_kept(&store, item).await, "{item}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_stays_whatever_else_has_to_go() {
    let store = MemoryStore::new(100);
    let _held = lease(&store, MANY, MINUTE).await;
    fill(&store, 0..MANY).await;
    assert!(is_leased(&store, MANY).await);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_leases_hold_at_once() {
    let store = MemoryStore::new(100);
    let mut leases = Vec::new();
    for item in 0..10_000 {
        leases.push(lease(&store, item, MINUTE).await);
    }
    for lease in &leases {
        assert_eq!(store.renew(lease, lease.term).await.unwrap(), Renew::Held);
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_invalidations_are_remembered_at_once() {
    let store = MemoryStore::new(100);
    let mut overtaken = Vec::new();
    for item in 0..10_000 {
        overtaken.push(lease(&store, item, MINUTE).await);
        store.invalidate(key(item)).await.unwrap();
    }
    for lease in overtaken {
        assert_eq!(commit(&store, lease, "1").await, Settled::Superseded);
    }
}

/// Watermarks end after a while. An older load could miss the watermark of an invalidation, so it
/// may not store anything.
#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_as_old_as_watermarks_become_stores_nothing() {
    let store = MemoryStore::new(100);
    let old = lease(&store, 1, SECOND).await;
    let younger = lease(&store, 2, SECOND).await;
    advance(WATERMARK_TTL - Duration::from_millis(1)).await;
    assert_eq!(commit(&store, younger, "1").await, Settled::Done);
    advance(Duration::from_millis(1)).await;
    assert_eq!(commit(&store, old, "1").await, Settled::Superseded);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_still_holds_stores_however_old_it_is() {
    let store = MemoryStore::new(100);
    let lease = lease(&store, 1, WATERMARK_TTL * 3).await;
    advance(WATERMARK_TTL * 2).await;
    assert_eq!(commit(&store, lease, "1").await, Settled::Done);
}

#[tokio::test(start_paused = true)]
async fn absurd_durations_are_long_and_nothing_else() {
    let store = MemoryStore::new(100);
    let windows = Lifetimes::fresh_for(Duration::MAX).stale_while_revalidate(Duration::MAX);
    put_for(&store, 1, "1", JSON, windows).await;
    let _held = lease(&store, 2, Duration::MAX).await;
    advance(MINUTE * 60 * 24).await;
    assert!(is_kept(&store, 1).await && is_leased(&store, 2).await);
}

#[tokio::test(start_paused = true)]
async fn clones_are_handles_to_one_store() {
    let store = MemoryStore::new(100);
    put(&store.clone(), 1, "1", JSON).await;
    assert!(is_kept(&store, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_never_stored_is_not_there() {
    let store = MemoryStore::new(100);
    fill(&store, 0..100).await;
    assert!(store.find(Key::of("other").with(1)).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_store_have_its_entries_and_its_bounds() {
    let store = MemoryStore::new(MemoryOptions::new(1).max_bytes(10_000));
    put(&store, 1, "1", JSON).await;
    let clone = store.clone();
    assert_eq!((clone.len(), bytes(&clone)), (store.len(), bytes(&store)));
    assert!(format!("{clone:?}").contains("max_bytes: 10000"), "{clone:?}");
}
