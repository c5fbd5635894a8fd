//! The database: one query, and the trace it leaves.
//!
//! Before a query reads its product it writes a row into `stampede_query`, and afterwards the rows
//! are counted. So it is the database that says how many queries it was asked, by all processes,
//! whatever the loaders believe; and any database can say so. The row is not in one transaction
//! with the read: a query that fails was still a query, and in SQLite the unprotected way would
//! hold the one write lock for longer than it must.

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

/// Connections of a process that loads. Few, so that a small server has enough for all processes.
pub(crate) const CONNECTIONS: u32 = 8;
/// The unprotected way queues for a connection; that is its nature and not an error.
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

/// One process's connections, on behalf of one run.
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

/// Makes sure that the catalog is there, and says where.
pub(crate) async fn prepare(url: Option<&str>) -> Result<String, Fault> {
    TABLES.prepare(url, Some(QUERIES)).await
}

impl Database {
    /// Connects at once, so that no burst has to.
    pub(crate) async fn open(url: &str, run: &str, connections: u32) -> Result<Self, Fault> {
        let pool = tables::connect(url, connections, QUEUE_LIMIT).await?;
        Ok(Self { pool, statements: Arc::new(Statements::for_database(url)), run: run.into() })
    }

    /// The query all this is about.
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

    /// How often the database was queried in this run.
    pub(crate) async fn counts(&self) -> Result<Counts, sqlx::Error> {
        let rows =
            sqlx::query(&self.statements.count).bind(&*self.run).fetch_all(&self.pool).await?;
        rows.iter().map(count).collect()
    }

    /// Removes what this run has left behind.
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

/// The kind of the database: fit for a report, unlike its URL.
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
        .ok_or_else(|| sqlx::Error::Protocol(format!("no way is called `{name}`")))?;
    let queries: i64 = row.try_get("queries")?;
    Ok(((way, small(row, "round")?, small(row, "sku")?), queries.unsigned_abs()))
}
