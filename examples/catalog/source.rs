//! The database as a process queries it: counted, slow and broken on demand.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::AnyPool;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::Fault;
use crate::catalog::Product;
use crate::tables::{self, Tables};

/// Connections of each way and process. This is a usual number; a larger burst has to queue for them.
const CONNECTIONS: u32 = 8;
/// A query that queues for longer gets an error, as with any pool.
const QUEUE_LIMIT: Duration = Duration::from_secs(10);
/// What a slow database adds to a query.
const SLOWNESS: Duration = Duration::from_millis(500);

const TABLES: Tables = Tables::of("catalog");

/// The database did not answer.
#[derive(Clone, Debug)]
pub(crate) enum QueryError {
    /// The database is switched off.
    Broken,
    /// It failed, or there was no connection in time.
    Failed(Arc<sqlx::Error>),
}

/// One way's connections to the database.
#[derive(Clone)]
pub(crate) struct Database {
    pool: AnyPool,
    queries: Arc<Queries>,
    weather: Arc<Weather>,
}

/// The faults of the database.
#[derive(Default)]
pub(crate) struct Weather {
    pub(crate) load_time: Duration,
    pub(crate) slow: AtomicBool,
    pub(crate) broken: AtomicBool,
    /// A product whose queries are on their way until this is another one.
    pub(crate) held: watch::Sender<u32>,
}

/// How often the database was queried.
#[derive(Default)]
struct Queries {
    all: AtomicU64,
    queued: AtomicU64,
    /// Held to count one query, or to read a count.
    by_sku: Mutex<HashMap<u32, u64>>,
}

/// Makes the tables, if they are not there: in a database, or in a file beside this program. Says where.
pub(crate) async fn prepare(database: Option<&str>) -> Result<String, Fault> {
    TABLES.prepare(database, None).await
}

impl Database {
    pub(crate) async fn open(url: &str, weather: &Arc<Weather>) -> Result<Self, Fault> {
        let pool = tables::connect(url, CONNECTIONS, QUEUE_LIMIT).await?;
        Ok(Self { pool, queries: Arc::default(), weather: Arc::clone(weather) })
    }

    /// Queries so far.
    pub(crate) fn queries(&self) -> u64 {
        self.queries.all.load(Ordering::Relaxed)
    }

    /// How many queries wait for a connection.
    pub(crate) fn queued(&self) -> u64 {
        self.queries.queued.load(Ordering::Relaxed)
    }

    /// Queries so far for this product.
    pub(crate) fn queries_for(&self, sku: u32) -> u64 {
        let by_sku = self.queries.by_sku.lock().unwrap_or_else(PoisonError::into_inner);
        by_sku.get(&sku).copied().unwrap_or(0)
    }

    /// A product, if there is one. It is read at once, and then it is on its way for a while; the
    /// connection is held until it is there.
    pub(crate) async fn product(&self, sku: u32) -> Result<Option<Product>, QueryError> {
        let queued = Queued::behind(&self.queries.queued);
        let mut connection = self.pool.acquire().await?;
        drop(queued);
        self.queries.all.fetch_add(1, Ordering::Relaxed);
        let sql = format!("{} WHERE product.sku = $1", TABLES.select_products());
        let query = sqlx::query(&sql).bind(i64::from(sku));
        let row = query.fetch_optional(&mut *connection).await?;
        self.queries.note(sku);
        let _ = self.weather.held.subscribe().wait_for(|held| *held != sku).await;
        sleep(self.weather.load_time()).await;
        if self.weather.broken.load(Ordering::Relaxed) {
            return Err(QueryError::Broken);
        }
        Ok(row.as_ref().map(tables::product).transpose()?)
    }

    /// Changes a price, and says whether there is such a product.
    pub(crate) async fn set_price(&self, sku: u32, price_cents: i64) -> Result<bool, QueryError> {
        let update = "UPDATE catalog_product SET price_cents = $1 WHERE sku = $2";
        let update = sqlx::query(update).bind(price_cents).bind(i64::from(sku));
        Ok(update.execute(&self.pool).await?.rows_affected() > 0)
    }
}

/// A query that waits for a connection.
struct Queued<'a>(&'a AtomicU64);

impl<'a> Queued<'a> {
    fn behind(queued: &'a AtomicU64) -> Self {
        queued.fetch_add(1, Ordering::Relaxed);
        Self(queued)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Weather {
    fn load_time(&self) -> Duration {
        let slowness = if self.slow.load(Ordering::Relaxed) { SLOWNESS } else { Duration::ZERO };
        self.load_time + slowness
    }
}

impl Queries {
    /// One that has read the row of a product.
    fn note(&self, sku: u32) {
        let mut by_sku = self.by_sku.lock().unwrap_or_else(PoisonError::into_inner);
        *by_sku.entry(sku).or_default() += 1;
    }
}

impl From<sqlx::Error> for QueryError {
    fn from(fault: sqlx::Error) -> Self {
        Self::Failed(Arc::new(fault))
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken => formatter.write_str("the database is broken, as you asked"),
            Self::Failed(fault) => write!(formatter, "the query failed: {fault}"),
        }
    }
}

impl std::error::Error for QueryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Broken => None,
            Self::Failed(fault) => Some(&**fault),
        }
    }
}
