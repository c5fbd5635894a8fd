//! Changes by SQL, which no process of the shop makes: triggers record them, and each process follows.

use bellwether_redis::RedisStore;
use bellwether_sql::{Follower, FollowerHandle, Migrations};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection, PgPool};

use crate::Fault;
use crate::protected::Products;

/// Makes the table of changes, and the triggers that fill it.
pub(crate) async fn record(url: &str) -> Result<(), Fault> {
    let pool = PgPool::connect(url).await?;
    Migrations::new(pool.clone()).run().await?;
    let watch = "SELECT bellwether_watch('catalog_product', 'key', 'product', 'sku')";
    sqlx::query(watch).execute(&pool).await?;
    pool.close().await;
    Ok(())
}

/// Applies them to the store.
pub(crate) async fn follow(
    url: &str,
    products: &Products,
    store: RedisStore,
) -> Result<FollowerHandle, Fault> {
    let pool = PgPoolOptions::new().max_connections(1).connect(url).await?;
    Ok(Follower::new(pool, store).cache(products).start().await?)
}

/// What `psql` does: this connection knows of no cache.
pub(crate) async fn set_price(url: &str, sku: u32, cents: i64) -> Result<(), Fault> {
    let mut connection = PgConnection::connect(url).await?;
    let update = sqlx::query("UPDATE catalog_product SET price_cents = $1 WHERE sku = $2");
    update.bind(cents).bind(i64::from(sku)).execute(&mut connection).await?;
    Ok(connection.close().await?)
}
