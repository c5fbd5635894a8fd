//! A program that follows a database, as Prometheus sees it.

use bellwether::metrics::publish;
use bellwether_redis::RedisStore;
use bellwether_sql::{Follower, Migrations};
use bellwether_testkit::servers::{PostgresServer, RedisServer};
use sqlx::postgres::PgPool;

use crate::exporter::expose;

/// A database with changes, and a follower of it.
pub(crate) struct Changes {
    postgres: PostgresServer,
    /// Where its metrics are.
    pub(crate) target: String,
}

impl Changes {
    pub(crate) async fn start(redis: &RedisServer) -> Self {
        let postgres = PostgresServer::start();
        let pool = PgPool::connect(&postgres.url()).await.expect("the database");
        Migrations::new(pool.clone()).run().await.expect("the table");
        let store = RedisStore::connect(&redis.url(), "catalog").await.expect("the store");
        let follower = Follower::new(pool, store).kind("product", "product").start().await;
        let follower = follower.expect("a follower");
        Self { postgres, target: expose(move || publish(&follower)).await }
    }

    /// Records a change, one minute ago.
    pub(crate) fn record(&self, name: &str) {
        self.postgres.command(&format!(
            "INSERT INTO bellwether_changes (target, name, parts, made_at)
             VALUES ('key', '{name}', '[42]', now() - interval '1 minute')"
        ));
    }
}
