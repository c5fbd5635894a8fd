//! The database as the services query it: counted, delayed, and broken on demand.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether::CacheKey;
use serde::{Deserialize, Serialize};
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyPool, Row};
use tokio::time::sleep;
use tracing::instrument;

use crate::Fault;
use crate::catalog::Product;
use crate::tables::{self, Tables, small};
use crate::way::Way;

/// Connections of each way. This is a usual number; a larger burst has to queue for them.
const CONNECTIONS: u32 = 8;
/// A query that queues for longer gets an error, as with any pool.
const QUEUE_LIMIT: Duration = Duration::from_secs(10);
/// The delay that a slow database adds to a query.
const SLOWNESS: Duration = Duration::from_millis(500);
/// Products on a page of search results.
const PAGE: u32 = 12;

const TABLES: Tables = Tables::of("catalog");

/// A category with those below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Category {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) children: Vec<Self>,
}

/// A search: words of a name, a category of any level, or both.
#[derive(CacheKey, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Search {
    pub(crate) words: String,
    pub(crate) category: Option<u32>,
    /// Counted from 1.
    pub(crate) page: u32,
}

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
pub(crate) struct Connections {
    pool: AnyPool,
    queries: Arc<Queries>,
    weather: Arc<Weather>,
    url: Arc<str>,
}

/// The database, for all ways.
pub(crate) struct Source {
    /// Of each way, in the order of [`Way::ALL`].
    connections: [Connections; 3],
    pub(crate) weather: Arc<Weather>,
}

/// The faults of the database.
pub(crate) struct Weather {
    load_time: Duration,
    pub(crate) slow: AtomicBool,
    pub(crate) broken: AtomicBool,
}

/// How often the database was queried.
#[derive(Default)]
struct Queries {
    all: AtomicU64,
    queued: AtomicU64,
    by_sku: Mutex<HashMap<u32, u64>>,
}

impl Source {
    pub(crate) async fn open(url: Option<&str>, load_time: Duration) -> Result<Self, Fault> {
        let prepared = TABLES.prepare(url, None).await;
        let named = |fault: Fault| match url {
            Some(url) => Fault::from(format!("--database-url {}: {fault}", tables::shown(url))),
            None => fault,
        };
        let url: Arc<str> = prepared.map_err(named)?.into();
        let weather = Weather { load_time, slow: false.into(), broken: false.into() };
        let weather = Arc::new(weather);
        let connections = async || {
            let pool = tables::connect(&url, CONNECTIONS, QUEUE_LIMIT).await?;
            let queries = Arc::default();
            let weather = Arc::clone(&weather);
            Ok::<_, Fault>(Connections { pool, queries, weather, url: Arc::clone(&url) })
        };
        let open = async || connections().await.map_err(named);
        let connections = [open().await?, open().await?, open().await?];
        Ok(Self { connections, weather })
    }

    pub(crate) fn of(&self, way: Way) -> &Connections {
        &self.connections[way as usize]
    }
}

impl Connections {
    /// Queries so far.
    pub(crate) fn queries(&self) -> u64 {
        self.queries.all.load(Ordering::Relaxed)
    }

    /// How many queries wait for a connection.
    pub(crate) fn queued(&self) -> u64 {
        self.queries.queued.load(Ordering::Relaxed)
    }

    /// Queries so far that asked for this product, alone or among others.
    pub(crate) fn queries_for(&self, sku: u32) -> u64 {
        let by_sku = self.queries.by_sku.lock().unwrap_or_else(PoisonError::into_inner);
        by_sku.get(&sku).copied().unwrap_or(0)
    }

    /// One query for any number of products. SKUs without a product are left out.
    #[instrument(name = "query", skip_all, fields(of = "products", skus = skus.len()))]
    pub(crate) async fn products(
        &self,
        skus: Vec<u32>,
    ) -> Result<HashMap<u32, Product>, QueryError> {
        let places = vec!["?"; skus.len()].join(", ");
        let sql = format!("{} WHERE product.sku IN ({places})", TABLES.select_products());
        let mut connection = self.connection(&skus).await?;
        let sql = tables::placeholders(&self.url, &sql);
        let query = skus.iter().fold(sqlx::query(&sql), |query, sku| query.bind(i64::from(*sku)));
        let rows = query.fetch_all(&mut *connection).await?;
        let products = rows.iter().map(|row| tables::product(row).map(|found| (found.sku, found)));
        Ok(products.collect::<Result<_, _>>()?)
    }

    /// The SKUs of one page of the result.
    #[instrument(name = "query", skip_all, fields(of = "search"))]
    pub(crate) async fn search(&self, search: &Search) -> Result<Vec<u32>, QueryError> {
        let mut connection = self.connection(&[]).await?;
        let sql = tables::placeholders(&self.url, &search_sql(search));
        let mut query = sqlx::query(&sql).bind(pattern(&search.words));
        if let Some(category) = search.category.map(i64::from) {
            query = query.bind(category).bind(category).bind(category);
        }
        let rows = query.fetch_all(&mut *connection).await?;
        Ok(rows.iter().map(|row| small(row, "sku")).collect::<Result<_, _>>()?)
    }

    /// All categories, as a tree of three levels.
    #[instrument(name = "query", skip_all, fields(of = "categories"))]
    pub(crate) async fn categories(&self) -> Result<Vec<Category>, QueryError> {
        let mut connection = self.connection(&[]).await?;
        // A department is the child of 0: not all databases give NULL as a number.
        let sql = "SELECT id, COALESCE(parent_id, 0) AS parent, name FROM catalog_category";
        let rows = sqlx::query(sql).fetch_all(&mut *connection).await?;
        let mut below: HashMap<u32, Vec<(u32, String)>> = HashMap::new();
        for row in &rows {
            let child = (small(row, "id")?, row.try_get("name")?);
            below.entry(small(row, "parent")?).or_default().push(child);
        }
        Ok(tree(&mut below, 0))
    }

    /// Changes a price, and says whether there is such a product.
    pub(crate) async fn set_price(&self, sku: u32, price_cents: i64) -> Result<bool, QueryError> {
        let mut connection = self.connection(&[]).await?;
        let sql = "UPDATE catalog_product SET price_cents = ? WHERE sku = ?";
        let sql = tables::placeholders(&self.url, sql);
        let update = sqlx::query(&sql).bind(price_cents).bind(i64::from(sku));
        Ok(update.execute(&mut *connection).await?.rows_affected() > 0)
    }

    /// A connection, held for as long as a query takes, and the query counted: also one that is
    /// about to fail.
    async fn connection(&self, skus: &[u32]) -> Result<PoolConnection<Any>, QueryError> {
        let queued = Queued::behind(&self.queries.queued);
        let connection = self.pool.acquire().await?;
        drop(queued);
        self.queries.note(skus);
        sleep(self.weather.load_time()).await;
        if self.weather.broken.load(Ordering::Relaxed) {
            return Err(QueryError::Broken);
        }
        Ok(connection)
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
    fn note(&self, skus: &[u32]) {
        self.all.fetch_add(1, Ordering::Relaxed);
        let mut by_sku = self.by_sku.lock().unwrap_or_else(PoisonError::into_inner);
        for sku in skus {
            *by_sku.entry(*sku).or_default() += 1;
        }
    }
}

fn search_sql(search: &Search) -> String {
    let within = match search.category {
        None => "",
        Some(_) => "AND (shelf.id = ? OR aisle.id = ? OR aisle.parent_id = ?)",
    };
    let skipped = u64::from(search.page.saturating_sub(1)) * u64::from(PAGE);
    format!(
        "SELECT product.sku
         FROM catalog_product product
         JOIN catalog_category shelf ON shelf.id = product.category_id
         JOIN catalog_category aisle ON aisle.id = shelf.parent_id
         WHERE LOWER(product.name) LIKE ? {within}
         ORDER BY product.sku LIMIT {PAGE} OFFSET {skipped}"
    )
}

/// Finds the words anywhere, and nothing in them means anything but itself.
fn pattern(words: &str) -> String {
    let plain: String =
        words.to_lowercase().chars().filter(|letter| !"%_\\".contains(*letter)).collect();
    format!("%{plain}%")
}

/// The tree below a category, which is taken out of the table of children.
fn tree(below: &mut HashMap<u32, Vec<(u32, String)>>, parent: u32) -> Vec<Category> {
    let mut children = below.remove(&parent).unwrap_or_default();
    children.sort();
    let branch = |(id, name)| Category { id, name, children: tree(below, id) };
    children.into_iter().map(branch).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_search_are_no_pattern() {
        assert_eq!(pattern("50% Lamp_"), "%50 lamp%");
    }

    #[test]
    fn a_category_holds_its_children() {
        let mut below = HashMap::from([
            (0, vec![(2, "b".to_owned()), (1, "a".to_owned())]),
            (2, vec![(3, "c".to_owned())]),
        ]);
        let tree = tree(&mut below, 0);
        assert_eq!(tree.iter().map(|category| category.id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(tree[1].children[0].name, "c");
    }
}
