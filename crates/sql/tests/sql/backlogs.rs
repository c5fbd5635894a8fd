//! While many rows wait, nothing else does.

use std::time::Duration;

use bellwether_redis::RedisStore;
use bellwether_testkit::servers::{RedisCluster, RedisServer};
use bellwether_testkit::wait::{PATIENCE, until};
use tokio::time::{sleep, timeout};

use crate::place::{Place, cache, fill, stored};

/// Writes so many rows of keys at once, with what the stores have of them.
async fn write(place: &Place, keys: u32, reached: &str) {
    let rows = format!(
        "INSERT INTO bellwether_changes (target, name, parts, reached)
        SELECT 'key', 'item', jsonb_build_array(key), '{reached}' FROM generate_series(1, {keys}) AS key"
    );
    place.run(&rows).await;
}

/// Waits until a query gives zero.
async fn none(place: &Place, query: &str) {
    while place.value(query).await > 0 {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Writers are as fast as the follower. It deletes what is old, says that it is there, applies again what a failover may
/// have lost, tells how long the oldest row has waited, and stops when it is told to.
#[tokio::test]
async fn a_backlog_without_an_end_holds_up_nothing_that_is_due() {
    let place = Place::start().await;
    write(&place, 20_000, "").await;
    let follower = place.follower().cache(&place.items).retain(Duration::from_secs(4));
    let follower = follower.start().await.expect("a follower");
    until("it has begun", || follower.stats().applied > 0).await;
    let old = "INSERT INTO bellwether_changes (target, name, parts, applied_at)
        VALUES ('key', 'item', '[0]', clock_timestamp() - interval '1 hour')";
    place.run(old).await;
    place.run("UPDATE bellwether_caches SET seen_at = seen_at - interval '23 hours'").await;
    place.redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let writers = async {
        loop {
            if place.pending().await < 10_000 {
                write(&place, 20_000, "").await;
            }
        }
    };
    let is_due = async {
        none(&place, "SELECT count(*) FROM bellwether_changes WHERE parts = '[0]'").await;
        let silent = "SELECT count(*) FROM bellwether_caches WHERE seen_at < clock_timestamp() - interval '22 hours'";
        none(&place, silent).await;
        until("it applies again", || follower.stats().reapplied > 0).await;
        until("it counts", || follower.stats().oldest > Duration::ZERO).await;
    };
    tokio::select! {
        () = writers => {}
        done = timeout(PATIENCE / 4, is_due) => done.expect("it does what is due"),
    }
    write(&place, 20_000, "").await;
    follower.shutdown().await;
    assert!(place.pending().await > 0);
}

#[tokio::test]
async fn a_region_that_catches_up_holds_up_no_other() {
    let place = Place::start().await;
    let abroad = RedisServer::start();
    let store = RedisStore::connect(&abroad.url(), "shop").await.expect("the store");
    fill(&place.items, 0, 1).await;
    write(&place, 30_000, "0").await;
    place.run("SELECT bellwether_invalidate('item', 0)").await;
    let follower = place.follower().also(store).cache(&place.items).start().await;
    let _follower = follower.expect("a follower");
    while stored(&place.items, 0).await.is_some() {}
    assert!(place.pending().await > 1_000);
    place.applied().await;
}

/// B was down when rows were made, and then C, too. C is back.
#[tokio::test]
async fn a_region_that_is_down_does_not_hold_up_what_another_one_lacks() {
    let place = Place::start().await;
    let (mut b, c) = (RedisServer::start(), RedisServer::start());
    let store_b = RedisStore::connect(&b.url(), "shop").await.expect("the store");
    let store_c = RedisStore::connect(&c.url(), "shop").await.expect("the store");
    let items_c = cache("item", &store_c);
    fill(&items_c, 0, 1).await;
    b.kill();
    write(&place, 3_000, "0,2").await;
    let lacks_both = "INSERT INTO bellwether_changes (target, name, parts, reached) VALUES ('key', 'item', '[0]', '0')";
    place.run(lacks_both).await;
    let follower = place.follower().also(store_b).also(store_c).cache(&place.items);
    let _follower = follower.start().await.expect("a follower");
    let applied = async { while stored(&items_c, 0).await.is_some() {} };
    timeout(PATIENCE / 4, applied).await.expect("C has it");
    b.restart();
    place.applied().await;
}

/// A node and its replica are down, and the other nodes go on.
#[tokio::test]
async fn rows_of_a_node_that_is_down_hold_up_no_others() {
    let mut cluster = RedisCluster::start_with(&["--cluster-require-full-coverage", "no"]);
    let place = Place::start().await;
    let store = RedisStore::connect(&cluster.url(), "shop").await.expect("the store");
    let items = cache("item", &store);
    for key in 10_000..10_020 {
        fill(&items, key, 1).await;
    }
    let replica = cluster.replica_of(0);
    cluster.node_mut(replica).kill();
    cluster.node_mut(0).kill();
    // Of some keys: those of one node are too many for a batch.
    write(&place, 6_000, "").await;
    let _follower = place.follower_of(&store).cache(&items).start().await.expect("a follower");
    let mut left = 6_000;
    while left > 4_000 || place.pending().await < left {
        left = place.pending().await;
        sleep(Duration::from_millis(500)).await;
    }
    assert!(left > 1_000, "{left} rows wait for the node");
    let mut keys = Vec::new();
    for key in 10_000..10_020 {
        if items.invalidate(key).await.is_ok() {
            fill(&items, key, 2).await;
            assert_eq!(stored(&items, key).await, Some(2));
            keys.push(key);
        }
    }
    assert!((1..20).contains(&keys.len()), "{keys:?}");
    place
        .run("SELECT bellwether_invalidate('item', key) FROM generate_series(10000, 10019) AS key")
        .await;
    let applied = async {
        for key in keys {
            while stored(&items, key).await.is_some() {}
        }
    };
    timeout(PATIENCE / 4, applied).await.expect("the other nodes have it");
}
