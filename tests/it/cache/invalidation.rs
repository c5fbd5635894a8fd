//! Invalidation by hand: what it removes, and what it tells.

use bellwether::MemoryStore;
use bellwether_testkit::caches::{MINUTE, SECOND, idle};
use bellwether_testkit::loaders::Loader;

use super::{ask, asked, builder, cache, ended};
use crate::support::store::{Operation, UNREACHABLE, local, remote};

#[tokio::test(start_paused = true)]
async fn an_invalidation_tells_whether_there_was_a_value() {
    let cache = cache(MemoryStore::new(10));
    assert!(!cache.invalidate(1).await.unwrap());
    asked(&cache, 1, &Loader::new()).await.0.unwrap();
    assert!(!cache.invalidate(2).await.unwrap());
    assert!(cache.invalidate(1).await.unwrap());
    assert!(!cache.invalidate(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn expiring_leaves_a_stale_value_and_tells_whether_there_was_one() {
    let loader = Loader::new();
    let cache =
        builder(MemoryStore::new(10)).stale_while_revalidate(MINUTE).build().expect("options");
    assert!(!cache.expire(1).await.unwrap());
    asked(&cache, 1, &loader).await.0.unwrap();
    assert!(cache.expire(1).await.unwrap());
    assert_eq!(cache.get(1).await.unwrap(), None);
    assert_eq!(asked(&cache, 1, &loader).await.0.unwrap(), 1);
    idle().await;
    assert_eq!(cache.get(1).await.unwrap(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_second_expiry_does_not_prolong_the_stale_window() {
    let cache =
        builder(MemoryStore::new(10)).stale_while_revalidate(MINUTE).build().expect("options");
    asked(&cache, 1, &Loader::new()).await.0.unwrap();
    for is_there in [true, true, false] {
        assert_eq!(cache.expire(1).await.unwrap(), is_there);
        tokio::time::sleep(40 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_from_before_an_invalidation_is_not_stored() {
    let loader = Loader::gated();
    let cache = cache(MemoryStore::new(10));
    let before = ask(&cache, 1, &loader);
    loader.has_begun(1).await;
    cache.invalidate(1).await.unwrap();
    loader.let_go(2);
    assert_eq!(ended(before).await.0.unwrap(), 1);
    assert_eq!(asked(&cache, 1, &loader).await.0.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn many_keys_are_invalidated_at_once_and_counted() {
    let store = remote(&MemoryStore::new(2_000));
    let cache = cache(store.clone());
    let loader = Loader::new();
    for item in 0..500 {
        asked(&cache, item, &loader).await.0.unwrap();
    }
    // All of the first 256 are under way while the first one is held.
    let held = store.on(Operation::Invalidate).nth(1).hold();
    let many = tokio::spawn({
        let cache = cache.clone();
        async move { cache.invalidate_many(0..1_000_u64).await }
    });
    held.reached().await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(
        store.calls(Operation::Invalidate),
        1_000,
        "the others overtake the one that is held"
    );
    held.open();
    assert_eq!(ended(many).await.unwrap(), 500);
    assert_eq!(cache.get(499).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn many_keys_are_expired_at_once_and_counted() {
    let cache =
        builder(MemoryStore::new(10)).stale_while_revalidate(MINUTE).build().expect("options");
    let loader = Loader::new();
    for item in 0..3 {
        asked(&cache, item, &loader).await.0.unwrap();
    }
    assert_eq!(cache.expire_many([0, 1, 7, 1]).await.unwrap(), 2, "1 is given twice");
    assert_eq!(cache.get(1).await.unwrap(), None);
    assert!(asked(&cache, 1, &loader).await.0.is_ok_and(|stale| stale == 2));
    assert_eq!(cache.get(2).await.unwrap(), Some(3));
}

#[tokio::test(start_paused = true)]
async fn of_many_expiries_all_are_tried_before_an_error_is_told() {
    let store = local(&MemoryStore::new(10));
    let cache = cache(store.clone());
    store.on(Operation::Expire).nth(1).fail(UNREACHABLE);
    assert!(cache.expire_many(0..3_u64).await.is_err());
    assert_eq!(store.calls(Operation::Expire), 3);
}

#[tokio::test(start_paused = true)]
async fn of_many_invalidations_all_are_tried_before_an_error_is_told() {
    let memory = MemoryStore::new(10);
    let store = local(&memory);
    let cache = cache(store.clone());
    for item in 0..3 {
        asked(&cache, item, &Loader::new()).await.0.unwrap();
    }
    store.on(Operation::Invalidate).nth(1).fail(UNREACHABLE);
    assert!(cache.invalidate_many(0..3_u64).await.is_err());
    assert_eq!(memory.len(), 1);
}
