//! The database: one query, and the row that it leaves.
//!
//! Before a query reads its product, it writes a row into `stampede_query`. The program counts the
//! rows after the run. So the count comes from the database and not from the loaders, it includes
//! all processes, and it works in any database. The row and the read are not one transaction: a
//! query that fails counts too, and in SQLite the unprotected way would hold the only write lock
//! for longer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::any::AnyRow;
use sqlx::{AnyPool, Row};

use crate::Fault;
use crate::catalog::Product;
use crate::messages::Ask;
use crate::tables::{self, Tables, small};
use crate::ways::Way;

/// Connections of a process that loads. A small server has enough of them for all processes.
pub(crate) const CONNECTIONS: u32 = 8;
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
#[derive(Clone)]
pub(crate) struct Database {
    pool: AnyPool,
    statements: Arc<Statements>,
    run: Arc<str>,
}

struct Statements {
    find: String,
    leave_trace: String,
    count: String,
    forget: String,
}

/// Creates the catalog if it does not exist, and returns its URL.
pub(crate) async fn prepare(url: Option<&str>) -> Result<String, Fault> {
    TABLES.prepare(url, Some(QUERIES)).await
}

impl Database {
    /// Connects now, so that no burst has to.
    pub(crate) async fn open(url: &str, run: &str, connections: u32) -> Result<Self, Fault> {
        let pool = tables::connect(url, connections, QUEUE_LIMIT).await?;
        Ok(Self { pool, statements: Arc::new(Statements::for_database(url)), run: run.into() })
    }

    /// The query that every load runs.
    pub(crate) async fn find(&self, way: Way, ask: &Ask) -> Result<Product, sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        sqlx::query(&self.statements.leave_trace)
            .bind(&*self.run)
            .bind(way.name())
            .bind(i64::from(ask.round))
            .bind(i64::from(ask.sku))
            .execute(&mut *connection)
            .await?;
        let row = sqlx::query(&self.statements.find)
            .bind(i64::from(ask.sku))
            .fetch_one(&mut *connection)
            .await?;
        tables::product(&row)
    }

    /// The number of queries of this run.
    pub(crate) async fn counts(&self) -> Result<Counts, sqlx::Error> {
        let rows =
            sqlx::query(&self.statements.count).bind(&*self.run).fetch_all(&self.pool).await?;
        rows.iter().map(count).collect()
    }

    /// Removes the rows of this run.
    pub(crate) async fn forget(&self) -> Result<(), sqlx::Error> {
        sqlx::query(&self.statements.forget).bind(&*self.run).execute(&self.pool).await?;
        Ok(())
    }
}

impl Statements {
    fn for_database(url: &str) -> Self {
        let find = format!("{} WHERE product.sku = ?", TABLES.select_products());
        let written = |sql: &str| tables::placeholders(url, sql);
        Self {
            find: written(&find),
            leave_trace: written(LEAVE_TRACE),
            count: written(COUNT),
            forget: written(FORGET),
        }
    }
}

/// The kind of the database, for the report: its URL may hold a password.
pub(crate) fn shown(url: Option<&str>) -> &str {
    url.and_then(|url| url.split_once(':')).map_or("sqlite", |(scheme, _)| scheme)
}

/// The name that the makers of the database give it.
pub(crate) fn product_name(url: Option<&str>) -> &str {
    match shown(url) {
        "mariadb" => "MariaDB",
        "mysql" => "MySQL",
        "postgres" | "postgresql" => "PostgreSQL",
        "sqlite" => "SQLite",
        other => other,
    }
}

fn count(row: &AnyRow) -> Result<((Way, u32, u32), u64), sqlx::Error> {
    let name: String = row.try_get("way")?;
    let way = Way::named(&name)
        .ok_or_else(|| sqlx::Error::Protocol(format!("there is no way `{name}`")))?;
    let queries: i64 = row.try_get("queries")?;
    Ok(((way, small(row, "round")?, small(row, "sku")?), queries.unsigned_abs()))
}
