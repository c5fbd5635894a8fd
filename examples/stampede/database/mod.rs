//! The database: one query, and the row that it leaves.
//!
//! Before a query reads its product, it writes a row into `stampede_query`. The program counts the
//! rows after the run. So the count comes from the database and not from the loaders, it includes
//! all processes, and it works in any database. The row and the read are not one transaction: a
//! query that fails counts too, and in SQLite the unprotected way would hold the only write lock
//! for longer.
//!
//! It is an SQLite file ([`sqlite`]), or with a feature of that name a server of PostgreSQL or MySQL.

#[cfg(any(feature = "mysql", feature = "postgres"))]
mod remote;
mod sqlite;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::Fault;
use crate::catalog::Product;
use crate::catalog::schema::Tables;
use crate::messages::Ask;
use crate::shown::shown;
use crate::ways::Way;

/// The unprotected way queues for connections; that is not an error.
const QUEUE_LIMIT: Duration = Duration::from_secs(120);

const TABLES: Tables = Tables::of("stampede");
const QUERIES: &str = "CREATE TABLE IF NOT EXISTS stampede_query (
    run VARCHAR(16) NOT NULL, way VARCHAR(16) NOT NULL,
    round INTEGER NOT NULL, sku INTEGER NOT NULL)";
const LEAVE_TRACE: &str = "INSERT INTO stampede_query (run, way, round, sku) VALUES (?, ?, ?, ?)";
const COUNT: &str = "
    SELECT way, round, sku, COUNT(*) AS queries
    FROM stampede_query
    WHERE run = ?
    GROUP BY way, round, sku";
const FORGET: &str = "DELETE FROM stampede_query WHERE run = ?";

/// Queries by way, round and SKU.
pub(crate) type Counts = HashMap<(Way, u32, u32), u64>;

/// The connections of one process, for one run.
pub(crate) type Database = Arc<dyn Connections>;

/// What a run asks of its database.
pub(crate) trait Connections: Send + Sync {
    /// The query that every load runs.
    fn find(&self, way: Way, ask: &Ask) -> BoxFuture<'_, Result<Product, Fault>>;

    /// The number of queries of this run.
    fn counts(&self) -> BoxFuture<'_, Result<Counts, Fault>>;

    /// Removes the rows of this run.
    fn forget(&self) -> BoxFuture<'_, Result<(), Fault>>;
}

/// Creates the catalog if it does not exist, and returns its URL.
pub(crate) async fn prepare(url: Option<&str>) -> Result<String, Fault> {
    let Some(url) = url else { return sqlite::prepare_own_file().await };
    let prepared = if sqlite::is_file(url) { sqlite::fill(url).await } else { fill(url).await };
    prepared.map_err(|fault| format!("--database-url {}: {fault}", shown(url)))?;
    Ok(url.to_owned())
}

/// Connects now, so that no burst has to.
pub(crate) async fn open(url: &str, run: &str, connections: u32) -> Result<Database, Fault> {
    if sqlite::is_file(url) {
        return Ok(Arc::new(sqlite::SqliteConnections::open(url, run, connections)?));
    }
    open_remote(url, run, connections).await
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
async fn fill(url: &str) -> Result<(), Fault> {
    TABLES.prepare(Some(url), Some(QUERIES)).await.map(drop)
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
async fn open_remote(url: &str, run: &str, connections: u32) -> Result<Database, Fault> {
    Ok(Arc::new(remote::RemoteConnections::open(url, run, connections).await?))
}

#[cfg(not(any(feature = "mysql", feature = "postgres")))]
async fn fill(_: &str) -> Result<(), Fault> {
    Err(NO_DRIVER.into())
}

#[cfg(not(any(feature = "mysql", feature = "postgres")))]
async fn open_remote(_: &str, _: &str, _: u32) -> Result<Database, Fault> {
    Err(NO_DRIVER.into())
}

#[cfg(not(any(feature = "mysql", feature = "postgres")))]
const NO_DRIVER: &str = "this build has no driver for it";

/// Complains about a URL without what may be secret in it.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    let refuse = |reason: &str| Err(format!("--database-url {}: {reason}", shown(url)));
    if sqlite::is_file(url) {
        let is_in_memory = url.contains(":memory:") || url.contains("mode=memory");
        return if is_in_memory { refuse("one in memory cannot be shared") } else { Ok(()) };
    }
    let drivers = [
        ("mysql:", "mysql", cfg!(feature = "mysql")),
        ("mariadb:", "mysql", cfg!(feature = "mysql")),
        ("postgres:", "postgres", cfg!(feature = "postgres")),
        ("postgresql:", "postgres", cfg!(feature = "postgres")),
    ];
    match drivers.iter().find(|(scheme, ..)| url.starts_with(scheme)) {
        None => refuse("it does not start with sqlite:, postgres: or mysql:"),
        Some((scheme, feature, false)) => refuse(&format!(
            "this build has no driver for {scheme} URLs, use \
             cargo run --release --features {feature} --example stampede"
        )),
        #[cfg(any(feature = "mysql", feature = "postgres"))]
        Some(_) => remote::check_url(url),
        #[cfg(not(any(feature = "mysql", feature = "postgres")))]
        Some(_) => Ok(()),
    }
}

/// The kind of the database, for the report: its URL may hold a password.
pub(crate) fn kind(url: Option<&str>) -> &str {
    url.and_then(|url| url.split_once(':')).map_or("sqlite", |(scheme, _)| scheme)
}

/// The name that the makers of the database give it.
pub(crate) fn product_name(url: Option<&str>) -> &str {
    match kind(url) {
        "mariadb" => "MariaDB",
        "mysql" => "MySQL",
        "postgres" | "postgresql" => "PostgreSQL",
        "sqlite" => "SQLite",
        other => other,
    }
}

/// A way by its name in the database.
fn way(name: &str) -> Result<Way, Fault> {
    Way::named(name).ok_or_else(|| format!("there is no way `{name}`").into())
}
