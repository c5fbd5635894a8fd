//! The allocations of a hit on a copy in the near tier. It is a program of its own because its
//! allocator counts.

use std::convert::Infallible;
use std::time::Duration;

use allocation_counter::measure;
use bellwether::{Key, ReadThroughLayer};
use bellwether_redis::RedisOptions;
use bellwether_testkit::servers::RedisServer;
use futures_util::FutureExt;
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
