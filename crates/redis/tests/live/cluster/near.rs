//! Near copies of a cluster: they end when their slots do.

use std::time::{Duration, Instant};

use bellwether::store::{Peek, Store};
use bellwether_redis::RedisStore;
use bellwether_test::{StoreExt as _, conformance};
use bellwether_testkit::servers::RedisCluster;
use bellwether_testkit::wait::{until, within};

use super::{by_owner, fill, found, slot};
use crate::catalog::{key, options_at};

const MIB: usize = 1024 * 1024;

async fn near(cluster: &RedisCluster) -> RedisStore {
    let options = options_at(&cluster.url()).near(MIB);
    options.connect().await.expect("a store")
}

fn has_copy(store: &RedisStore, sku: u64) -> bool {
    matches!(store.peek(&key(sku)), Peek::Found(_))
}

/// Reads an item until there is a copy of it.
async fn copy(store: &RedisStore, sku: u64) {
    let began = Instant::now();
    while !has_copy(store, sku) {
        assert!(began.elapsed() < Duration::from_secs(30), "no copy of {sku}");
        found(store, key(sku)).await.expect("an item");
    }
}

/// Stores items, of which `store` then has copies.
async fn copies(cluster: &RedisCluster, store: &RedisStore, count: u64) -> Vec<Vec<u64>> {
    for sku in 0..count {
        fill(store, sku, "x").await;
    }
    for sku in 0..count {
        copy(store, sku).await;
    }
    by_owner(cluster, 0..count).into_values().collect()
}

#[tokio::test]
async fn redis_store_with_a_near_tier_keeps_the_contract_on_a_cluster() {
    let cluster = RedisCluster::start();
    assert_eq!(conformance::run(near(&cluster).await).await, []);
}

#[tokio::test]
async fn an_invalidation_ends_the_copies_of_other_processes_on_all_nodes() {
    let cluster = RedisCluster::start();
    let (here, there) = (near(&cluster).await, near(&cluster).await);
    let items = copies(&cluster, &there, 30).await;
    for sku in items.into_iter().flatten() {
        here.invalidate(key(sku)).await.expect("an answer");
        until("the copy ends", || !has_copy(&there, sku)).await;
        assert_eq!(found(&there, key(sku)).await, None);
    }
}

#[tokio::test]
async fn a_broken_connection_ends_the_copies_of_its_node_only() {
    let cluster = RedisCluster::start();
    let store = near(&cluster).await;
    let items = copies(&cluster, &store, 30).await;
    cluster.nodes()[1].command(&["CLIENT", "KILL", "TYPE", "normal"]);
    until("its copies end", || items[1].iter().all(|sku| !has_copy(&store, *sku))).await;
    for sku in items[0].iter().chain(&items[2]) {
        assert!(has_copy(&store, *sku), "{sku} is on another node");
    }
    copy(&store, items[1][0]).await;
}

#[tokio::test]
async fn a_slot_that_moves_ends_its_copies_only() {
    let cluster = RedisCluster::start();
    let (here, there) = (near(&cluster).await, near(&cluster).await);
    let items = copies(&cluster, &there, 30).await;
    let (moved, stays) = (items[0][0], items[0][1]);
    cluster.move_slot(slot(&cluster, moved), 2);
    until("its copy ends", || !has_copy(&there, moved)).await;
    assert!(has_copy(&there, stays));
    copy(&there, moved).await;
    here.invalidate(key(moved)).await.expect("an answer");
    until("the new copy ends", || !has_copy(&there, moved)).await;
}

/// Some servers do not report names that they drop with a slot.
#[tokio::test]
async fn copies_of_a_slot_that_is_taken_without_its_names_end_with_near_ttl() {
    let cluster = RedisCluster::start();
    let options = options_at(&cluster.url()).near(MIB).near_ttl(Duration::from_secs(1));
    let store = options.connect().await.expect("a store");
    fill(&store, 1, "x").await;
    copy(&store, 1).await;
    let taken = slot(&cluster, 1);
    let taker = &cluster.nodes()[(cluster.owner_of(taken) + 1) % 3];
    for verb in ["DELSLOTS", "ADDSLOTS"] {
        taker.command(&["CLUSTER", verb, &taken.to_string()]);
    }
    taker.command(&["CLUSTER", "BUMPEPOCH"]);
    until("its copy ends", || !has_copy(&store, 1)).await;
    assert_eq!(found(&store, key(1)).await, None);
}

/// The connection to the former primary stays open.
#[tokio::test]
async fn after_a_planned_failover_copies_end_with_their_entries() {
    let cluster = RedisCluster::start();
    let (here, there) = (near(&cluster).await, near(&cluster).await);
    let items = copies(&cluster, &there, 30).await;
    cluster.fail_over(0);
    for sku in &items[0] {
        here.invalidate(key(*sku)).await.expect("an answer");
        until("the copy ends", || !has_copy(&there, *sku)).await;
    }
    for sku in &items[0] {
        assert_eq!(found(&there, key(*sku)).await, None);
    }
}

/// It is not told that others may have taken its slots.
#[tokio::test]
async fn a_node_that_is_cut_off_ends_the_copies_of_its_slots() {
    let cluster = RedisCluster::start();
    let store = near(&cluster).await;
    let items = copies(&cluster, &store, 30).await;
    for (number, node) in cluster.nodes().iter().enumerate() {
        if number != 0 {
            node.stop();
        }
    }
    let is_down = || {
        let info = cluster.nodes()[0].command(&["CLUSTER", "INFO"]).text();
        info.contains("cluster_state:fail")
    };
    within(Duration::from_secs(30), is_down).await;
    // Read all the time, as callers do.
    let any_copy = || items[0].iter().any(|sku| has_copy(&store, *sku));
    let began = Instant::now();
    until("its copies end", || !any_copy()).await;
    println!("copies ended {:?} after the node noticed", began.elapsed());
}
