//! Calls of a `Cache` that load nothing are counted, too.

use std::convert::Infallible;

use bellwether::store::Store;
use bellwether::{Cache, MemoryStore};
use bellwether_testkit::caches::MINUTE;

use crate::support::store::{Operation, UNREACHABLE, local, remote};

fn cache<K>(store: impl Store) -> Cache<K, String> {
    Cache::builder("name", store).ttl(MINUTE).build().expect("options")
}

#[tokio::test]
async fn each_get_is_a_hit_or_a_miss_or_fails() {
    for (place, hit) in [(local as fn(&_) -> _, "hit_local"), (remote, "hit_store")] {
        let store = place(&MemoryStore::new(10));
        let cache: Cache<String, String> = cache(store.clone());
        assert_eq!(cache.get("1").await.unwrap(), None);
        cache.put("1", "Ada".to_owned()).await.unwrap();
        assert_eq!(cache.get("1").await.unwrap().as_deref(), Some("Ada"));
        store.on(Operation::Lookup).fail(UNREACHABLE);
        let failed = u64::from(cache.get("2").await.is_err());
        assert!(cache.get("x".repeat(2_000).as_str()).await.is_err());
        let stats = cache.stats();
        let counted: Vec<_> = stats.requests.by_name().filter(|(_, count)| *count > 0).collect();
        let missed = 2 - failed;
        let mut expected = vec![(hit, 1), ("missed", missed), ("failed_misuse", 1)];
        if failed > 0 {
            expected.push(("failed_store", failed));
        }
        expected.sort();
        let mut counted = counted;
        counted.sort();
        assert_eq!(counted, expected);
        assert_eq!(stats.requests.failed(), 1 + failed);
        assert_eq!(stats.loads.total(), 0);
        assert_eq!(stats.invalidations.put, 1);
    }
}

#[tokio::test]
async fn a_put_that_fails_is_a_failed_change() {
    let store = local(&MemoryStore::new(10));
    let cache: Cache<u64, String> = cache(store.clone());
    store.on(Operation::Commit).do_it_but_fail(UNREACHABLE);
    cache.put(1, "Ada".to_owned()).await.unwrap_err();
    let changes = cache.stats().invalidations;
    assert_eq!((changes.put, changes.failed), (0, 1));
}

#[tokio::test]
async fn a_get_and_a_load_of_one_key_count_apart() {
    let cache: Cache<u64, String> = cache(MemoryStore::new(10));
    let load = async || Ok::<_, Infallible>("Ada".to_owned());
    cache.get_or_load(1, load).await.unwrap();
    cache.get(1).await.unwrap();
    let requests = cache.stats().requests;
    assert_eq!((requests.led_stored, requests.hit_local, requests.total()), (1, 1, 2));
}
