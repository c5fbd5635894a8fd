//! An SQLite file. Its calls block, so each runs in a thread for such calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rusqlite::{Connection, Row, params};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{COUNT, Connections, Counts, FORGET, LEAVE_TRACE, QUERIES, QUEUE_LIMIT, TABLES, way};
use crate::Fault;
use crate::catalog::Product;
use crate::catalog::schema::{OwnFile, SQLITE_PRAGMAS};
use crate::messages::Ask;
use crate::ways::Way;

const SCHEME: &str = "sqlite:";

/// The connections to a file, for one run.
pub(super) struct SqliteConnections {
    pool: Arc<Pool>,
    find: Arc<str>,
    run: Arc<str>,
}

/// As many connections as there are permits.
struct Pool {
    url: String,
    /// Held to take or to give back one, never while it is used.
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

pub(super) fn is_file(url: &str) -> bool {
    url.starts_with(SCHEME)
}

/// The file beside the program, filled by the first run. Returns its URL.
pub(super) async fn prepare_own_file() -> Result<String, Fault> {
    let own = OwnFile::find(&TABLES.file_name())?;
    if let Some(draft) = own.draft() {
        fill(&draft).await?;
    }
    own.filled()
}

/// Makes sure that the catalog is in this file.
pub(super) async fn fill(url: &str) -> Result<(), Fault> {
    let url = url.to_owned();
    spawn_blocking(move || fill_now(&url)).await?
}

fn fill_now(url: &str) -> Result<(), Fault> {
    let mut connection = connect(url)?;
    for table in TABLES.definitions().iter().map(String::as_str).chain([QUERIES]) {
        connection.execute_batch(table)?;
    }
    let products = connection.query_row(&TABLES.count_products(), [], |row| row.get(0))?;
    if TABLES.is_empty(products)? {
        let transaction = connection.transaction()?;
        for statement in TABLES.insertions() {
            transaction.execute_batch(&statement)?;
        }
        transaction.commit()?;
    }
    connection.close().map_err(|(_, fault)| fault.into())
}

fn connect(url: &str) -> Result<Connection, rusqlite::Error> {
    let path = url.trim_start_matches(SCHEME).trim_start_matches("//");
    // SQLite decodes what is encoded in the path, and reads the parameters.
    let connection = Connection::open(format!("file:{path}"))?;
    connection.execute_batch(&SQLITE_PRAGMAS.join(";"))?;
    Ok(connection)
}

impl SqliteConnections {
    pub(super) fn open(url: &str, run: &str, connections: u32) -> Result<Self, Fault> {
        let idle: Result<_, _> = (0..connections).map(|_| connect(url)).collect();
        let permits = Arc::new(Semaphore::new(connections as usize));
        let pool = Pool { url: url.to_owned(), idle: Mutex::new(idle?), permits };
        let find = format!("{} WHERE product.sku = ?", TABLES.select_products());
        Ok(Self { pool: Arc::new(pool), find: find.into(), run: run.into() })
    }

    /// Runs a piece of work with a connection.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let queued = timeout(QUEUE_LIMIT, Arc::clone(&self.pool.permits).acquire_owned()).await;
        let permit = queued.map_err(|_| "no connection to the database became free")??;
        let pool = Arc::clone(&self.pool);
        let worked = spawn_blocking(move || {
            let connection = pool.take()?;
            let result = work(&connection);
            pool.idle().push(connection);
            drop(permit);
            result
        });
        worked.await?
    }
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that is not in use. A new one if one was lost.
    fn take(&self) -> Result<Connection, rusqlite::Error> {
        let idle = self.idle().pop();
        idle.map_or_else(|| connect(&self.url), Ok)
    }
}

impl Connections for SqliteConnections {
    fn find(&self, way: Way, ask: &Ask) -> BoxFuture<'_, Result<Product, Fault>> {
        let (find, run, ask) = (Arc::clone(&self.find), Arc::clone(&self.run), *ask);
        self.with(move |connection| {
            let mut trace = connection.prepare_cached(LEAVE_TRACE)?;
            trace.execute(params![run, way.name(), ask.round, ask.sku])?;
            let mut find = connection.prepare_cached(&find)?;
            Ok(find.query_row([ask.sku], product)?)
        })
        .boxed()
    }

    fn counts(&self) -> BoxFuture<'_, Result<Counts, Fault>> {
        let run = Arc::clone(&self.run);
        self.with(move |connection| {
            let mut counts = connection.prepare(COUNT)?;
            let mut rows = counts.query([run])?;
            let mut counted = Counts::new();
            while let Some(row) = rows.next()? {
                let name: String = row.get("way")?;
                let key = (way(&name)?, row.get("round")?, row.get("sku")?);
                counted.insert(key, row.get("queries")?);
            }
            Ok(counted)
        })
        .boxed()
    }

    fn forget(&self) -> BoxFuture<'_, Result<(), Fault>> {
        let run = Arc::clone(&self.run);
        self.with(move |connection| Ok(connection.execute(FORGET, [run]).map(drop)?)).boxed()
    }
}

fn product(row: &Row<'_>) -> Result<Product, rusqlite::Error> {
    Ok(Product {
        sku: row.get("sku")?,
        name: row.get("name")?,
        price_cents: row.get("price_cents")?,
        stock: row.get("stock")?,
        categories: [row.get("department")?, row.get("aisle")?, row.get("shelf")?],
    })
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn each_query_gives_its_product_and_leaves_a_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}/the%20shop.db?mode=rwc", folder.path().display());
        fill(&url).await.expect("a catalog");
        fill(&url).await.expect("the same catalog");
        assert!(folder.path().join("the shop.db").is_file());

        let [ours, other] =
            ["ours", "other"].map(|run| SqliteConnections::open(&url, run, 2).expect("a database"));
        let asks = (0..20).map(|caller| Ask { sku: 42 + caller % 2, round: 7, caller });
        let finds = asks.map(|ask| {
            let found = ours.find(Way::Bellwether, &ask);
            async move { (ask.sku, found.await) }
        });
        for (sku, found) in join_all(finds).await {
            assert_eq!(found.expect("a product"), Product::of(sku));
        }
        let counts = Counts::from([((Way::Bellwether, 7, 42), 10), ((Way::Bellwether, 7, 43), 10)]);
        assert_eq!(ours.counts().await.expect("counts"), counts);
        assert!(other.counts().await.expect("counts").is_empty(), "another run");
        ours.forget().await.expect("no rows");
        assert!(ours.counts().await.expect("counts").is_empty());
        assert!(ours.pool.idle().len() == 2, "each connection was given back");
    }

    #[tokio::test]
    async fn a_table_that_is_not_ours_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}/shop.db", folder.path().display());
        let connection = connect(&url).expect("a database");
        let [_, products] = TABLES.definitions();
        connection.execute_batch(&products).expect("a table");
        let row = "INSERT INTO stampede_product VALUES (1, 1, 'bell', 1, 1)";
        connection.execute_batch(row).expect("a row");
        let complaint = fill(&url).await.unwrap_err().to_string();
        assert!(complaint.contains("stampede_product holds 1 products"), "{complaint}");
    }
}
