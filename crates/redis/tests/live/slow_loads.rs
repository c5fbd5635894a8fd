//! Loads that take longer than callers usually wait.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bellwether::{Key, ReadThroughLayer};
use bellwether_redis::RedisOptions;
use bellwether_testkit::servers::RedisServer;
use futures_util::future::join_all;
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};

use crate::catalog::key;

const LOAD: Duration = Duration::from_secs(7);

/// Two processes' worth of callers, each with connections of its own, and all defaults but for a
/// lease that is much shorter than the load.
#[tokio::test(flavor = "multi_thread")]
async fn callers_in_two_processes_share_one_load_of_seven_seconds() {
    let server = RedisServer::start();
    let loads = Arc::new(AtomicUsize::new(0));
    let process = async || {
        let store = RedisOptions::new(&server.url(), "test").expect("an address").connect().await;
        let loads = Arc::clone(&loads);
        let key_of: fn(&u64) -> Key = |sku| key(*sku);
        ReadThroughLayer::builder(store.expect("a store"), key_of)
            .ttl(Duration::from_secs(60))
            .lease(Duration::from_secs(2))
            .build()
            .expect("a lease")
            .layer(service_fn(move |_: u64| {
                let load = loads.fetch_add(1, Ordering::SeqCst);
                async move {
                    sleep(LOAD).await;
                    Ok::<_, Infallible>(load)
                }
            }))
    };
    let fleet = [process().await, process().await];
    let began = Instant::now();
    let asked = fleet.iter().flat_map(|service| (0..5).map(|_| service.clone().oneshot(1)));
    for answer in join_all(asked).await {
        assert_eq!(answer.expect("an answer"), 0);
    }
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    println!("ten callers were answered {:?} after the load", began.elapsed() - LOAD);
}
