//! Writers that are killed at any moment between the begin of a transaction and the end of the invalidation.

use std::env;
use std::time::Duration;

use bellwether::{BoxError, Cache};
use bellwether_redis::RedisStore;
use bellwether_sql::ChangeLog;
use bellwether_testkit::processes::{Worker, work};
use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use sqlx::postgres::PgPool;
use tokio::time::sleep;

use crate::place::{Place, cache, options};

const KEYS: i64 = 16;

#[derive(Deserialize, Serialize)]
struct Setup {
    postgres: String,
    redis: String,
    /// Whether the writer records its changes, or calls `Cache::change`.
    records: bool,
}

#[derive(Clone)]
struct Writer {
    changes: ChangeLog<Postgres>,
    pool: PgPool,
    items: Cache<i64, i64>,
    records: bool,
}

impl Writer {
    async fn open(setup: Setup) -> Result<Self, BoxError> {
        let pool = options().connect(&setup.postgres).await?;
        let store = RedisStore::connect(&setup.redis, "shop").await?;
        let items = cache("item", &store);
        Ok(Self { changes: ChangeLog::new(pool.clone()), pool, items, records: setup.records })
    }

    /// Raises a price, and ends what is stored of it.
    async fn write(&self, id: i64) {
        let update = || sqlx::query("UPDATE prices SET price = price + 1 WHERE id = $1").bind(id);
        if self.records {
            let mut transaction = self.changes.begin().await.expect("a transaction");
            update().execute(&mut *transaction).await.expect("an update");
            transaction.invalidate(&self.items, id);
            let _ = transaction.commit().await.expect("a commit");
        } else {
            let pool = self.pool.clone();
            let write = async move {
                sqlx::query("UPDATE prices SET price = price + 1 WHERE id = $1")
                    .bind(id)
                    .execute(&pool)
                    .await
            };
            let _ = self.items.change(id, write).await.expect("an update");
        }
    }
}

#[test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
fn works() {
    work(
        async |setup: Setup| Writer::open(setup).await,
        async |writer, _: ()| {
            for number in 0.. {
                writer.write(number % KEYS).await;
            }
        },
    );
}

/// Kills writers, and counts after each how many keys have a value that the database does not have.
async fn outdated_after_kills(records: bool, kills: u64) -> u64 {
    let place = Place::start().await;
    place.run("CREATE TABLE prices (id bigint PRIMARY KEY, price bigint NOT NULL)").await;
    place
        .run(&format!("INSERT INTO prices SELECT id, 0 FROM generate_series(0, {KEYS}) AS id"))
        .await;
    // The rows of a transaction of the program send no message.
    let follower = place.follower().cache(&place.items).poll(Duration::from_millis(10));
    let _follower = follower.start().await.expect("a follower");
    let read = |id: i64| {
        let (items, pool) = (place.items.clone(), place.pool.clone());
        let load = async move || {
            sqlx::query_scalar("SELECT price FROM prices WHERE id = $1")
                .bind(id)
                .fetch_one(&pool)
                .await
        };
        async move { items.get_or_load::<_, _, sqlx::Error>(id, load).await.expect("a value") }
    };
    let setup = Setup {
        postgres: format!("{}?application_name=writer", place.postgres.url()),
        redis: place.redis.url(),
        records,
    };
    let mut outdated = 0;
    for kill in 0..kills {
        let mut writer: Worker<(), ()> = Worker::start("crashes::works", &setup).await;
        let _written = writer.send(&());
        // Readers fill the cache again and again until the writer dies: at another moment each time.
        let until = sleep(Duration::from_micros(5_000 + (kill * 7_919) % 30_000));
        tokio::select! {
            () = until => {}
            () = async { for number in 0.. { read(number % KEYS).await; } } => {}
        }
        writer.kill();
        let alive = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'writer'";
        while place.value(alive).await > 0 {}
        place.applied().await;
        for id in 0..KEYS {
            let price = place.value(&format!("SELECT price FROM prices WHERE id = {id}")).await;
            outdated += u64::from(read(id).await != price);
            // One that the store has not taken yet is repeated before the next read.
            _ = place.items.invalidate(id).await;
        }
        if kill % 500 == 499 {
            println!("{} writers killed, {outdated} outdated values", kill + 1);
        }
    }
    outdated
}

/// How many writers are killed.
fn kills(least: u64) -> u64 {
    env::var("BELLWETHER_SQL_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(least)
}

#[tokio::test]
async fn a_writer_that_is_killed_at_any_moment_leaves_nothing_old() {
    let kills = kills(40);
    let outdated = outdated_after_kills(true, kills).await;
    println!("{kills} writers killed, {outdated} outdated values");
    assert_eq!(outdated, 0);
}

#[tokio::test]
#[ignore = "the control: how much the same kills lose without a record"]
async fn a_killed_writer_without_a_record_leaves_old_values() {
    let kills = kills(200);
    let outdated = outdated_after_kills(false, kills).await;
    println!("{kills} writers killed, {outdated} outdated values");
    assert!(outdated > 0);
}
