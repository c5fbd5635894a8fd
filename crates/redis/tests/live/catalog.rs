//! A loader that counts, behind a layer over a Redis.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellwether::{CacheStatus, Error, Key, ReadThroughLayer};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::servers::RedisServer;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt, service_fn};

/// A loader that counts, behind a layer.
#[derive(Clone)]
pub(crate) struct Catalog {
    pub(crate) store: RedisStore,
    loads: Arc<AtomicUsize>,
    service: Cached,
}

type Cached =
    BoxCloneSyncService<u64, (Result<String, Error<Infallible>>, CacheStatus), Infallible>;

impl Catalog {
    pub(crate) async fn on(server: &RedisServer) -> Self {
        Self::over(options(server).connect().await.expect("a store"))
    }

    pub(crate) fn over(store: RedisStore) -> Self {
        Self::leasing(store, Duration::from_secs(10))
    }

    pub(crate) fn leasing(store: RedisStore, lease: Duration) -> Self {
        let loads = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&loads);
        let layer = ReadThroughLayer::builder(store.clone(), |sku: &u64| key(*sku))
            .ttl(Duration::from_secs(60))
            .lease(lease)
            .build()
            .expect("a lease")
            .layer(service_fn(move |sku: u64| {
                let load = counter.fetch_add(1, Ordering::SeqCst);
                async move { Ok::<_, Infallible>(format!("item {sku}, load {load}")) }
            }));
        let service = BoxCloneSyncService::new(service_fn(move |sku: u64| {
            let answer = layer.clone().call(sku).with_status();
            async move { Ok(answer.await) }
        }));
        Self { store, loads, service }
    }

    pub(crate) async fn ask(&self, sku: u64) -> String {
        self.ask_with_status(sku).await.0
    }

    pub(crate) async fn ask_with_status(&self, sku: u64) -> (String, CacheStatus) {
        let Ok((answer, status)) = self.service.clone().oneshot(sku).await;
        (answer.expect("an answer"), status)
    }

    pub(crate) fn loads(&self) -> usize {
        self.loads.load(Ordering::SeqCst)
    }
}

pub(crate) fn key(sku: u64) -> Key {
    Key::of("item").with(sku)
}

/// The name of an item's entry in Redis.
pub(crate) fn name(sku: u64) -> String {
    format!("bw:live:{{{}}}", key(sku).digest())
}

pub(crate) fn options(server: &RedisServer) -> RedisOptions {
    options_at(&server.url())
}

pub(crate) fn options_at(url: &str) -> RedisOptions {
    // Wide, so that a busy machine does not decide what a test shows. Without a memory for outages, whose
    // answers would hide what the server does: `outage/memory.rs` has its tests.
    RedisOptions::new(url, "live")
        .map(|options| options.timeout(Duration::from_secs(5)).outage_ttl(Duration::ZERO))
        .expect("options that make sense")
}
