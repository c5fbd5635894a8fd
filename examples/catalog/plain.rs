//! A plain cache with a time to live, for comparison: what is found and fresh is served, what is
//! missing is queried and kept.
//!
//! So all callers that miss together query together: at the start, and whenever a popular answer
//! expires. That is how most caches in front of a database are written by hand. (moka could share
//! loads within one process by its `try_get_with`; this lane shows what happens without.)

use std::hash::Hash;
use std::time::Duration;

use moka::sync::Cache as PlainCache;

use crate::catalog::Product;
use crate::source::{Category, Connections, QueryError, Search};

/// How many answers of each kind are kept.
const ENTRIES: u64 = 100_000;

/// The answers of the catalog, each kept for its time to live.
pub(crate) struct PlainCaches {
    products: PlainCache<u32, Option<Product>>,
    pages: PlainCache<Search, Vec<u32>>,
    categories: PlainCache<(), Vec<Category>>,
}

impl PlainCaches {
    /// The same times to live as with bellwether, so that both query equally often at best.
    pub(crate) fn new(ttl: Duration, categories_ttl: Duration) -> Self {
        Self { products: kept_for(ttl), pages: kept_for(ttl), categories: kept_for(categories_ttl) }
    }

    pub(crate) async fn product(
        &self,
        database: &Connections,
        sku: u32,
    ) -> Result<Option<Product>, QueryError> {
        let load = async { Ok(database.products(vec![sku]).await?.remove(&sku)) };
        get_or_load(&self.products, sku, load).await
    }

    /// A page of a search: one query for the SKUs, and one for all products that are missing.
    pub(crate) async fn search(
        &self,
        database: &Connections,
        search: &Search,
    ) -> Result<Vec<Product>, QueryError> {
        let load = database.search(search);
        let skus = get_or_load(&self.pages, search.clone(), load).await?;
        let is_missing = |sku: &u32| !self.products.contains_key(sku);
        let missing: Vec<_> = skus.iter().copied().filter(is_missing).collect();
        let mut loaded = match missing.is_empty() {
            true => Default::default(),
            false => database.products(missing).await?,
        };
        for (sku, product) in &loaded {
            self.products.insert(*sku, Some(product.clone()));
        }
        // What has expired since it was counted as present is left out of the page.
        let product = |sku| loaded.remove(&sku).or_else(|| self.products.get(&sku).flatten());
        Ok(skus.into_iter().filter_map(product).collect())
    }

    pub(crate) async fn categories(
        &self,
        database: &Connections,
    ) -> Result<Vec<Category>, QueryError> {
        get_or_load(&self.categories, (), database.categories()).await
    }

    /// Removes a product, from this process.
    pub(crate) fn invalidate(&self, sku: u32) {
        self.products.invalidate(&sku);
    }
}

async fn get_or_load<K, V, E>(
    cache: &PlainCache<K, V>,
    key: K,
    load: impl Future<Output = Result<V, E>>,
) -> Result<V, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    if let Some(found) = cache.get(&key) {
        return Ok(found);
    }
    let loaded = load.await?;
    cache.insert(key, loaded.clone());
    Ok(loaded)
}

fn kept_for<K, V>(ttl: Duration) -> PlainCache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    PlainCache::builder().max_capacity(ENTRIES).time_to_live(ttl).build()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn callers_that_miss_together_load_together() {
        let cache = kept_for(Duration::from_secs(60));
        let loads = AtomicU32::new(0);
        let ask = async |_| {
            let load = async {
                yield_now().await;
                loads.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(7)
            };
            get_or_load(&cache, 42, load).await.unwrap()
        };
        assert_eq!(join_all((0..10).map(ask)).await, [7; 10]);
        assert_eq!(loads.load(Ordering::Relaxed), 10);
        assert_eq!((ask(0).await, loads.into_inner()), (7, 10));
    }
}
