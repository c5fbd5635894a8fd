//! What followers do with rows.

use std::time::Duration;

use bellwether::{Cache, Tag};
use bellwether_redis::RedisStore;
use bellwether_sql::Follower;
use bellwether_testkit::recorder::Published;
use bellwether_testkit::servers::RedisServer;
use bellwether_testkit::wait::{PATIENCE, until};
use futures_util::future::join_all;
use sqlx::Postgres;
use tokio::time::{sleep, timeout};

use crate::place::{Place, cache, fill, options, stored};

#[tokio::test]
async fn a_row_that_is_committed_invalidates_and_one_that_is_rolled_back_does_not() {
    let place = Place::start().await;
    let _follower = place.follow().await;
    fill(&place.items, 1, 1).await;
    fill(&place.items, 2, 1).await;
    place.run("BEGIN; SELECT bellwether_invalidate('item', 1); ROLLBACK").await;
    place.run("SELECT bellwether_invalidate('item', 2)").await;
    place.applied().await;
    assert_eq!(stored(&place.items, 1).await, Some(1));
    assert_eq!(stored(&place.items, 2).await, None);
}

#[tokio::test]
async fn rows_of_tags_and_of_all_invalidate_and_expire() {
    let place = Place::start().await;
    let _follower = place.follow().await;
    let hour = Duration::from_secs(3_600);
    let builder = Cache::<i64, i64>::builder("clearable", place.store.clone()).ttl(hour);
    let clearable = builder.stale_while_revalidate(hour).clearable().build().expect("options");
    let shelf = clearable.tagged([Tag::of("shelf").with("berlin").with(7)]);
    fill(&shelf, 1, 1).await;
    fill(&clearable, 2, 1).await;
    place.run("SELECT bellwether_expire_tag('shelf', jsonb_build_array('berlin', 7))").await;
    place.applied().await;
    assert_eq!(fill(&shelf, 1, 2).await, 1, "stale, and refreshed");
    // A refresh that began after the invalidation would be right, too.
    while stored(&shelf, 1).await != Some(2) {}
    place.run("SELECT bellwether_invalidate_tag('shelf', jsonb_build_array('berlin', 7))").await;
    place.applied().await;
    assert_eq!(fill(&shelf, 1, 3).await, 3);
    assert_eq!(stored(&clearable, 2).await, Some(1));
    place.run("SELECT bellwether_clear()").await;
    place.applied().await;
    assert_eq!(stored(&clearable, 2).await, None);
}

#[tokio::test]
async fn a_row_of_a_name_reaches_the_caches_of_all_versions_whichever_follower_takes_it() {
    let place = Place::start().await;
    let hour = Duration::from_secs(3_600);
    let builder = || Cache::<i64, i64>::builder("item", place.store.clone()).ttl(hour);
    let second = builder().version(2).build().expect("options");
    let of_first = place.follow().await;
    let of_second = place.follower().cache(&second).start().await.expect("a follower");
    of_second.shutdown().await;
    fill(&place.items, 42, 1).await;
    fill(&second, 42, 1).await;
    place.run("SELECT bellwether_invalidate('item', 42)").await;
    place.applied().await;
    assert_eq!(stored(&place.items, 42).await, None);
    assert_eq!(stored(&second, 42).await, None);
    of_first.shutdown().await;
}

#[tokio::test]
async fn a_name_that_no_follower_has_and_parts_that_are_none_get_their_reason_and_block_nothing() {
    let place = Place::start().await;
    let follower = place.follow().await;
    fill(&place.items, 42, 1).await;
    place.run("SELECT bellwether_invalidate('other', 1)").await;
    place.run("SELECT bellwether_invalidate('item', '[{\"uuid\": 1}]'::jsonb)").await;
    place.run("SELECT bellwether_invalidate('item', 42)").await;
    place.applied().await;
    assert_eq!(stored(&place.items, 42).await, None);
    let failures = "SELECT count(*) FROM bellwether_changes WHERE failure IN
        ('no follower has a cache `other`', 'part 1 is none of a key')";
    assert_eq!(place.value(failures).await, 2);
    until("it is counted", || follower.stats().dead == 2).await;

    // A follower that has it takes it after all.
    let other = cache("other", &place.store);
    fill(&other, 1, 1).await;
    let _second = place.follower().cache(&other).start().await.expect("a follower");
    place.applied().await;
    assert_eq!(stored(&other, 1).await, None);
}

/// A follower had taken the row before this one said that it has the name, and gave it up after this one had let such
/// rows wait again.
#[tokio::test]
async fn a_row_that_was_given_up_beside_a_start_is_applied_after_all() {
    let place = Place::start().await;
    let _first = place.follow().await;
    let other = cache("other", &place.store);
    fill(&other, 1, 1).await;
    place.redis.stop();
    place.run("SELECT bellwether_invalidate('item', 1), bellwether_invalidate('other', 1)").await;
    let holds = "SELECT count(*) FROM pg_stat_activity
        WHERE state = 'idle in transaction' AND state_change < clock_timestamp() - interval '50 ms'";
    while place.value(holds).await == 0 {}
    let _second = place.follower().cache(&other).start().await.expect("a follower");
    place.redis.resume();
    let applied = async {
        let left = "SELECT count(*) FROM bellwether_changes WHERE applied_at IS NULL";
        while place.value(left).await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, applied).await.expect("all is applied");
    assert_eq!(stored(&other, 1).await, None);
}

#[tokio::test]
async fn a_row_is_done_when_the_stores_of_all_regions_have_it() {
    let place = Place::start().await;
    let mut abroad = RedisServer::start();
    let store = RedisStore::connect(&abroad.url(), "shop").await.expect("the store");
    let items = cache("item", &store);
    fill(&place.items, 42, 1).await;
    let follower =
        place.follower().also(store.clone()).cache(&place.items).start().await.expect("a follower");
    abroad.kill();
    place.run("SELECT bellwether_invalidate('item', 42)").await;
    while stored(&place.items, 42).await.is_some() {}
    until("it has tried the other one", || follower.stats().store_errors > 0).await;
    assert_eq!(place.pending().await, 1);
    // However many rows wait for the other region, this one has the next one soon, and each once.
    place
        .run("SELECT bellwether_invalidate('item', key) FROM generate_series(100, 2600) AS key")
        .await;
    fill(&place.items, 43, 1).await;
    place.run("SELECT bellwether_invalidate('item', 43)").await;
    while stored(&place.items, 43).await.is_some() {}
    fill(&place.items, 43, 2).await;
    abroad.restart();
    place.applied().await;
    assert_eq!(stored(&items, 42).await, None);
    assert_eq!(stored(&place.items, 43).await, Some(2));
}

#[tokio::test]
async fn several_followers_share_the_rows_and_none_is_left() {
    let place = Place::start().await;
    let followers = [place.follow().await, place.follow().await, place.follow().await];
    place
        .run("SELECT bellwether_invalidate('item', key) FROM generate_series(1, 20000) AS key")
        .await;
    place.applied().await;
    let applied = || followers.iter().map(|follower| follower.stats().applied).collect::<Vec<_>>();
    until("all is counted", || applied().iter().sum::<u64>() == 20_000).await;
    assert!(applied().iter().all(|applied| *applied > 0), "{:?}", applied());
}

/// The default of a database is for its programs. A follower reads only rows that it locks.
#[tokio::test]
async fn followers_share_the_rows_where_transactions_are_serializable_by_default() {
    let place = Place::start().await;
    place.run("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'").await;
    let pool = options().connect(&place.postgres.url()).await.expect("the database");
    let follow = || Follower::new(pool.clone(), place.store.clone()).cache(&place.items).start();
    let mut followers = Vec::new();
    for _ in 0..3 {
        followers.push(follow().await.expect("a follower"));
    }
    for _ in 0..20 {
        let rows = "SELECT bellwether_invalidate('item', key) FROM generate_series(1, 1000) AS key";
        sqlx::raw_sql(rows).execute(&pool).await.expect("no follower makes a writer fail");
    }
    place.applied().await;
    let errors = followers.iter().map(|follower| follower.stats().database_errors);
    assert_eq!(errors.sum::<u64>(), 0);
}

#[tokio::test]
async fn rows_are_deleted_after_their_time() {
    let place = Place::start().await;
    let short = place.follower().cache(&place.items).retain(Duration::from_millis(1));
    let short = short.start().await.expect("a follower");
    place.run("SELECT bellwether_invalidate('item', 42)").await;
    while place.value("SELECT count(*) FROM bellwether_changes").await > 0 {}
    short.shutdown().await;
    let none = place.follower().cache(&place.items).retain(Duration::ZERO).listen(false);
    let none = none.start().await.expect("a follower");
    place.run("SELECT bellwether_invalidate('item', 42)").await;
    place.applied().await;
    while place.value("SELECT count(*) FROM bellwether_changes").await > 0 {}
    assert_eq!(none.stats().reapplied, 0);
}

#[tokio::test]
async fn a_follower_that_retains_rows_for_as_long_as_possible_applies_them() {
    let place = Place::start().await;
    let follower = place.follower().cache(&place.items).retain(Duration::MAX);
    let _follower = follower.start().await.expect("a follower");
    fill(&place.items, 1, 1).await;
    place.run("SELECT bellwether_invalidate('item', 1)").await;
    place.applied().await;
    assert_eq!(stored(&place.items, 1).await, None);
}

/// A round that a message begins only applies rows. A full one also deletes, registers, counts what waits, and notices
/// that a store has connected again.
#[tokio::test]
async fn a_follower_that_messages_wake_again_and_again_does_what_is_due() {
    let place = Place::start().await;
    let follower = place.follower().cache(&place.items).retain(Duration::from_millis(1));
    let _follower = follower.start().await.expect("a follower");
    place.run("SELECT bellwether_invalidate('item', 1)").await;
    let messages = async {
        loop {
            place.run("SELECT bellwether_invalidate('item', 2)").await;
            sleep(Duration::from_millis(5)).await;
        }
    };
    let first = "SELECT count(*) FROM bellwether_changes WHERE parts = '[1]'";
    let deleted = async {
        while place.value(first).await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = messages => {}
        done = timeout(PATIENCE, deleted) => done.expect("it deletes what is old"),
    }
}

#[tokio::test]
async fn a_follower_that_is_dropped_leaves_its_rows_to_others() {
    let place = Place::start().await;
    drop(place.follow().await);
    // What it takes meanwhile, it applies.
    while place.pending().await == 0 {
        place.run("SELECT bellwether_invalidate('item', 42)").await;
        sleep(Duration::from_millis(50)).await;
    }
    let _other = place.follow().await;
    place.applied().await;
}

#[tokio::test]
async fn the_figures_of_a_follower_are_published() {
    let place = Place::start().await;
    let follower = place.follow().await;
    place.run("SELECT bellwether_invalidate('item', 42), bellwether_invalidate('other', 1)").await;
    let counted = || {
        let stats = follower.stats();
        stats.applied + stats.dead == 2 && stats.pending == 0
    };
    until("all is counted", counted).await;
    let published = Published::default();
    metrics_facade::with_local_recorder(&published, || bellwether::metrics::publish(&follower));
    let value = |name: &str| published.value(&format!("bellwether_changes_{name}"));
    assert_eq!(value("applied_total table=public"), 1);
    assert_eq!(value("dead_total table=public"), 1);
    assert_eq!(value("reapplied_total table=public"), 0);
    assert_eq!(value("errors_total table=public of=database"), 0);
    assert_eq!(value("errors_total table=public of=store"), 0);
    assert_eq!(value("lag_seconds table=public"), 1);
    assert_eq!(published.gauge("bellwether_changes_pending table=public"), 0.0);
    assert_eq!(published.gauge("bellwether_changes_oldest_seconds table=public"), 0.0);
}

/// As when all processes of a service are deployed. Each says which caches it has.
#[tokio::test]
async fn followers_that_start_at_once_do_not_fail() {
    let place = Place::start().await;
    for round in 0..20_usize {
        let starts = (0..8_usize).map(|nth| {
            let names = (0..8).map(|name| format!("cache{}", (name + nth) % 8 + round));
            let with = |follower: Follower<Postgres>, name: String| follower.kind(&name, &name);
            names.fold(place.follower(), with).start()
        });
        for started in join_all(starts).await {
            drop(started.expect("it starts"));
        }
    }
}
