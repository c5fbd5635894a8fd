//! Nodes that hand over, die, hang or give slots away, while callers ask.

use std::time::{Duration, Instant};

use bellwether::store::StoreErrorKind;
use bellwether_redis::RedisStore;
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::RedisCluster;
use bellwether_testkit::wait::within;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::load::Load;
use super::{by_owner, connect, fill, found, owned_by, slot};
use crate::catalog::{key, options_at};

const PATIENCE: Duration = Duration::from_secs(30);

async fn two_processes(cluster: &RedisCluster) -> [RedisStore; 2] {
    [connect(cluster).await, connect(cluster).await]
}

async fn store_with_timeout(cluster: &RedisCluster, timeout: Duration) -> RedisStore {
    let options = options_at(&cluster.url()).timeout(timeout);
    options.connect().await.expect("a store")
}

#[tokio::test(flavor = "multi_thread")]
async fn planned_failovers_under_load_fail_no_request_and_load_no_key_twice() {
    let cluster = RedisCluster::start();
    let load = Load::begin(two_processes(&cluster).await);
    load.goes_on_for(500).await;
    for primary in 0..3 {
        cluster.fail_over(primary);
        load.goes_on_for(500).await;
    }
    load.end().await.all_by_the_cache();
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_under_load_fail_no_request_and_load_no_key_twice() {
    let cluster = RedisCluster::start();
    let load = Load::begin(two_processes(&cluster).await);
    load.goes_on_for(2_000).await;
    for sku in by_owner(&cluster, 0..60).remove(&0).expect("items") {
        cluster.move_slot(slot(&cluster, sku), 1);
        load.goes_on_for(20).await;
    }
    load.end().await.all_by_the_cache();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_is_replaced_and_others_fail_only_while_the_cluster_is_down() {
    let mut cluster = RedisCluster::start();
    let store = store_with_timeout(&cluster, Duration::from_millis(500)).await;
    let items = by_owner(&cluster, 0..60);
    join_all((0..60).map(|sku| fill(&store, sku, "x"))).await;
    let replica = cluster.replica_of(0);
    cluster.node_mut(0).kill();
    let promoted = async {
        let is_primary = || cluster.nodes()[replica].info("replication", "role");
        within(PATIENCE, || is_primary().as_deref() == Some("master")).await;
        Instant::now()
    };
    let others = async {
        let others: Vec<_> = items[&1].iter().chain(&items[&2]).collect();
        let lost = items[&0][0];
        loop {
            for sku in &others {
                if let Err(error) = store.find(key(**sku)).await {
                    assert!(error.to_string().contains("CLUSTERDOWN"), "{error}");
                }
            }
            if found_again(&store, lost).await {
                return Instant::now();
            }
        }
    };
    let (promoted, used) = tokio::join!(promoted, others);
    let after = used.saturating_duration_since(promoted);
    println!("used again {after:?} after the promotion");
    assert!(after < Duration::from_secs(5), "{after:?}");
    assert!(!store.is_down());
}

async fn found_again(store: &RedisStore, sku: u64) -> bool {
    sleep(Duration::from_millis(1)).await;
    matches!(store.find(key(sku)).await, Ok(Some(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_hangs_delays_no_request_to_others() {
    let cluster = RedisCluster::start();
    let timeout = Duration::from_secs(2);
    let store = store_with_timeout(&cluster, timeout).await;
    let items = by_owner(&cluster, 0..60);
    join_all((0..60).map(|sku| fill(&store, sku, "x"))).await;
    // A batch of all keys, and keys of others alone, while one primary and one replica hang.
    cluster.nodes()[cluster.replica_of(1)].stop();
    cluster.nodes()[0].stop();
    let asked_at = Instant::now();
    let lookups = (0..60).map(|sku| {
        let store = &store;
        async move { (sku, store.find(key(sku)).await, asked_at.elapsed()) }
    });
    let mut longest = Duration::ZERO;
    for (sku, looked, after) in join_all(lookups).await {
        if !items[&0].contains(&sku) && looked.is_ok() {
            longest = longest.max(after);
        }
    }
    cluster.nodes()[0].resume();
    println!("the others were answered within {longest:?}");
    assert!(longest < timeout / 2, "{longest:?} of {timeout:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_is_used_again_when_it_is_back() {
    let mut cluster = RedisCluster::start();
    let store = store_with_timeout(&cluster, Duration::from_millis(300)).await;
    let sku = owned_by(&cluster, 1);
    fill(&store, sku, "x").await;
    // Without a replica, no node takes the slots of node 0: all nodes refuse requests.
    let replica = cluster.replica_of(0);
    cluster.node_mut(replica).kill();
    cluster.node_mut(0).kill();
    let is_refused = || async {
        let error = store.find(key(sku)).await.err()?;
        // On a busy machine, an answer may also be late.
        let kinds = [StoreErrorKind::NotReady, StoreErrorKind::Down];
        kinds.contains(&error.kind()).then_some(error)
    };
    let began = Instant::now();
    while is_refused().await.is_none() {
        assert!(began.elapsed() < PATIENCE);
    }
    cluster.node_mut(0).restart();
    let began = Instant::now();
    while !found_again(&store, sku).await {
        assert!(began.elapsed() < PATIENCE);
    }
    assert_eq!(found(&store, key(sku)).await.as_deref(), Some("x"));
}
