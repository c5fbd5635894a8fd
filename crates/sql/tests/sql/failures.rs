//! Servers fail, and no change is lost.

use std::time::Duration;

use bellwether_redis::RedisStore;
use bellwether_testkit::servers::RedisCluster;
use bellwether_testkit::wait::until;
use tokio::time::{sleep, timeout};

use crate::place::{Place, cache, fill, stored};

#[tokio::test]
async fn rows_wait_while_redis_is_down_and_nothing_is_lost() {
    let mut place = Place::start().await;
    let follower = place.follow().await;
    place.redis.kill();
    place
        .run("SELECT bellwether_invalidate('item', key) FROM generate_series(1, 3000) AS key")
        .await;
    until("it has tried", || follower.stats().store_errors > 1).await;
    assert_eq!(place.pending().await, 3_000);
    place.redis.restart();
    place.applied().await;
}

#[tokio::test]
async fn what_a_failover_has_lost_is_applied_again_also_if_its_writer_has_ended() {
    let mut place = Place::start().await;
    let follower = place.follow().await;
    fill(&place.items, 42, 1).await;
    place.redis.command(&["SAVE"]);
    place.run("SELECT bellwether_invalidate('item', 42)").await;
    place.applied().await;
    assert_eq!(stored(&place.items, 42).await, None);
    let before = follower.stats().reapplied;

    // The promoted server has the entry, and not its invalidation.
    place.redis.restart();
    until("it is applied again", || follower.stats().reapplied > before).await;
    let fresh = RedisStore::connect(&place.redis.url(), "shop").await.expect("the store");
    assert_eq!(stored(&cache("item", &fresh), 42).await, None);
}

/// Of a cluster, each node may fail over, and a follower has nothing to do there for a while.
#[tokio::test]
async fn what_any_node_of_a_cluster_has_lost_is_applied_again() {
    let mut cluster = RedisCluster::start();
    let place = Place::start().await;
    let store = RedisStore::connect(&cluster.url(), "shop").await.expect("the store");
    let items = cache("item", &store);
    let follower = place.follower_of(&store).cache(&items).start().await.expect("a follower");
    place.run("SELECT bellwether_invalidate('item', key) FROM generate_series(1, 20) AS key").await;
    place.applied().await;
    // It has connected meanwhile, and so applies them again.
    sleep(Duration::from_secs(2)).await;
    for node in 0..3 {
        let before = follower.stats().reapplied;
        let replica = cluster.replica_of(node);
        cluster.node_mut(node).kill();
        cluster.await_promotion(replica);
        until("it is applied again", || follower.stats().reapplied > before).await;
        cluster.node_mut(node).restart();
    }
}

/// Otherwise followers would apply rows again and again to the other nodes of a cluster.
#[tokio::test]
async fn a_server_that_is_down_is_not_taken_for_one_that_is_back() {
    let mut place = Place::start().await;
    let store = RedisStore::connect(&place.redis.url(), "shop").await.expect("the store");
    let opened = store.opened().await;
    place.redis.kill();
    for _ in 0..20 {
        assert_eq!(store.opened().await, opened);
        sleep(Duration::from_millis(20)).await;
    }
    place.redis.restart();
    while store.opened().await == opened {
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_follower_outlives_its_database() {
    let mut place = Place::start().await;
    let follower = place.follow().await;
    // The server of the tests keeps only what a commit has waited for.
    place.run("SET synchronous_commit = on; SELECT bellwether_invalidate('item', 1)").await;
    place.postgres.kill();
    until("it notices", || follower.stats().database_errors > 0).await;
    place.postgres.restart();
    fill(&place.items, 42, 1).await;
    while sqlx::query("SELECT bellwether_invalidate('item', 42)")
        .execute(&place.pool)
        .await
        .is_err()
    {
        sleep(Duration::from_millis(10)).await;
    }
    while stored(&place.items, 42).await.is_some() {}
}

/// It is restored from an old backup.
#[tokio::test]
async fn a_database_that_has_forgotten_a_follower_learns_of_it_again() {
    let place = Place::start().await;
    let follower = place.follow().await;
    let seen = "SELECT (extract(epoch FROM max(seen_at)) * 1000000)::bigint FROM bellwether_caches";
    for _ in 0..3 {
        let before = place.value(seen).await;
        while place.value(seen).await == before {
            sleep(Duration::from_millis(10)).await;
        }
    }
    place.run("DELETE FROM bellwether_caches; SELECT bellwether_invalidate('item', 42)").await;
    // By itself, it would say so after another eight seconds.
    let applied = async { until("it is applied", || follower.stats().applied == 1).await };
    timeout(Duration::from_secs(4), applied).await.expect("it says again what it has");
}

#[tokio::test]
async fn a_follower_whose_connections_are_ended_goes_on_listening() {
    let place = Place::start().await;
    // It would not read without a message.
    let follower = place.follower().cache(&place.items).poll(Duration::from_secs(3_600));
    let _follower = follower.start().await.expect("a follower");
    let listens = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
    while place.value(listens).await == 0 {}
    place
        .run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        .await;
    while place.value(listens).await == 0 {}
    place.run("SELECT bellwether_invalidate('item', 42)").await;
    place.applied().await;
}
