//! Connecting to a cluster: what does not fit is named.

use std::time::Duration;

use bellwether::store::StoreErrorKind;
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::{RedisCluster, RedisServer, free_port};

use super::{connect, fill, found};
use crate::catalog::{key, options_at};

#[tokio::test]
async fn seeds_that_do_not_answer_are_passed_over() {
    let cluster = RedisCluster::start();
    let [dead, port] = [free_port(), cluster.nodes()[1].port()];
    let seeds = format!("redis-cluster://127.0.0.1:{dead},127.0.0.1:{port}");
    let store = options_at(&seeds).connect().await.expect("a store");
    fill(&store, 1, "one").await;
    assert_eq!(found(&store, key(1)).await.as_deref(), Some("one"));
}

#[tokio::test]
async fn a_cluster_without_a_seed_that_answers_is_unreachable() {
    let seeds = format!("redis-cluster://127.0.0.1:{}", free_port());
    let error = options_at(&seeds).connect().await.expect_err("nothing listens");
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("which node owns which slots"), "{error}");
}

#[tokio::test]
async fn a_single_server_is_named_when_a_cluster_is_expected() {
    let server = RedisServer::start();
    let seed = format!("redis-cluster://127.0.0.1:{}", server.port());
    let error = options_at(&seed).connect().await.expect_err("it is no cluster");
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("use `redis://`"), "{error}");
}

#[tokio::test]
async fn slots_without_an_owner_are_named_on_connecting() {
    let node = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    node.command(&["CLUSTER", "ADDSLOTS", "1", "2", "3"]);
    let seed = format!("redis-cluster://127.0.0.1:{}", node.port());
    let error = options_at(&seed).connect().await.expect_err("it has few slots");
    assert_eq!(error.kind(), StoreErrorKind::NotReady, "{error}");
    assert!(error.to_string().contains("16381 slots"), "{error}");
}

#[tokio::test]
async fn a_store_that_connects_lazily_uses_the_cluster_once_it_is_there() {
    let node = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let seed = format!("redis-cluster://127.0.0.1:{}", node.port());
    let options = options_at(&seed).timeout(Duration::from_millis(100));
    let store = options.connect_lazily().expect("options");
    let error = store.find(key(1)).await.expect_err("no slot has an owner");
    assert_eq!(error.kind(), StoreErrorKind::NotReady, "{error}");
    node.own_all_slots();
    let began = std::time::Instant::now();
    while store.find(key(1)).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", store.find(key(1)).await);
    }
}

#[tokio::test]
async fn connecting_to_a_cluster_leaves_nothing_behind() {
    let cluster = RedisCluster::start();
    let _store = connect(&cluster).await;
    for node in cluster.nodes() {
        assert_eq!(node.command(&["DBSIZE"]), bellwether_testkit::servers::Reply::Integer(0));
    }
}
