//! Invalidations that fail are repeated, and what they were of is not served meanwhile.

mod failing;
mod failover;
mod outage;
mod overflow;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Draft, Lease, Settled, Store, Tags, Value};
use bellwether::{Lifetimes, StoreError, Tag};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::servers::RedisServer;
use bellwether_testkit::wait::until;
use tokio::time::sleep;

use crate::catalog::{key, options_at};

const MINUTE: Duration = Duration::from_secs(60);

/// What is invalidated.
#[derive(Clone, Copy)]
enum Of {
    Keys,
    Tags,
}

/// A server, and a way to it that can be closed.
struct Site {
    server: RedisServer,
    proxy: FaultProxy,
}

impl Site {
    async fn start() -> Self {
        let server = RedisServer::start();
        let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        Self { proxy: FaultProxy::start(upstream).await, server }
    }

    /// Over the way that can be closed.
    fn options(&self) -> RedisOptions {
        options_at(&self.proxy.url())
    }

    async fn store(&self) -> RedisStore {
        self.options().connect().await.expect("a store")
    }

    async fn other(&self) -> RedisStore {
        other(&self.server).await
    }

    fn close(&self) {
        self.proxy.refuse();
        self.proxy.cut();
    }
}

async fn other(server: &RedisServer) -> RedisStore {
    options_at(&server.url()).connect().await.expect("another process")
}

fn tag(sku: u64) -> Tag {
    Tag::of("shelf").with(sku)
}

fn tags(sku: u64) -> Tags {
    Tags::new([tag(sku)]).expect("one tag")
}

async fn lease(store: &RedisStore, sku: u64) -> Lease {
    let claim = Claim::new(key(sku)).tagged(tags(sku));
    match store.acquire(claim, MINUTE, Accept::Nothing).await {
        Ok(Acquire::Lead { lease, .. }) => lease,
        other => panic!("no lease of {sku}, but {other:?}"),
    }
}

async fn commit(store: &RedisStore, lease: Lease, value: &'static str) -> Settled {
    let lifetimes = Lifetimes::fresh_for(MINUTE).stale_while_revalidate(MINUTE);
    store
        .commit(lease, Draft::new(Value::new(value.into()), 1, lifetimes))
        .await
        .expect("an answer")
}

async fn put(store: &RedisStore, sku: u64, value: &'static str) {
    let lease = lease(store, sku).await;
    assert_eq!(commit(store, lease, value).await, Settled::Done);
}

/// What a lookup finds, with the tag of the item.
async fn find(store: &RedisStore, sku: u64) -> Result<Option<String>, StoreError> {
    let found = store.lookup(key(sku), tags(sku)).await?;
    Ok(found.map(|entry| String::from_utf8_lossy(entry.value().encoded()).into_owned()))
}

async fn found(store: &RedisStore, sku: u64) -> Option<String> {
    find(store, sku).await.expect("an answer")
}

async fn invalidate(store: &RedisStore, sku: u64, of: Of) -> Result<(), StoreError> {
    match of {
        Of::Keys => store.invalidate(key(sku)).await.map(drop),
        Of::Tags => store.invalidate_tag(tag(sku)).await,
    }
}

/// Waits until the store is in use again, by an item that no test changes.
async fn is_back(store: &RedisStore) {
    while store.find(key(u64::MAX)).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
}

async fn is_replayed(store: &RedisStore) {
    until("all is replayed", || store.stats().replay.pending == 0).await;
}
