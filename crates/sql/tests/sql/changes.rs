//! ChangeLog in a transaction of the program.

use std::time::Duration;

use bellwether::{Cache, Changed, Tag};
use bellwether_redis::RedisStore;
use bellwether_sql::ChangeLog;
use bellwether_testkit::servers::RedisServer;

use crate::place::{Place, cache, fill, stored};

#[tokio::test]
async fn a_commit_invalidates_at_once_and_leaves_its_rows_to_followers() {
    let place = Place::start().await;
    place.run("CREATE TABLE prices (id bigint PRIMARY KEY, price bigint)").await;
    let changes = ChangeLog::new(place.pool.clone());
    let tagged = place.items.tagged([Tag::of("shelf").with(7)]);
    fill(&place.items, 1, 1).await;
    fill(&tagged, 2, 1).await;
    let mut transaction = changes.begin().await.expect("a transaction");
    sqlx::query("INSERT INTO prices VALUES (1, 999)")
        .execute(&mut *transaction)
        .await
        .expect("a row");
    transaction.invalidate(&place.items, 1);
    transaction.invalidate_tag(&place.items, &Tag::of("shelf").with(7));
    assert!(matches!(transaction.commit().await.expect("a commit"), Changed::Invalidated(())));
    assert_eq!(stored(&place.items, 1).await, None);
    assert_eq!(fill(&tagged, 2, 2).await, 2);
    assert_eq!(place.value("SELECT price FROM prices").await, 999);
    assert_eq!(place.pending().await, 2);
    let _follower = place.follow().await;
    place.applied().await;
}

/// A writer has one store and one version. It ended its row, which others never got.
#[tokio::test]
async fn a_commit_reaches_the_stores_of_other_regions_and_the_caches_of_other_versions() {
    let (place, abroad) = (Place::start().await, RedisServer::start());
    let store = RedisStore::connect(&abroad.url(), "shop").await.expect("the store");
    let hour = Duration::from_secs(3_600);
    let builder = Cache::<i64, i64>::builder("item", place.store.clone()).ttl(hour);
    let others = [cache("item", &store), builder.version(2).build().expect("options")];
    let follower = place.follower().also(store).cache(&place.items).cache(&others[1]);
    let _follower = follower.start().await.expect("a follower");
    for cache in [&place.items, &others[0], &others[1]] {
        fill(cache, 42, 1).await;
    }
    let changes = ChangeLog::new(place.pool.clone());
    let mut transaction = changes.begin().await.expect("a transaction");
    transaction.invalidate(&place.items, 42);
    assert!(matches!(transaction.commit().await.expect("a commit"), Changed::Invalidated(())));
    assert_eq!(stored(&place.items, 42).await, None);
    place.applied().await;
    for other in &others {
        assert_eq!(stored(other, 42).await, None);
    }
}

#[tokio::test]
async fn a_transaction_that_is_dropped_changes_and_invalidates_nothing() {
    let place = Place::start().await;
    let changes = ChangeLog::new(place.pool.clone());
    fill(&place.items, 42, 1).await;
    let mut transaction = changes.begin().await.expect("a transaction");
    transaction.invalidate(&place.items, 42);
    drop(transaction);
    assert_eq!(stored(&place.items, 42).await, Some(1));
    assert_eq!(place.value("SELECT count(*) FROM bellwether_changes").await, 0);
}

#[tokio::test]
async fn a_commit_without_redis_is_pending_until_a_follower_has_seen_to_it() {
    let mut place = Place::start().await;
    let changes = ChangeLog::new(place.pool.clone());
    fill(&place.items, 42, 1).await;
    place.redis.kill();
    let mut transaction = changes.begin().await.expect("a transaction");
    transaction.expire(&place.items, 42);
    let changed = transaction.commit().await.expect("a commit");
    assert!(matches!(changed, Changed::Pending((), _)), "{changed:?}");
    assert_eq!(place.pending().await, 1);
    place.redis.restart();
    let _follower = place.follow().await;
    place.applied().await;
}

#[tokio::test]
async fn a_commit_that_fails_invalidates_too() {
    let place = Place::start().await;
    let changes = ChangeLog::new(place.pool.clone());
    fill(&place.items, 42, 1).await;
    let mut transaction = changes.begin().await.expect("a transaction");
    transaction.invalidate(&place.items, 42);
    place.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'").await;
    assert!(transaction.commit().await.is_err());
    assert_eq!(stored(&place.items, 42).await, None);
}

#[tokio::test]
async fn a_caller_that_leaves_stops_neither_the_commit_nor_the_invalidation() {
    let place = Place::start().await;
    let changes = ChangeLog::new(place.pool.clone());
    fill(&place.items, 42, 1).await;
    let mut transaction = changes.begin().await.expect("a transaction");
    transaction.invalidate(&place.items, 42);
    // It is polled once.
    let left = tokio::time::timeout(Duration::ZERO, transaction.commit()).await;
    assert!(left.is_err(), "{left:?}");
    while place.value("SELECT count(*) FROM bellwether_changes").await < 1 {}
    while stored(&place.items, 42).await.is_some() {}
}
