//! Invalidations that a failover or a restart has lost are re-asserted.

use std::time::Duration;

use bellwether::Cache;
use bellwether_redis::RedisStore;
use bellwether_testkit::servers::{RedisCluster, RedisServer, Reply, SentinelFleet};
use bellwether_testkit::wait::{PATIENCE, until, within};
use tokio::time::sleep;

use super::{Of, find, found, invalidate, is_back, other, put};
use crate::catalog::{name, options_at};
use crate::near::near;

const BOTH: [Of; 2] = [Of::Keys, Of::Tags];

/// Whether a server, perhaps a replica in a cluster, has an item.
fn has(server: &RedisServer, sku: u64) -> bool {
    let mut connection = server.connect();
    connection.command(&["READONLY"]).expect("a node of a cluster");
    connection.command(&["EXISTS", &name(sku)]) == Ok(Reply::Integer(1))
}

/// Nothing of the item is served from now on, until the server says that there is none.
async fn is_gone(store: &RedisStore, sku: u64) {
    loop {
        match find(store, sku).await {
            Ok(None) => return,
            Ok(Some(old)) => panic!("item {sku} is served: {old}"),
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Cuts a replica off. It goes on when it is resumed, without what came in between.
fn cut_off(primary: &RedisServer, replica: &RedisServer) {
    replica.stop();
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
}

/// Sets the items as a replica has them, and then cuts it off.
async fn replicated(
    store: &RedisStore,
    primary: &RedisServer,
    replica: &RedisServer,
    skus: &[u64],
) {
    for sku in skus {
        put(store, *sku, "old").await;
        assert_eq!(found(store, *sku).await.as_deref(), Some("old"));
    }
    primary.command(&["SET", "bw:live:marker", "1"]);
    until("the replica has all", || has_marker(replica)).await;
    cut_off(primary, replica);
}

fn has_marker(replica: &RedisServer) -> bool {
    replica.command(&["EXISTS", "bw:live:marker"]) == Reply::Integer(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalidation_that_a_sentinel_failover_lost_is_re_asserted_before_a_read() {
    for is_near in [false, true] {
        let mut fleet = SentinelFleet::start().await;
        let options = options_at(&fleet.url());
        let options = if is_near { near(options) } else { options };
        let store = options.connect().await.expect("a store");
        let forgetful = options_at(&fleet.url()).reassert_window(Duration::ZERO);
        let forgetful = forgetful.connect().await.expect("another process");
        replicated(&store, &fleet.primary, &fleet.replica, &[0, 1, 2]).await;
        for (sku, of) in (0..).zip(BOTH) {
            invalidate(&store, sku, of).await.expect("the primary has it");
        }
        invalidate(&forgetful, 2, Of::Keys).await.expect("the primary has it");
        fleet.primary.kill();
        fleet.replica.resume();
        fleet.replica_is_named().await;
        for sku in [0, 1] {
            is_gone(&store, sku).await;
        }
        assert!(store.stats().replay.reasserted >= 2);
        // The failover has lost what no process has repeated.
        is_back(&forgetful).await;
        assert_eq!(found(&forgetful, 2).await.as_deref(), Some("old"));
        for sku in [0, 1] {
            assert_eq!(found(&forgetful, sku).await, None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalidation_that_a_promotion_in_a_cluster_lost_is_re_asserted_before_a_read() {
    let mut cluster = RedisCluster::start();
    let store = options_at(&cluster.url()).connect().await.expect("a store");
    let owner = cluster.owner(&name(1));
    let replica = cluster.replica_of(owner);
    let [primary, promoted] = [owner, replica].map(|node| &cluster.nodes()[node]);
    put(&store, 1, "old").await;
    until("the replica has it", || has(promoted, 1)).await;
    cut_off(primary, promoted);
    invalidate(&store, 1, Of::Keys).await.expect("the primary has it");
    cluster.node_mut(owner).kill();
    cluster.nodes()[replica].resume();
    let role = || cluster.nodes()[replica].info("replication", "role");
    within(PATIENCE, || role().as_deref() == Some("master")).await;
    assert!(has(&cluster.nodes()[replica], 1), "it was not lost");
    is_gone(&store, 1).await;
    assert!(store.stats().replay.reasserted >= 1);
    assert!(!has(&cluster.nodes()[replica], 1));
}

/// The value itself is lost, and is loaded again.
#[tokio::test]
async fn a_put_that_a_restart_lost_brings_no_older_value_back() {
    let mut server = RedisServer::start();
    let store = options_at(&server.url()).connect().await.expect("a store");
    let items = Cache::<u64, u64>::builder("item", store.clone()).ttl(Duration::from_secs(60));
    let items = items.build().expect("a cache");
    items.put(1, 1).await.expect("stored");
    server.command(&["SAVE"]);
    items.put(1, 2).await.expect("stored");
    server.restart();
    loop {
        match items.get(1).await {
            Ok(None) => break,
            Ok(Some(old)) => panic!("{old} is served"),
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
    assert!(store.stats().replay.reasserted >= 1);
}

/// A server that has forgotten what came after its snapshot.
async fn restarted(server: &mut RedisServer, store: &RedisStore) {
    for sku in [0, 1] {
        put(store, sku, "old").await;
        assert_eq!(found(store, sku).await.as_deref(), Some("old"));
    }
    server.command(&["SAVE"]);
    for (sku, of) in (0..).zip(BOTH) {
        invalidate(store, sku, of).await.expect("invalidated");
    }
    server.restart();
}

#[tokio::test]
async fn an_invalidation_that_a_restart_lost_is_re_asserted_before_a_read() {
    for is_near in [false, true] {
        let mut server = RedisServer::start();
        let options = options_at(&server.url());
        let options = if is_near { near(options) } else { options };
        let store = options.connect().await.expect("a store");
        restarted(&mut server, &store).await;
        for sku in [0, 1] {
            is_gone(&store, sku).await;
        }
        let other = other(&server).await;
        until("all is replayed", || store.stats().replay.pending == 0).await;
        for sku in [0, 1] {
            assert_eq!(found(&other, sku).await, None);
        }
    }
}

#[tokio::test]
async fn without_a_window_nothing_is_re_asserted() {
    let mut server = RedisServer::start();
    let options = options_at(&server.url()).reassert_window(Duration::ZERO);
    let store = options.connect().await.expect("a store");
    restarted(&mut server, &store).await;
    is_back(&store).await;
    assert_eq!(found(&store, 1).await.as_deref(), Some("old"));
    assert_eq!(store.stats().replay.reasserted, 0);
}
