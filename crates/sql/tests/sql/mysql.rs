//! What a MariaDB records, and what becomes of it in a Redis.

use std::time::{Duration, Instant};

use bellwether::{Cache, CacheKey, Changed, Tag};
use bellwether_redis::RedisStore;
use bellwether_sql::{ChangeLog, Follower, FollowerHandle, Migrations};
use bellwether_testkit::servers::{MariaDbServer, RedisServer};
use bellwether_testkit::wait::{PATIENCE, until};
use futures_util::future::join_all;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::{MySql, Row};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::place::{cache, fill, stored};

struct Place {
    mariadb: MariaDbServer,
    redis: RedisServer,
    pool: MySqlPool,
    store: RedisStore,
    items: Cache<i64, i64>,
}

impl Place {
    async fn start() -> Self {
        let (mariadb, redis) = (MariaDbServer::start(), RedisServer::start());
        let options = MySqlPoolOptions::new().max_connections(8);
        let pool = options.acquire_timeout(Duration::from_secs(5)).connect(&mariadb.url()).await;
        let pool = pool.expect("the database");
        Migrations::new(pool.clone()).run().await.expect("the table");
        let store = RedisStore::connect(&redis.url(), "shop").await.expect("the store");
        let items = cache("item", &store);
        Self { mariadb, redis, pool, store, items }
    }

    fn follower(&self) -> Follower<MySql> {
        Follower::new(self.pool.clone(), self.store.clone()).poll(Duration::from_millis(10))
    }

    async fn follow(&self) -> FollowerHandle {
        self.follower().cache(&self.items).start().await.expect("a follower")
    }

    async fn run(&self, statements: &str) {
        sqlx::raw_sql(statements).execute(&self.pool).await.expect(statements);
    }

    async fn value(&self, query: &str) -> i64 {
        sqlx::query(query).fetch_one(&self.pool).await.expect(query).get(0)
    }

    async fn pending(&self) -> i64 {
        self.value("SELECT COUNT(*) FROM bellwether_changes WHERE state IN (0, 1)").await
    }

    async fn applied(&self) {
        let began = Instant::now();
        while self.pending().await > 0 {
            assert!(began.elapsed() < PATIENCE, "{} rows wait", self.pending().await);
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// The rows that were recorded, in order of their text, and takes them.
    async fn recorded(&self) -> Vec<String> {
        let rows = "SELECT CONVERT(CONCAT(target, ' ', name, ' ', parts) USING utf8mb4)
            FROM bellwether_changes ORDER BY 1";
        let rows = sqlx::query_scalar(rows).fetch_all(&self.pool).await.expect("rows");
        self.run("DELETE FROM bellwether_changes").await;
        rows
    }
}

/// Checks that a row of this key, made in SQL, invalidates the value of this key of a program; and that one which the
/// program records in its own transaction does.
async fn same<K: CacheKey + Clone>(place: &Place, key: K, parts: &str) {
    let hour = Duration::from_secs(3_600);
    let cache: Cache<K, i64> =
        Cache::builder("part", place.store.clone()).ttl(hour).build().expect("options");
    let fill = async || {
        let load = async || Ok::<_, std::convert::Infallible>(1);
        cache.get_or_load(key.clone(), load).await.expect("a value");
    };
    fill().await;
    place.run(&format!("CALL bellwether_invalidate('part', JSON_ARRAY({parts}))")).await;
    place.applied().await;
    assert_eq!(cache.get(key.clone()).await.expect("the store"), None, "{parts}");

    fill().await;
    let mut transaction = place.pool.begin().await.expect("a transaction");
    let changes = ChangeLog::new(place.pool.clone());
    changes.invalidate(&mut transaction, &cache, key.clone()).await.expect("a row");
    transaction.commit().await.expect("a commit");
    place.applied().await;
    assert_eq!(cache.get(key).await.expect("the store"), None, "{parts} of a program");
    assert_eq!(place.value("SELECT COUNT(*) FROM bellwether_changes WHERE state = 2").await, 0);
}

const UUID: &str = "5f0c7127-39ad-4a7c-8e0b-0cd4b1a7e0c3";

#[tokio::test]
async fn a_key_made_in_mariadb_is_the_key_made_in_rust() {
    let place = Place::start().await;
    let follower = place.follower().kind("part", "part").start().await.expect("a follower");
    same(&place, 42_i64, "42").await;
    same(&place, 42_u8, "CAST(42 AS unsigned)").await;
    same(&place, -7_i64, "-7").await;
    same(&place, i64::MIN, "-9223372036854775808").await;
    same(&place, u64::MAX, "18446744073709551615").await;
    let number = |number: &str| format!("JSON_OBJECT('number', '{number}')");
    same(&place, i128::from(u64::MAX) + 1, &number("18446744073709551616")).await;
    same(&place, i128::MIN, &number("-170141183460469231731687303715884105728")).await;
    same(&place, u128::MAX, &number("340282366920938463463374607431768211455")).await;
    same(&place, 42_i64, &number("42")).await;
    same(&place, "42".to_owned(), "'42'").await;
    same(&place, String::new(), "''").await;
    same(&place, "lämp 💡 \\u0041 \"".to_owned(), r#"'lämp 💡 \\u0041 "'"#).await;
    same(&place, "a\0b".to_owned(), "'a\\0b'").await;
    same(&place, "true".to_owned(), "'true'").await;
    same(&place, 'x', "'x'").await;
    same(&place, true, "1 IS TRUE").await;
    same(&place, false, "false").await;
    let uuid = Uuid::parse_str(UUID).expect("a UUID");
    same(&place, uuid, &format!("JSON_OBJECT('uuid', '{UUID}')")).await;
    same(&place, uuid, &format!("JSON_OBJECT('uuid', CAST('{UUID}' AS uuid))")).await;
    same(&place, UUID.to_owned(), &format!("'{UUID}'")).await;
    same(&place, vec![0_u8, 0xff], "JSON_OBJECT('bytes', HEX(x'00ff'))").await;
    same(&place, None::<i64>, "NULL").await;
    same(&place, Some(42_i64), "JSON_OBJECT('some', 42)").await;
    same(&place, (), "").await;
    same(&place, vec!["a".to_owned()], "JSON_OBJECT('list', 1), 'a'").await;
    same(&place, ("berlin".to_owned(), 42_i64), "'berlin', 42").await;
    follower.shutdown().await;
}

#[tokio::test]
async fn parts_that_are_no_array_are_refused_by_name() {
    let place = Place::start().await;
    let call = sqlx::raw_sql("CALL bellwether_invalidate('item', 42)").execute(&place.pool);
    let error = call.await.expect_err("no array");
    assert!(error.to_string().contains("bellwether_parts_are_a_json_array"), "{error}");
}

const TABLES: &str = "
    CREATE TABLE items (id bigint PRIMARY KEY, shelf varchar(20), price bigint);
    CREATE TRIGGER items_insert AFTER INSERT ON items FOR EACH ROW
        CALL bellwether_invalidate('item', JSON_ARRAY(NEW.id));
    CREATE TRIGGER items_update AFTER UPDATE ON items FOR EACH ROW
        CALL bellwether_changed('key', 'item', JSON_ARRAY(OLD.id), JSON_ARRAY(NEW.id));
    CREATE TRIGGER items_delete AFTER DELETE ON items FOR EACH ROW
        CALL bellwether_invalidate('item', JSON_ARRAY(OLD.id));
    CREATE TRIGGER items_shelf AFTER UPDATE ON items FOR EACH ROW
        CALL bellwether_changed('tag', 'shelf', JSON_ARRAY(OLD.shelf), JSON_ARRAY(NEW.shelf))";

#[tokio::test]
async fn row_triggers_of_mariadb_record_old_and_new_keys() {
    let place = Place::start().await;
    place.run(TABLES).await;
    place.run("INSERT INTO items VALUES (1, 'a', 1), (2, 'a', 1)").await;
    assert_eq!(place.recorded().await, ["key item [1]", "key item [2]"]);
    place.run("UPDATE items SET price = 2 WHERE id = 1").await;
    assert_eq!(place.recorded().await, ["key item [1]", "tag shelf [\"a\"]"]);
    place.run("UPDATE items SET id = 5, shelf = 'b' WHERE id = 2").await;
    let expected = ["key item [2]", "key item [5]", "tag shelf [\"a\"]", "tag shelf [\"b\"]"];
    assert_eq!(place.recorded().await, expected);
    place.run("DELETE FROM items WHERE id = 5").await;
    assert_eq!(place.recorded().await, ["key item [5]"]);
}

#[tokio::test]
async fn an_account_without_rights_on_the_table_writes_to_mariadb_by_triggers() {
    let place = Place::start().await;
    place.run(TABLES).await;
    place.run("CREATE USER shop@'%'; GRANT INSERT ON test.items TO shop@'%'").await;
    let url = place.mariadb.url().replace("root@", "shop@");
    let pool = MySqlPool::connect(&url).await.expect("an account");
    sqlx::raw_sql("INSERT INTO items VALUES (1, 'a', 1)").execute(&pool).await.expect("a row");
    assert_eq!(place.recorded().await, ["key item [1]"]);
    let call = sqlx::raw_sql("CALL bellwether_clear()").execute(&pool).await;
    let error = call.expect_err("no right").to_string();
    assert!(error.contains("denied"), "{error}");

    // A program that records changes needs one right.
    place.run("GRANT INSERT ON test.bellwether_changes TO shop@'%'").await;
    let pool = MySqlPool::connect(&url).await.expect("an account");
    let mut transaction = ChangeLog::new(pool).begin().await.expect("a transaction");
    transaction.invalidate(&place.items, 2);
    assert!(matches!(transaction.commit().await.expect("a commit"), Changed::Invalidated(())));
    assert_eq!(place.recorded().await, ["key item [2]"]);
}

#[tokio::test]
async fn a_row_that_mariadb_commits_invalidates_and_one_that_it_rolls_back_does_not() {
    let place = Place::start().await;
    let _follower = place.follow().await;
    fill(&place.items, 1, 1).await;
    fill(&place.items, 2, 1).await;
    place
        .run("START TRANSACTION; CALL bellwether_invalidate('item', JSON_ARRAY(1)); ROLLBACK")
        .await;
    place.run("CALL bellwether_invalidate('item', JSON_ARRAY(2))").await;
    place.applied().await;
    assert_eq!(stored(&place.items, 1).await, Some(1));
    assert_eq!(stored(&place.items, 2).await, None);
}

#[tokio::test]
async fn rows_of_tags_and_of_all_invalidate_and_expire_from_mariadb() {
    let place = Place::start().await;
    let follower = place.follow().await;
    let hour = Duration::from_secs(3_600);
    let builder = Cache::<i64, i64>::builder("clearable", place.store.clone()).ttl(hour);
    let clearable = builder.stale_while_revalidate(hour).clearable().build().expect("options");
    let shelf = clearable.tagged([Tag::of("shelf").with("berlin").with(7)]);
    fill(&shelf, 1, 1).await;
    place.run("CALL bellwether_expire_tag('shelf', JSON_ARRAY('berlin', 7), 0)").await;
    place.run("CALL bellwether_expire('item', JSON_ARRAY(1))").await;
    place.applied().await;
    assert_eq!(fill(&shelf, 1, 2).await, 1, "stale, and refreshed");
    while stored(&shelf, 1).await != Some(2) {}
    place.run("CALL bellwether_invalidate_tag('shelf', JSON_ARRAY('berlin', 7))").await;
    place.applied().await;
    assert_eq!(fill(&shelf, 1, 3).await, 3);
    place.run("CALL bellwether_clear()").await;
    place.applied().await;
    assert_eq!(stored(&shelf, 1).await, None);
    assert_eq!(follower.stats().dead, 0);
}

#[tokio::test]
async fn a_commit_in_mariadb_invalidates_at_once_and_leaves_its_rows_to_followers() {
    let place = Place::start().await;
    place.run("CREATE TABLE prices (id bigint PRIMARY KEY, price bigint)").await;
    let changes = ChangeLog::new(place.pool.clone());
    let tagged = place.items.tagged([Tag::of("shelf").with(7)]);
    fill(&place.items, 1, 1).await;
    fill(&tagged, 2, 1).await;
    let mut transaction = changes.begin().await.expect("a transaction");
    let insert = sqlx::query("INSERT INTO prices VALUES (1, 999)");
    insert.execute(&mut *transaction).await.expect("a row");
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

#[tokio::test]
async fn a_transaction_of_a_program_in_mariadb_that_is_dropped_records_nothing() {
    let place = Place::start().await;
    fill(&place.items, 42, 1).await;
    let changes = ChangeLog::new(place.pool.clone());
    let mut transaction = changes.begin().await.expect("a transaction");
    transaction.invalidate(&place.items, 42);
    drop(transaction);
    assert_eq!(stored(&place.items, 42).await, Some(1));
    assert_eq!(place.value("SELECT COUNT(*) FROM bellwether_changes").await, 0);
}

#[tokio::test]
async fn followers_of_a_mariadb_share_the_rows() {
    let place = Place::start().await;
    let followers = [place.follow().await, place.follow().await];
    place.run("INSERT INTO bellwether_changes (target, name, parts) SELECT 'key', 'item', JSON_ARRAY(seq) FROM seq_1_to_20000").await;
    place.applied().await;
    let applied = || followers.iter().map(|follower| follower.stats().applied).collect::<Vec<_>>();
    until("all is counted", || applied().iter().sum::<u64>() == 20_000).await;
    assert!(applied().iter().all(|applied| *applied > 0), "{:?}", applied());
}

/// While a follower holds rows and its Redis answers nothing, writers go on.
#[tokio::test]
async fn a_follower_of_a_mariadb_holds_up_no_writer() {
    let place = Place::start().await;
    let follower = place.follow().await;
    place.redis.stop();
    place.run("CALL bellwether_invalidate('item', JSON_ARRAY(1))").await;
    let held = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_rows_locked > 0";
    // The table of transactions changes only if it was not read for 100 ms.
    while place.value(held).await == 0 {
        sleep(Duration::from_millis(150)).await;
    }
    place
        .run("SET innodb_lock_wait_timeout = 1; CALL bellwether_invalidate('item', JSON_ARRAY(2))")
        .await;
    place.redis.resume();
    place.applied().await;
    until("all is counted", || follower.stats().applied == 2).await;
}

/// In a small table, MariaDB reads all rows, and waits for those of others, unless it is told to read by an index.
#[tokio::test]
async fn a_writer_to_a_mariadb_holds_up_no_follower() {
    let place = Place::start().await;
    let mut writer = place.pool.begin().await.expect("a transaction");
    let call = sqlx::raw_sql("CALL bellwether_invalidate('item', JSON_ARRAY(1))");
    call.execute(&mut *writer).await.expect("a row");
    let follower = place.follower().cache(&place.items).retain(Duration::from_millis(1));
    let _follower = follower.start().await.expect("a follower");
    let follows = async {
        place.run("CALL bellwether_invalidate('item', JSON_ARRAY(2))").await;
        place.run("CALL bellwether_invalidate('other', JSON_ARRAY(3))").await;
        place.applied().await;
        let _other = place.follower().kind("other", "other").start().await.expect("a follower");
        while place.value("SELECT COUNT(*) FROM bellwether_changes").await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    // It would wait for 50 s.
    timeout(Duration::from_secs(30), follows).await.expect("it applies and deletes");
    writer.commit().await.expect("a commit");
    place.applied().await;
}

#[tokio::test]
async fn what_a_row_in_mariadb_lacks_is_noted_and_blocks_nothing() {
    let place = Place::start().await;
    let follower = place.follow().await;
    place.run("CALL bellwether_invalidate('other', JSON_ARRAY(1))").await;
    place.run("CALL bellwether_invalidate('item', JSON_ARRAY(1.5))").await;
    place.run("CALL bellwether_invalidate('item', JSON_ARRAY(42))").await;
    place.applied().await;
    let failures = "SELECT COUNT(*) FROM bellwether_changes WHERE failure IN
        ('no follower has a cache `other`', 'part 1 is none of a key')";
    assert_eq!(place.value(failures).await, 2);
    until("it is counted", || follower.stats().dead == 2).await;
    let _other = place.follower().kind("other", "other").start().await.expect("a follower");
    place.applied().await;
    assert_eq!(place.value("SELECT COUNT(*) FROM bellwether_changes WHERE state = 2").await, 1);
}

#[tokio::test]
async fn rows_in_mariadb_wait_for_the_redis_of_each_region_and_are_deleted_after_their_time() {
    let place = Place::start().await;
    let mut abroad = RedisServer::start();
    let store = RedisStore::connect(&abroad.url(), "shop").await.expect("the store");
    abroad.kill();
    let follower = place.follower().cache(&place.items).also(store);
    let _follower = follower.retain(Duration::from_millis(1)).start().await.expect("a follower");
    fill(&place.items, 42, 1).await;
    place.run("CALL bellwether_invalidate('item', JSON_ARRAY(42))").await;
    while place.value("SELECT COUNT(*) FROM bellwether_changes WHERE reached = '0'").await == 0 {}
    assert_eq!(stored(&place.items, 42).await, None);
    abroad.restart();
    while place.value("SELECT COUNT(*) FROM bellwether_changes").await > 0 {}
}

#[tokio::test]
async fn what_a_failover_has_lost_is_applied_again_from_mariadb() {
    let mut place = Place::start().await;
    let follower = place.follow().await;
    fill(&place.items, 42, 1).await;
    place.redis.command(&["SAVE"]);
    place.run("CALL bellwether_invalidate('item', JSON_ARRAY(42))").await;
    place.applied().await;
    let before = follower.stats().reapplied;
    place.redis.restart();
    until("it is applied again", || follower.stats().reapplied > before).await;
    let fresh = RedisStore::connect(&place.redis.url(), "shop").await.expect("the store");
    assert_eq!(stored(&cache("item", &fresh), 42).await, None);
}

#[tokio::test]
async fn a_follower_outlives_its_mariadb() {
    let mut place = Place::start().await;
    let follower = place.follow().await;
    place.mariadb.kill();
    until("it notices", || follower.stats().database_errors > 0).await;
    place.mariadb.restart();
    fill(&place.items, 42, 1).await;
    let call = "CALL bellwether_invalidate('item', JSON_ARRAY(42))";
    while sqlx::raw_sql(call).execute(&place.pool).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    while stored(&place.items, 42).await.is_some() {}
}

/// As when all processes of a service are deployed. Each says which caches it has.
#[tokio::test]
async fn followers_of_mariadb_that_start_at_once_do_not_fail() {
    let place = Place::start().await;
    for round in 0..20_usize {
        let starts = (0..8_usize).map(|nth| {
            let names = (0..8).map(|name| format!("cache{}", (name + nth) % 8 + round));
            let with = |follower: Follower<MySql>, name: String| follower.kind(&name, &name);
            names.fold(place.follower(), with).start()
        });
        for started in join_all(starts).await {
            drop(started.expect("it starts"));
        }
    }
}
