//! The contract of stores on a cluster, and batches.

use bellwether_test::conformance;
use bellwether_testkit::servers::RedisCluster;

use super::connect;
use crate::catalog::options_at;

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
