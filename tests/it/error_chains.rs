//! The chain of an error leads to its cause.

use std::io;

use bellwether::store::StoreErrorKind;
use bellwether::{
    BoxError, Cache, CacheError, CacheErrorKind, ConfigError, Error, MemoryStore, SharedError,
    StoreError, WhenStoreFails,
};
use bellwether_redis::RedisStore;
use bellwether_test::faulty::{FaultyStore, Operation};
use bellwether_testkit::caches::{SECOND, key, layer};
use bellwether_testkit::error_chain::find_in_chain;
use bellwether_testkit::loaders::{Loader, Refusal};
use tower::timeout::error::Elapsed;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

#[tokio::test(start_paused = true)]
async fn the_source_of_a_failed_load_is_the_error_of_the_loader() {
    let loader = service_fn(async |_: u64| Err::<usize, _>(Refusal(7)));
    let error =
        layer(MemoryStore::new(10)).build().unwrap().layer(loader).call(1).await.unwrap_err();
    assert_eq!(find_in_chain(&error), Some(&Refusal(7)));
    assert_eq!(error.load(), Some(&Refusal(7)));
}

#[tokio::test(start_paused = true)]
async fn the_chain_of_a_failed_load_goes_on_below_a_boxed_error() {
    let loader = ServiceBuilder::new().timeout(SECOND).service(Loader::gated());
    let error =
        layer(MemoryStore::new(10)).build().unwrap().layer(loader).oneshot(1).await.unwrap_err();
    assert!(find_in_chain::<Elapsed>(&error).is_some(), "{error:?}");

    let loader = service_fn(async |_: u64| {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        Err::<usize, BoxError>(Box::new(Around(refused)))
    });
    let error =
        layer(MemoryStore::new(10)).build().unwrap().layer(loader).call(1).await.unwrap_err();
    let cause = find_in_chain::<io::Error>(&error).expect("the cause of the cause");
    assert_eq!(cause.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test(start_paused = true)]
async fn the_chain_of_a_failed_batch_ends_with_the_error_of_its_loader() {
    let cache = Cache::builder("item", MemoryStore::new(10)).ttl(SECOND).build().unwrap();
    let load = async |_: Vec<u64>| Err::<Vec<Result<usize, _>>, _>(Refusal(7));
    for error in cache.get_or_load_many([1, 2], load).await {
        let error = error.unwrap_err();
        assert_eq!(error.load(), Some(&Refusal(7)));
        assert_eq!(find_in_chain(&error), Some(&Refusal(7)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_source_of_a_cache_error_is_the_error_of_the_store() {
    let store = FaultyStore::new(MemoryStore::new(10));
    store.on(Operation::Acquire).fail(StoreErrorKind::Refused);
    store.on(Operation::Invalidate).fail(StoreErrorKind::TimedOut);
    let layer = layer(store).when_store_fails(WhenStoreFails::Fail).build().unwrap();
    let error = layer.layer(Loader::new()).call(1).await.unwrap_err();
    let kind = |error| find_in_chain::<StoreError>(error).map(StoreError::kind);
    assert_eq!(kind(&error), Some(StoreErrorKind::Refused));
    let error = layer.handle().invalidate(&key(1)).await.unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::TimedOut));
}

#[test]
fn the_cause_that_a_store_or_an_adapter_gives_is_the_source() {
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let store = StoreError::new(StoreErrorKind::Unreachable, "no").with_source(refused());
    assert!(find_in_chain::<io::Error>(&store).is_some());
    let cache = CacheError::new(CacheErrorKind::Contended, "no").with_source(store);
    assert!(find_in_chain::<io::Error>(&cache).is_some());
    let error: Error<Refusal> = cache.into();
    assert!(find_in_chain::<io::Error>(&error).is_some());
}

#[tokio::test(start_paused = true)]
async fn the_source_of_a_load_that_an_adapter_ended_is_an_error_of_the_cache() {
    let loader = service_fn(async |_: u64| {
        Err::<usize, BoxError>(CacheError::new(CacheErrorKind::LoadTimedOut, "late").into())
    });
    let error =
        layer(MemoryStore::new(10)).build().unwrap().layer(loader).call(1).await.unwrap_err();
    assert!(matches!(error, Error::Cache(_)), "{error:?}");
    let cache = find_in_chain::<CacheError>(&error).expect("the error of the cache");
    assert_eq!(cache.kind(), CacheErrorKind::LoadTimedOut);
}

#[tokio::test]
async fn the_source_of_a_store_error_is_what_was_wrong_with_its_options_or_its_connection() {
    let error = RedisStore::connect("http://localhost", "test").await.unwrap_err();
    assert!(matches!(find_in_chain(&error), Some(ConfigError::Url { .. })), "{error:?}");
    let error = RedisStore::connect("redis://127.0.0.1:1", "test").await.unwrap_err();
    assert!(find_in_chain::<redis::RedisError>(&error).is_some(), "{error:?}");
}

#[test]
fn callers_that_share_an_error_can_tell() {
    let first = SharedError::new(Refusal(1));
    assert!(first.ptr_eq(&first.clone()) && !first.ptr_eq(&SharedError::new(Refusal(1))));
    assert_eq!(first.to_string(), "load 1 was refused");
}

/// An error with a cause.
#[derive(Debug)]
struct Around(io::Error);

impl std::fmt::Display for Around {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the query failed")
    }
}

impl std::error::Error for Around {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}
