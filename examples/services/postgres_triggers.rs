//! Prices that change by `psql`: triggers record what has changed, and a follower applies it to the cache.
//!
//! It needs a PostgreSQL and a Redis, and creates the table `prices` if it is missing:
//!
//! ```text
//! DATABASE_URL=postgres://localhost/shop REDIS_URL=redis://127.0.0.1:6379 \
//!     cargo run -p bellwether-examples --bin postgres_triggers
//! psql postgres://localhost/shop -c 'UPDATE prices SET cents = cents + 1'
//! ```

use std::env;
use std::error::Error;
use std::time::Duration;

use bellwether::Cache;
use bellwether_redis::RedisStore;
use bellwether_sql::{Follower, Migrations};
use sqlx::PgPool;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init(); // says why a load fails
    let db = PgPool::connect(&env::var("DATABASE_URL")?).await?;
    Migrations::new(db.clone()).run().await?;
    sqlx::raw_sql(SCHEMA).execute(&db).await?;
    let store = RedisStore::connect(&env::var("REDIS_URL")?, "shop").await?;
    // No writer tells the cache, and yet a price may be cached for an hour.
    let prices: Cache<i64, i64> =
        Cache::builder("price", store.clone()).ttl(Duration::from_secs(3_600)).build()?;
    let follower = Follower::new(db.clone(), store).cache(&prices).start().await?;
    let mut shown = None;
    loop {
        let db = db.clone(); // the closure owns what it uses
        let load = async move || {
            println!("asks the database");
            let cents = sqlx::query_scalar("SELECT cents FROM prices WHERE id = 1");
            cents.fetch_one(&db).await
        };
        let cents = prices.get_or_load::<_, _, sqlx::Error>(1, load).await?;
        if shown.replace(cents) != Some(cents) {
            println!("{cents} cents");
        }
        tokio::select! {
            () = sleep(Duration::from_millis(100)) => {}
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    follower.shutdown().await;
    Ok(())
}

const SCHEMA: &str =
    "CREATE TABLE IF NOT EXISTS prices (id bigint PRIMARY KEY, cents bigint NOT NULL);
     INSERT INTO prices VALUES (1, 999) ON CONFLICT DO NOTHING;
     SELECT bellwether_watch('prices', 'key', 'price', 'id');";
