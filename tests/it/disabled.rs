//! A cache that is off loads, and stores nothing; and what changes is still invalidated for the others.

use bellwether::stats::CacheStats;
use bellwether::store::Store;
use bellwether::{BypassReason, Cache, CacheStatus, MemoryStore, Tag};
use bellwether_testkit::caches::{
    Cached, MINUTE, answer, answers, ask, burst, cached, idle, key, layer, remembering_layer,
    settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tower::Layer;

use crate::support::store::{local, remote};

fn off(store: impl Store, loader: &Loader) -> Cached {
    layer(store).enabled(false).build().unwrap().layer(loader.clone())
}

#[tokio::test(start_paused = true)]
async fn each_call_loads_and_the_store_is_not_asked() {
    for place in [local, remote] {
        let memory = MemoryStore::new(10);
        let (store, loader) = (place(&memory), Loader::new());
        assert_eq!(answer(&cached(memory.clone(), &loader), 1).await, 1);
        let off = off(store.clone(), &loader);
        for number in 2..5 {
            let (answer, status) = ask(&off, 1).await.unwrap();
            assert_eq!(answer.unwrap(), number);
            assert_eq!(status, CacheStatus::Bypass(BypassReason::Disabled));
        }
        assert_eq!(store.total_calls(), 0);
        let CacheStats { requests, loads, leases, .. } = off.stats();
        assert_eq!((requests.bypassed_disabled, loads.disabled, leases.total()), (3, 3, 0));
        assert_eq!(off.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_shares_one_load() {
    let loader = Loader::pondering();
    let off = off(MemoryStore::new(10), &loader);
    let answers = answers(burst(&off, 1, 100)).await;
    assert_eq!((answers, loader.loads()), (vec![1; 100], 1));
}

/// The store is not asked, so an invalidation during the load is not noticed.
#[tokio::test(start_paused = true)]
async fn a_caller_shares_no_load_that_began_before_it_asked() {
    let loader = Loader::gated();
    let off = off(MemoryStore::new(10), &loader);
    let first = ask(&off, 1);
    loader.has_begun(1).await;
    let second = ask(&off, 1);
    idle().await;
    loader.let_go(2);
    assert_eq!(answers(vec![first, second]).await, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn what_it_invalidates_is_gone_for_processes_where_the_cache_is_on() {
    let (memory, loader) = (MemoryStore::new(10), Loader::new());
    let (on, off) = (cached(remote(&memory), &loader), off(memory.clone(), &loader));
    answer(&on, 1).await;
    assert!(off.handle().invalidate(&key(1)).await.unwrap());
    assert_eq!(answer(&on, 1).await, 2);
    assert!(off.handle().expire(&key(1)).await.unwrap());
    assert_eq!(answer(&on, 1).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_put_invalidates_and_a_get_finds_nothing() {
    let memory = MemoryStore::new(10);
    let [on, off] = [true, false].map(|on| -> Cache<u64, usize> {
        Cache::builder("item", memory.clone()).ttl(MINUTE).enabled(on).build().unwrap()
    });
    assert!(on.put(1, 7).await.unwrap());
    assert_eq!(off.get(1).await.unwrap(), None);
    assert!(!off.put(1, 8).await.unwrap());
    assert_eq!(on.get(1).await.unwrap(), None);

    let tag = Tag::of("shelf");
    assert!(on.tagged([tag.clone()]).put(2, 7).await.unwrap());
    off.invalidate_tag(&tag).await.unwrap();
    assert_eq!(on.get(2).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn no_failure_is_remembered() {
    let loader = Loader::new();
    let off = remembering_layer(MemoryStore::new(10)).enabled(false);
    let off = off.build().unwrap().layer(loader.clone());
    loader.ends_by(End::Fail);
    for _ in 0..4 {
        assert!(settled(vec![ask(&off, 1)]).await[0].0.is_err());
    }
    loader.ends_by(End::Answer);
    assert_eq!(answer(&off, 1).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_call_of_the_loader() {
    let items: Cache<u64, u64> =
        Cache::builder("item", MemoryStore::new(10)).ttl(MINUTE).enabled(false).build().unwrap();
    for _ in 0..2 {
        let load = async |keys: Vec<u64>| {
            assert_eq!(keys, [1, 2, 3]);
            Ok::<_, std::io::Error>(
                keys.into_iter().map(Ok::<_, std::io::Error>).collect::<Vec<_>>(),
            )
        };
        let answers = items.get_or_load_many([1, 2, 3], load).await;
        assert_eq!(answers.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
