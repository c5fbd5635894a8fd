//! Values that are never encoded.

use std::convert::Infallible;
use std::sync::Arc;

use bellwether::codec::InProcess;
use bellwether::store::{InProcessStore, MemoryOptions};
use bellwether::{Cache, CacheStatus, MemoryStore, ReadThroughLayer};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{MINUTE, SECOND, key};
use tokio::time::advance;
use tower::{ServiceExt, service_fn};

use super::builder;
use crate::support::store::remote;

/// It can be neither cloned nor serialised.
struct Template(Box<dyn Fn(&str) -> String + Send + Sync>);

type Templates = Cache<u64, Arc<Template>, InProcess>;

fn templates(store: impl InProcessStore) -> Templates {
    Cache::in_process("item", store).ttl(MINUTE).jitter(0.0).build().expect("options")
}

async fn compile() -> Result<Arc<Template>, Infallible> {
    Ok(Arc::new(Template(Box::new(|name| format!("<{name}>")))))
}

#[tokio::test(start_paused = true)]
async fn a_hit_gives_the_very_value_that_was_loaded() {
    let store = MemoryStore::new(10);
    for cache in [templates(store.clone()), templates(remote(&MemoryStore::new(10)))] {
        let loaded = cache.get_or_load(1, compile).await.unwrap();
        let (hit, status) = cache.get_or_load(1, compile).with_status().await;
        assert!(matches!(status, CacheStatus::Hit { .. }), "{status}");
        assert!(Arc::ptr_eq(&loaded, &hit.unwrap()));
        assert_eq!((loaded.0)("p"), "<p>");
    }
    let entry = store.find(key(1)).await.unwrap().expect("it is stored");
    assert!(entry.value().encoded().is_empty(), "nothing was encoded");
}

#[tokio::test(start_paused = true)]
async fn caches_of_one_store_share_values_and_invalidations() {
    let store = Arc::new(MemoryStore::new(10));
    let (cache, other) = (templates(Arc::clone(&store)), templates(store));
    let put = compile().await.unwrap();
    assert!(cache.put(1, Arc::clone(&put)).await.unwrap());
    assert!(Arc::ptr_eq(&other.get(1).await.unwrap().expect("it is stored"), &put));
    assert!(other.invalidate(1).await.unwrap());
    assert!(cache.get(1).await.unwrap().is_none());
    cache.get_or_load(1, compile).await.unwrap();
    advance(MINUTE + SECOND).await;
    assert!(other.get(1).await.unwrap().is_none(), "its ttl has ended");
}

#[tokio::test(start_paused = true)]
async fn values_of_the_process_and_encoded_ones_are_apart() {
    let store = MemoryStore::new(10);
    let kept: Cache<u64, u64, InProcess> =
        Cache::in_process("item", store.clone()).ttl(MINUTE).build().expect("options");
    let encoded: Cache<u64, u64> = builder(store).build().expect("options");
    assert!(kept.put(1, 7).await.unwrap());
    assert_eq!(encoded.get(1).await.unwrap(), None);
    assert!(encoded.put(1, 8).await.unwrap());
    assert_eq!(kept.get(1).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn not_a_number_stays_what_it_is() {
    let store = MemoryStore::new(10);
    let cache: Cache<u64, f64, InProcess> =
        Cache::in_process("item", store).ttl(MINUTE).build().expect("options");
    cache.put(1, f64::NAN).await.unwrap();
    assert!(cache.get(1).await.unwrap().expect("it is stored").is_nan());
}

#[tokio::test(start_paused = true)]
async fn a_value_counts_its_size_in_the_store() {
    let options = || MemoryOptions::new(10).max_bytes(16 * 1024);
    let large: Cache<u64, [u8; 8 * 1024], InProcess> =
        Cache::in_process("item", MemoryStore::new(options()))
            .ttl(MINUTE)
            .build()
            .expect("options");
    let small: Cache<u64, u8, InProcess> = Cache::in_process("item", MemoryStore::new(options()))
        .ttl(MINUTE)
        .build()
        .expect("options");
    for part in 0..4 {
        large.put(part, [0; 8 * 1024]).await.unwrap();
        small.put(part, 0).await.unwrap();
    }
    let mut stored = [0, 0];
    for part in 0..4 {
        stored[0] += usize::from(large.get(part).await.unwrap().is_some());
        stored[1] += usize::from(small.get(part).await.unwrap().is_some());
    }
    assert_eq!(stored, [1, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_layer_keeps_values_as_they_are_too() {
    let layer = ReadThroughLayer::in_process(MemoryStore::new(10), |item: &u64| key(*item))
        .ttl(MINUTE)
        .build()
        .unwrap();
    let service = layer.service(service_fn(async |_: u64| compile().await));
    let loaded = service.clone().oneshot(1).await.unwrap();
    assert!(Arc::ptr_eq(&loaded, &service.oneshot(1).await.unwrap()));
}
