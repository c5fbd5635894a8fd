//! A database with the table of changes, a Redis, and a cache over it.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bellwether::Cache;
use bellwether_redis::RedisStore;
use bellwether_sql::{Follower, FollowerHandle, Migrations};
use bellwether_testkit::servers::{PostgresServer, RedisServer};
use bellwether_testkit::wait::PATIENCE;
use sqlx::postgres::{PgPool, PgPoolOptions, PgRow};
use sqlx::{Postgres, Row};
use tokio::time::sleep;

pub(crate) struct Place {
    pub(crate) postgres: PostgresServer,
    pub(crate) redis: RedisServer,
    pub(crate) pool: PgPool,
    pub(crate) store: RedisStore,
    pub(crate) items: Cache<i64, i64>,
}

impl Place {
    pub(crate) async fn start() -> Self {
        let (postgres, redis) = (PostgresServer::start(), RedisServer::start());
        let pool = options().connect(&postgres.url()).await;
        let pool = pool.expect("the database");
        Migrations::new(pool.clone()).run().await.expect("the table");
        let store = RedisStore::connect(&redis.url(), "shop").await.expect("the store");
        let items = cache("item", &store);
        Self { postgres, redis, pool, store, items }
    }

    pub(crate) async fn follow(&self) -> FollowerHandle {
        self.follower().cache(&self.items).start().await.expect("a follower")
    }

    pub(crate) fn follower(&self) -> Follower<Postgres> {
        self.follower_of(&self.store)
    }

    pub(crate) fn follower_of(&self, store: &RedisStore) -> Follower<Postgres> {
        Follower::new(self.pool.clone(), store.clone())
    }

    /// Runs statements.
    pub(crate) async fn run(&self, statements: &str) {
        sqlx::raw_sql(statements).execute(&self.pool).await.expect(statements);
    }

    /// The first value of a query.
    pub(crate) async fn value(&self, query: &str) -> i64 {
        let row: PgRow = sqlx::query(query).fetch_one(&self.pool).await.expect(query);
        row.get(0)
    }

    /// How many rows wait.
    pub(crate) async fn pending(&self) -> i64 {
        let pending = "applied_at IS NULL AND failure IS NULL";
        self.value(&format!("SELECT count(*) FROM bellwether_changes WHERE {pending}")).await
    }

    /// Waits until no row waits.
    pub(crate) async fn applied(&self) {
        let began = Instant::now();
        while self.pending().await > 0 {
            assert!(began.elapsed() < PATIENCE, "{} rows wait", self.pending().await);
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A pool that soon says that there is no server.
pub(crate) fn options() -> PgPoolOptions {
    PgPoolOptions::new().max_connections(8).acquire_timeout(Duration::from_secs(5))
}

pub(crate) fn cache(name: &str, store: &RedisStore) -> Cache<i64, i64> {
    let hour = Duration::from_secs(3_600);
    Cache::builder(name, store.clone()).ttl(hour).build().expect("options")
}

/// Stores a value of a key, if there is none.
pub(crate) async fn fill(cache: &Cache<i64, i64>, key: i64, value: i64) -> i64 {
    let load = async move || Ok::<_, Infallible>(value);
    cache.get_or_load(key, load).await.expect("a value")
}

/// What is stored of a key.
pub(crate) async fn stored(cache: &Cache<i64, i64>, key: i64) -> Option<i64> {
    cache.get(key).await.expect("the store")
}
