//! The allocations of hits: on a copy in the near tier, and in Redis. It is a program of its own because its
//! allocator counts.

use std::convert::Infallible;
use std::time::Duration;

use allocation_counter::measure;
use bellwether::{Cache, Key, ReadThroughLayer};
use bellwether_redis::RedisOptions;
use bellwether_testkit::servers::RedisServer;
use futures_util::FutureExt;
use tokio::runtime::Builder;
use tower::{Layer, Service, service_fn};

const HITS: u64 = 100;

#[tokio::test]
async fn a_near_hit_allocates_its_key_and_its_answer() {
    let server = RedisServer::start();
    let options = RedisOptions::new(&server.url(), "test").expect("options");
    let store = options.near(1024 * 1024).connect().await.expect("a store");
    let mut catalog = ReadThroughLayer::builder(store, |sku: &u64| Key::of("item").with(*sku))
        .ttl(Duration::from_secs(60))
        .build()
        .unwrap()
        .layer(service_fn(|sku: u64| async move { Ok::<_, Infallible>(format!("item {sku}")) }));
    // Loads it, and then copies it.
    for _ in 0..2 {
        assert_eq!(catalog.call(1).await.expect("an answer"), "item 1");
    }
    let allocated = measure(|| {
        for _ in 0..HITS {
            let answer = catalog.call(1).now_or_never().expect("it is here");
            assert_eq!(answer.expect("an answer"), "item 1");
        }
    });
    assert_eq!(allocated.count_total, 2 * HITS);
    assert_eq!(allocated.count_current, 0);
}

/// With what the connection allocates for it, which are seven for a bare `GET`.
#[test]
fn a_hit_in_redis_allocates_at_most_twenty_times() {
    let server = RedisServer::start();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let options = RedisOptions::new(&server.url(), "test").expect("options");
    let store = runtime.block_on(options.connect()).expect("a store");
    let cache = Cache::<u64, String>::builder("item", store);
    let cache = cache.ttl(Duration::from_secs(60)).build().expect("a cache");
    let get = || {
        let loaded = cache.get_or_load(1, || async { Ok::<_, Infallible>("item 1".to_owned()) });
        assert_eq!(runtime.block_on(loaded).expect("an answer"), "item 1");
    };
    // Loads it, and then knows its hit.
    (0..2).for_each(|_| get());
    let allocated = measure(|| (0..HITS).for_each(|_| get()));
    // Now and then, a block of a channel is one more.
    assert!(allocated.count_total / HITS <= 20, "{} for {HITS} hits", allocated.count_total);
}
