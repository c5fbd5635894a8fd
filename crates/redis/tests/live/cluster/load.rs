//! Callers that ask all the time, while something happens to the cluster.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::{CacheStatus, ReadThroughLayer};
use bellwether_redis::RedisStore;
use tokio::task::JoinSet;
use tower::{Layer, Service, service_fn};

use crate::catalog::key;

/// Callers of several processes that share a cluster.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    callers: JoinSet<()>,
    seen: Arc<Seen>,
}

/// What the callers have met.
#[derive(Debug, Default)]
pub(super) struct Seen {
    asked: AtomicU64,
    /// The key that is asked for next.
    next: AtomicU64,
    loads: Mutex<HashMap<u64, u64>>,
    /// Answers that did not come by the cache.
    bypasses: Mutex<Vec<(u64, CacheStatus)>>,
}

impl Load {
    /// Begins with 8 callers of each store. They ask for keys that were asked for before, and for
    /// keys that were not.
    pub(super) fn begin(stores: impl IntoIterator<Item = RedisStore>) -> Self {
        let seen = Arc::<Seen>::default();
        let is_over = Arc::<AtomicBool>::default();
        let mut callers = JoinSet::new();
        for store in stores {
            let loads = Arc::clone(&seen);
            let load = service_fn(move |sku: u64| {
                *loads.loads.lock().unwrap().entry(sku).or_default() += 1;
                async move { Ok::<_, Infallible>(format!("item {sku}")) }
            });
            let layer = ReadThroughLayer::builder(store, |sku: &u64| key(*sku));
            let layer = layer.ttl(Duration::from_secs(600)).build().unwrap().layer(load);
            for _ in 0..8 {
                let mut catalog = layer.clone();
                let (seen, is_over) = (Arc::clone(&seen), Arc::clone(&is_over));
                callers.spawn(async move {
                    while !is_over.load(Ordering::Relaxed) {
                        let turn = seen.asked.fetch_add(1, Ordering::Relaxed);
                        let newest = seen.next.load(Ordering::Relaxed);
                        let sku = if turn % 4 == 0 {
                            seen.next.fetch_add(1, Ordering::Relaxed)
                        } else {
                            turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (newest + 1)
                        };
                        let (answer, status) = catalog.call(sku).with_status().await;
                        assert_eq!(answer.expect("an answer"), format!("item {sku}"));
                        if matches!(status, CacheStatus::Bypass(_)) {
                            seen.bypasses.lock().unwrap().push((sku, status));
                        }
                    }
                });
            }
        }
        Self { is_over, callers, seen }
    }

    /// Waits until the callers have asked so many times more.
    pub(super) async fn goes_on_for(&self, times: u64) {
        let until = self.seen.asked.load(Ordering::Relaxed) + times;
        let has_asked = || self.seen.asked.load(Ordering::Relaxed) >= until;
        bellwether_testkit::wait::until("the callers go on", has_asked).await;
    }

    /// Ends it. Panics if any caller was not answered.
    pub(super) async fn end(self) -> Arc<Seen> {
        self.is_over.store(true, Ordering::Relaxed);
        self.callers.join_all().await;
        self.seen
    }
}

impl Seen {
    /// Asserts that all answers came by the cache, and that each key was loaded once.
    pub(super) fn all_by_the_cache(&self) {
        let bypasses = self.bypasses.lock().unwrap();
        assert!(bypasses.is_empty(), "{:?} of {bypasses:?}", bypasses.len());
        let loads = self.loads.lock().unwrap();
        let twice: Vec<_> = loads.iter().filter(|(_, loads)| **loads != 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        println!("{} requests, {} loads", self.asked.load(Ordering::Relaxed), loads.len());
    }
}
