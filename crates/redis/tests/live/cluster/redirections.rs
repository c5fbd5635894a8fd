//! Redirections: requests go to the nodes that serve them, while slots move and nodes are lost.

use std::time::{Duration, Instant};

use bellwether::store::{Accept, Acquire, Claim, Store, StoreErrorKind};
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::RedisCluster;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::{by_owner, connect, fill, found, owned_by, slot};
use crate::catalog::{key, name, options_at};

#[tokio::test]
async fn a_slot_that_has_moved_is_found_on_its_new_node() {
    let cluster = RedisCluster::start();
    let store = connect(&cluster).await;
    let sku = owned_by(&cluster, 0);
    fill(&store, sku, "moved").await;
    cluster.move_slot(slot(&cluster, sku), 1);
    assert_eq!(cluster.owner(&name(sku)), 1);
    assert_eq!(found(&store, key(sku)).await.as_deref(), Some("moved"));
    store.invalidate(key(sku)).await.expect("an answer");
    assert_eq!(found(&store, key(sku)).await, None);
}

#[tokio::test]
async fn names_of_a_slot_that_is_moving_are_found_on_both_nodes() {
    let cluster = RedisCluster::start();
    let store = connect(&cluster).await;
    let sku = owned_by(&cluster, 0);
    fill(&store, sku, "here").await;
    let slot = slot(&cluster, sku);
    cluster.begin_to_move(slot, 2);
    assert_eq!(found(&store, key(sku)).await.as_deref(), Some("here"));
    while cluster.move_names(slot, 2, 10) > 0 {}
    assert_eq!(found(&store, key(sku)).await.as_deref(), Some("here"));
    let end_move = async {
        sleep(Duration::from_millis(200)).await;
        cluster.end_move(slot, 2);
    };
    // A script with several names waits for the end of the move.
    tokio::join!(fill(&store, sku, "there"), end_move);
    assert_eq!(found(&store, key(sku)).await.as_deref(), Some("there"));
}

#[tokio::test]
async fn other_requests_to_a_node_that_imports_a_slot_do_not_disturb_it() {
    let cluster = RedisCluster::start();
    let store = connect(&cluster).await;
    let moving = owned_by(&cluster, 0);
    let others = by_owner(&cluster, 0..200).remove(&1).expect("items");
    fill(&store, moving, "moving").await;
    let slot = slot(&cluster, moving);
    cluster.begin_to_move(slot, 1);
    while cluster.move_names(slot, 1, 10) > 0 {}
    for _ in 0..20 {
        let asked = join_all((0..16).map(|_| found(&store, key(moving))));
        let meanwhile = join_all(others.iter().map(|sku| found(&store, key(*sku))));
        let (asked, _) = tokio::join!(asked, meanwhile);
        assert!(asked.iter().all(|text| text.as_deref() == Some("moving")), "{asked:?}");
    }
    cluster.end_move(slot, 1);
}

/// `TRYAGAIN`: the entry has moved, and the lease has not.
#[tokio::test]
async fn a_request_to_a_key_that_has_moved_in_part_waits_for_the_rest() {
    let cluster = RedisCluster::start();
    let store = connect(&cluster).await;
    let sku = owned_by(&cluster, 0);
    let claim = Claim::new(key(sku));
    fill(&store, sku, "old").await;
    let term = Duration::from_secs(60);
    let acquired = store.acquire(claim.clone(), term, Accept::Nothing).await.expect("an answer");
    assert!(matches!(acquired, Acquire::Lead { .. }));
    let slot = slot(&cluster, sku);
    cluster.begin_to_move(slot, 1);
    assert!(cluster.move_names(slot, 1, 1) > 0);
    let move_the_rest = async {
        sleep(Duration::from_millis(200)).await;
        while cluster.move_names(slot, 1, 1) > 0 {}
        cluster.end_move(slot, 1);
    };
    let other = store.acquire(Claim::new(key(sku)), term, Accept::Nothing);
    let (other, ()) = tokio::join!(other, move_the_rest);
    assert!(matches!(other, Ok(Acquire::Busy { .. })), "{other:?}");
    store.abandon(claim).await.expect("an answer");
}

#[tokio::test]
async fn of_a_batch_over_three_nodes_only_the_keys_of_the_dead_one_fail() {
    let mut cluster = RedisCluster::start();
    let store = connect(&cluster).await;
    let items = by_owner(&cluster, 0..120);
    join_all((0..120).map(|sku| fill(&store, sku, "x"))).await;
    cluster.node_mut(2).kill();
    let began = Instant::now();
    let lookups = (0..120).map(|sku| {
        let lookup = store.find(key(sku));
        async move { (sku, lookup.await, began.elapsed()) }
    });
    for (sku, looked, after) in join_all(lookups).await {
        if items[&2].contains(&sku) {
            let kind = looked.expect_err("its node is dead").kind();
            assert!(matches!(kind, StoreErrorKind::Unreachable | StoreErrorKind::Down), "{kind:?}");
        } else {
            assert!(looked.expect("an answer").is_some());
            assert!(after < Duration::from_secs(4), "{after:?} is near the timeout of 5 s");
        }
    }
}

#[tokio::test]
async fn requests_that_nodes_send_in_circles_end_in_an_error() {
    let cluster = RedisCluster::start();
    let options = options_at(&cluster.url()).timeout(Duration::from_secs(1));
    let store = options.connect().await.expect("a store");
    let sku = owned_by(&cluster, 0);
    let slot = slot(&cluster, sku);
    // Node 1 serves names of the slot after `ASKING` only, and node 0 sends all to it.
    cluster.begin_to_move(slot, 1);
    let stable = ["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"];
    cluster.nodes()[1].command(&stable);
    let error = store.find(key(sku)).await.expect_err("no node serves it");
    assert_eq!(error.kind(), StoreErrorKind::NotReady, "{error}");
    assert!(error.to_string().contains("disagree"), "{error}");
    cluster.nodes()[0].command(&stable);
    assert_eq!(found(&store, key(sku)).await, None);
}
