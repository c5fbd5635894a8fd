//! The source of the functions under test.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellwether::{Cache, CacheKey, MemoryStore, read_through};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Item {
    name: String,
}

impl Item {
    pub(crate) fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

/// There is no such warehouse.
#[derive(Debug)]
pub(crate) struct Missing;

#[derive(Clone, Copy, CacheKey)]
pub(crate) struct Sku(pub(crate) u64);

/// A database that counts, and the caches in front of it.
#[derive(Clone)]
pub(crate) struct Catalog {
    pub(crate) items: Cache<(String, u64), Item>,
    pub(crate) pairs: Cache<(String, String), Item>,
    pub(crate) stock: Cache<(Sku, bool), Item>,
    pub(crate) names: Cache<String, Item>,
    /// A warehouse that it does not have.
    pub(crate) without: &'static str,
    queries: Arc<AtomicUsize>,
}

impl Catalog {
    pub(crate) fn new() -> Self {
        Self::without("atlantis")
    }

    pub(crate) fn without(warehouse: &'static str) -> Self {
        let store = MemoryStore::new(100);
        Self {
            items: cache("item", &store),
            pairs: cache("pair", &store),
            stock: cache("stock", &store),
            names: cache("name", &store),
            without: warehouse,
            queries: Arc::default(),
        }
    }

    pub(crate) fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }

    /// Takes a while, so that callers that ask meanwhile share the load.
    pub(crate) async fn query(
        &self,
        warehouse: impl Display,
        sku: impl Display,
    ) -> Result<Item, Missing> {
        self.queries.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        let warehouse = warehouse.to_string();
        if warehouse == self.without {
            Err(Missing)
        } else {
            Ok(Item::named(format!("{warehouse} {sku}")))
        }
    }
}

#[read_through(cache = catalog.items, skip(catalog))]
pub(crate) async fn item(catalog: &Catalog, warehouse: &str, sku: u64) -> Result<Item, Missing> {
    catalog.query(warehouse, sku).await
}

fn cache<K>(name: &str, store: &MemoryStore) -> Cache<K, Item> {
    let builder = Cache::builder(name, store.clone()).ttl(Duration::from_secs(60));
    builder.stale_while_revalidate(Duration::from_secs(60)).build().unwrap()
}

impl Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such warehouse")
    }
}

impl std::error::Error for Missing {}
