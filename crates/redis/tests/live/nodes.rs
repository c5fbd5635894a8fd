//! The figures of each server: what it was sent, and what came of it.

use std::time::Duration;

use bellwether_redis::{RedisNodeStats, RedisStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::{RedisCluster, RedisServer, SentinelFleet};
use tokio::time::{sleep, timeout};

use crate::catalog::{key, name, options, options_at};

const MINUTE: Duration = Duration::from_secs(60);

/// The figures of a server.
fn of(store: &RedisStore, server: &RedisServer) -> Option<RedisNodeStats> {
    let address = format!("127.0.0.1:{}", server.port());
    store.stats().nodes.into_iter().find(|node| node.address == address)
}

/// Looks an item up until a condition holds.
async fn look_up_until(store: &RedisStore, sku: u64, holds: impl Fn() -> bool) {
    let looking_up = async {
        while !holds() {
            // It may fail while servers are replaced.
            _ = store.find(key(sku)).await;
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(MINUTE, looking_up).await.unwrap_or_else(|_| panic!("{:?}", store.stats()));
}

#[tokio::test]
async fn the_server_of_a_fixed_address_is_one_node() {
    let server = RedisServer::start();
    let store = options(&server).connect_lazily().expect("options");
    assert_eq!(of(&store, &server).expect("it is known before").connects, 0);
    store.find(key(1)).await.expect("an answer");
    let node = of(&store, &server).expect("a node");
    assert_eq!((node.requests, node.errors.total(), node.is_down), (1, 0, false), "{node:?}");
    assert!(node.connects >= 1, "{node:?}");
    assert_eq!(store.stats().nodes, [node]);
}

#[tokio::test]
async fn a_request_counts_for_the_node_that_it_was_sent_to() {
    const MANY: u64 = 50;
    let cluster = RedisCluster::start();
    let store = options_at(&cluster.url()).connect().await.expect("a store");
    let owner = cluster.owner(&name(1));
    let requests = || {
        let nodes = cluster.nodes().iter().map(|node| of(&store, node));
        nodes.map(|node| node.map_or(0, |node| node.requests)).collect::<Vec<_>>()
    };
    let before = requests();
    for _ in 0..MANY {
        store.find(key(1)).await.expect("an answer");
    }
    for (number, (before, after)) in before.into_iter().zip(requests()).enumerate() {
        let sent = after - before;
        assert_eq!(sent >= MANY, number == owner, "{sent} to {number}: {:?}", store.stats());
    }
}

#[tokio::test]
async fn a_node_that_is_not_there_is_down_by_its_own_figures() {
    let mut cluster = RedisCluster::start();
    let store = options_at(&cluster.url()).connect().await.expect("a store");
    let owner = cluster.owner(&name(1));
    // So that no other node takes its slots.
    let replica = cluster.replica_of(owner);
    cluster.node_mut(replica).kill();
    cluster.node_mut(owner).kill();
    let lost = |store: &RedisStore| of(store, &cluster.nodes()[owner]).expect("its figures");
    look_up_until(&store, 1, || lost(&store).is_down).await;
    let node = lost(&store);
    assert!(node.outages >= 1 && node.errors.unreachable >= 1, "{node:?}");
    for other in (0..6).filter(|other| ![owner, replica].contains(other)) {
        let other = of(&store, &cluster.nodes()[other]).unwrap_or_default();
        assert!(!other.is_down && other.errors.unreachable == 0, "{other:?}");
    }
}

#[tokio::test]
async fn a_slot_that_has_moved_is_a_redirection_by_its_former_owner() {
    let cluster = RedisCluster::start();
    let store = options_at(&cluster.url()).connect().await.expect("a store");
    let from = cluster.owner(&name(1));
    let to = (from + 1) % 3;
    store.find(key(1)).await.expect("an answer");
    cluster.move_slot(cluster.slot(&name(1)), to);
    store.find(key(1)).await.expect("an answer");
    let [former, owner] = [from, to].map(|node| of(&store, &cluster.nodes()[node]).expect("it"));
    assert_eq!((former.redirections, owner.redirections), (1, 0), "{former:?} {owner:?}");
    assert_eq!(former.errors.total(), 0, "{former:?}");
}

#[tokio::test]
async fn each_primary_that_sentinels_name_has_figures_of_its_own() {
    let fleet = SentinelFleet::start().await;
    let store = options_at(&fleet.url()).connect().await.expect("a store");
    store.find(key(1)).await.expect("an answer");
    assert!(of(&store, &fleet.primary).is_some_and(|node| node.requests >= 1));
    assert_eq!(of(&store, &fleet.replica), None);
    fleet.fail_over();
    fleet.replica_is_named().await;
    let requests = || of(&store, &fleet.replica).map_or(0, |node| node.requests);
    look_up_until(&store, 1, || requests() > 0).await;
    assert_eq!(of(&store, &fleet.primary), None);
}
