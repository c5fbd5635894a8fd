//! The products as one process answers them, in all ways.

use std::sync::Arc;
use std::time::Instant;

use bellwether::{CacheStatus, MemoryStore, metrics};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_sql::FollowerHandle;
use moka::future::Cache as Moka;

use crate::Fault;
use crate::args::Args;
use crate::catalog::Product;
use crate::changes;
use crate::protected::{self, Products};
use crate::source::{Database, QueryError, Weather};
use crate::tables;
use crate::timings::Timings;
use crate::way::{TTL, Way};

/// How many products a cache in memory holds.
const ENTRIES: usize = 100_000;
/// The size of the copies in the process, in bytes, if the store is a Redis.
const NEAR: usize = 16 * 1024 * 1024;

/// A product, if there is one. The status is in the words of RFC 9211; there is none if bellwether was
/// not asked.
pub(crate) type Found = (Option<Product>, Option<CacheStatus>);

pub(crate) struct Shop {
    pub(crate) weather: Arc<Weather>,
    /// Of each way, in the order of [`Way::ALL`].
    databases: [Database; 3],
    timings: [Timings; 3],
    moka: Moka<u32, Option<Product>>,
    pub(crate) products: Products,
    /// Publishes what the store has done as metrics.
    pub(crate) publish_store: Box<dyn Fn() + Send + Sync>,
    /// Applies changes by SQL, if the database records any.
    pub(crate) follower: Option<FollowerHandle>,
}

impl Shop {
    pub(crate) async fn open(args: &Args) -> Result<Self, Fault> {
        let weather = Arc::new(Weather { load_time: args.load_time(), ..Weather::default() });
        let database = args.database.as_deref().unwrap_or_default();
        let open = async || Database::open(database, &weather).await;
        let databases = [open().await?, open().await?, open().await?];
        let (products, store, publish_store) = products(args.store.as_deref()).await?;
        let follower = match store.filter(|_| args.records_changes()) {
            Some(store) => Some(changes::follow(database, &products, store).await?),
            None => None,
        };
        let moka = Moka::builder().max_capacity(ENTRIES as u64).time_to_live(TTL).build();
        let timings = Default::default();
        Ok(Self { weather, databases, timings, moka, products, publish_store, follower })
    }

    pub(crate) fn database(&self, way: Way) -> &Database {
        &self.databases[way as usize]
    }

    pub(crate) fn timings(&self, way: Way) -> &Timings {
        &self.timings[way as usize]
    }

    pub(crate) async fn product(&self, way: Way, sku: u32) -> Result<Found, Fault> {
        let began = Instant::now();
        let db = self.database(way).clone();
        let answer = match way {
            Way::Unprotected => (db.product(sku).await.map_err(Fault::from), None),
            Way::Moka => {
                let answer = self.moka.try_get_with(sku, db.product(sku)).await;
                (answer.map_err(|fault: Arc<QueryError>| fault.into()), None)
            }
            Way::Protected => {
                let (answer, status) = protected::product(&self.products, db, sku).await;
                (answer.map_err(Fault::from), Some(status))
            }
        };
        self.timings(way).note(began.elapsed(), answer.0.is_ok());
        Ok((answer.0?, answer.1))
    }

    /// Changes a price, and says whether there is such a product.
    pub(crate) async fn set_price(&self, sku: u32, price_cents: i64) -> Result<bool, Fault> {
        let db = self.database(Way::Protected).clone();
        let is_there = protected::set_price(&self.products, db, sku, price_cents).await?;
        self.forget(sku).await;
        Ok(is_there)
    }

    /// Removes a product from the cache of this process.
    pub(crate) async fn forget(&self, sku: u32) {
        self.moka.invalidate(&sku).await;
    }
}

/// A cache, its store if that is a Redis, and what publishes what the store has done.
type Opened = (Products, Option<RedisStore>, Box<dyn Fn() + Send + Sync>);

async fn products(store: Option<&str>) -> Result<Opened, Fault> {
    let Some(url) = store.filter(|store| *store != "memory") else {
        let store = MemoryStore::new(ENTRIES);
        let products = protected::cache(store.clone())?;
        return Ok((products, None, Box::new(move || metrics::publish(&store))));
    };
    let store = RedisOptions::new(url, "catalog")?.near(NEAR).connect().await;
    let store = store.map_err(|fault| format!("--store {}: {fault}", tables::shown(url)))?;
    let products = protected::cache(store.clone())?;
    Ok((products, Some(store.clone()), Box::new(move || metrics::publish(&store))))
}
