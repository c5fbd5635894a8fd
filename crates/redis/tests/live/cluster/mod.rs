//! The store on a cluster: what it promises on one server, through redirections and lost nodes.

mod contract;
mod encrypted;
mod failover;
mod load;
mod near;
mod redirections;
mod rights;
mod start;

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Draft, Settled, Store, Value};
use bellwether::{Key, Lifetimes};
use bellwether_redis::RedisStore;
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::RedisCluster;

use crate::catalog::{key, name, options_at};

const MINUTE: Duration = Duration::from_secs(60);

/// A store that discovers the cluster by one of its nodes.
async fn connect(cluster: &RedisCluster) -> RedisStore {
    let seed = format!("redis-cluster://127.0.0.1:{}", cluster.nodes()[0].port());
    options_at(&seed).connect().await.expect("a store")
}

/// The slot of the names of an item.
fn slot(cluster: &RedisCluster, sku: u64) -> i64 {
    cluster.slot(&name(sku))
}

/// Items by the nodes that own them.
fn by_owner(
    cluster: &RedisCluster,
    skus: impl IntoIterator<Item = u64>,
) -> BTreeMap<usize, Vec<u64>> {
    let mut by_owner = BTreeMap::<usize, Vec<u64>>::new();
    for sku in skus {
        by_owner.entry(cluster.owner(&name(sku))).or_default().push(sku);
    }
    by_owner
}

/// An item that a node owns.
fn owned_by(cluster: &RedisCluster, node: usize) -> u64 {
    (0..).find(|sku| cluster.owner(&name(*sku)) == node).expect("an item")
}

/// Loads an item without a layer.
async fn fill(store: &RedisStore, sku: u64, text: &str) {
    let claim = Claim::new(key(sku));
    let acquired = store.acquire(claim, MINUTE, Accept::Nothing).await.expect("an answer");
    let Acquire::Lead { lease, .. } = acquired else { panic!("no lease: {acquired:?}") };
    let value = Value::new(text.to_owned().into_bytes().into());
    let draft = Draft::new(value, 1, Lifetimes::fresh_for(MINUTE));
    assert_eq!(store.commit(lease, draft).await.expect("an answer"), Settled::Done);
}

/// The text that is stored for an item.
async fn found(store: &RedisStore, key: Key) -> Option<String> {
    let entry = store.find(key).await.expect("an answer")?;
    Some(String::from_utf8(entry.value().encoded().to_vec()).expect("a text"))
}
