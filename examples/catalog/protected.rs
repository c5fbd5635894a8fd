//! The way through bellwether. The page shows what follows the types.

use std::time::Duration;

use bellwether::store::Store;
use bellwether::{Cache, CacheStatus, ConfigError, Error};

use crate::catalog::Product;
use crate::source::{Database, QueryError};
use crate::way::TTL;

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) type Products = Cache<u32, Option<Product>>;
/// A product, if there is one, and how the answer came about.
pub(crate) type Answer = (Result<Option<Product>, Error<QueryError>>, CacheStatus);
/// Whether there is such a product.
pub(crate) type IsThere = Result<bool, QueryError>;

pub(crate) fn cache(store: impl Store) -> Result<Products, ConfigError> {
    let cache = Cache::builder("product", store).ttl(TTL);
    cache.stale_while_revalidate(MINUTE).stale_if_error(60 * MINUTE).build()
}

pub(crate) async fn product(cache: &Products, db: Database, sku: u32) -> Answer {
    cache.get_or_load(sku, async move || db.product(sku).await).with_status().await
}

pub(crate) async fn set_price(cache: &Products, db: Database, sku: u32, cents: i64) -> IsThere {
    let changed = cache.change(sku, async move { db.set_price(sku, cents).await }).await?;
    Ok(changed.into_inner())
}
