//! The contract of stores on a cluster, and batches.

use bellwether_redis::RedisStore;
use bellwether_test::conformance;
use bellwether_testkit::servers::{RedisCluster, RedisServer};
use futures_util::future::join_all;

use super::{connect, fill, found};
use crate::catalog::{Catalog, key, options_at};

#[tokio::test]
async fn redis_store_keeps_the_contract_on_a_cluster() {
    let cluster = RedisCluster::start();
    let store = connect(&cluster).await;
    assert!(store.stats().is_subscribed);
    assert_eq!(conformance::run(store).await, []);
}

#[tokio::test]
async fn redis_store_keeps_the_contract_on_a_cluster_over_resp2() {
    let cluster = RedisCluster::start();
    let store = options_at(&cluster.url()).resp2().connect().await.expect("a store");
    assert!(store.stats().is_subscribed);
    assert_eq!(conformance::run(store).await, []);
}

/// How often a node has executed a command.
fn calls(node: &RedisServer, command: &str) -> u64 {
    let calls = node.info("commandstats", &format!("cmdstat_{command}"));
    let calls = calls.as_deref().and_then(|calls| calls.strip_prefix("calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

async fn fill_all(store: &RedisStore, skus: std::ops::Range<u64>) {
    join_all(skus.map(|sku| async move { fill(store, sku, &sku.to_string()).await })).await;
}

#[tokio::test]
async fn lookups_of_many_keys_are_answered_from_all_nodes() {
    let cluster = RedisCluster::start();
    let store = connect(&cluster).await;
    fill_all(&store, 0..300).await;
    let seen = join_all((0..400).map(|sku| found(&store, key(sku)))).await;
    let expected = (0..400).map(|sku: u64| (sku < 300).then(|| sku.to_string()));
    assert!(seen.into_iter().eq(expected));
    let asked = cluster.nodes().iter().filter(|node| calls(node, "mget") > 0);
    assert_eq!(asked.count(), 3, "the three primaries");
}

#[tokio::test]
async fn hits_with_stale_windows_are_answered_from_all_nodes() {
    let cluster = RedisCluster::start();
    let catalog = Catalog::over(connect(&cluster).await);
    let ask_all = || join_all((0..100).map(|sku| catalog.ask(sku)));
    let loaded = ask_all().await;
    assert_eq!(ask_all().await, loaded);
    assert_eq!(catalog.loads(), 100);
}

#[tokio::test]
async fn a_script_that_a_node_has_forgotten_is_sent_as_text() {
    let cluster = RedisCluster::start();
    let store = connect(&cluster).await;
    for node in cluster.nodes() {
        node.command(&["SCRIPT", "FLUSH"]);
    }
    fill_all(&store, 0..30).await;
    assert_eq!(found(&store, key(7)).await.as_deref(), Some("7"));
}
