//! The database: one query, and the trace it leaves.
//!
//! Before a query reads its product it writes a row into `stampede_query`, and afterwards the rows
//! are counted. So it is the database that says how many queries it was asked, by all processes,
//! whatever the loaders believe; and any database can say so. The row is not in one transaction
//! with the read: a query that fails was still a query, and in SQLite the unprotected way would
//! hold the one write lock for longer than it must.

mod create;

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::{AnyConnection, AnyPool, Executor, Row};
use tokio::time::timeout;

use crate::Fault;
use crate::catalog::Product;
use crate::messages::Ask;
use crate::ways::Way;

pub(crate) use create::prepare;

/// Connections of a process that loads. Few, so that a small server has enough for all processes.
pub(crate) const CONNECTIONS: u32 = 8;
/// The unprotected way queues for a connection; that is its nature and not an error.
const QUEUE_LIMIT: Duration = Duration::from_secs(120);

/// The pool itself would try for as long as a query may queue.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
const TOO_FEW: &str = "the database does not give this process all its connections";

const FIND: &str = "
    SELECT product.sku, product.name, product.price_cents, product.stock,
           department.name AS department, aisle.name AS aisle, shelf.name AS shelf
    FROM stampede_product product
    JOIN stampede_category shelf ON shelf.id = product.category_id
    JOIN stampede_category aisle ON aisle.id = shelf.parent_id
    JOIN stampede_category department ON department.id = aisle.parent_id
    WHERE product.sku = ?";
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

impl Database {
    /// Connects at once, so that no burst has to.
    pub(crate) async fn open(url: &str, run: &str, connections: u32) -> Result<Self, Fault> {
        let pool = timeout(CONNECT_LIMIT, pool(url, connections)).await.map_err(|_| TOO_FEW)?;
        let pool = pool.map_err(unreachable)?;
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
        product(&row)
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
        let translate = if url.starts_with("postgres") { numbered } else { str::to_owned };
        Self {
            find: translate(FIND),
            leave_trace: translate(LEAVE_TRACE),
            count: translate(COUNT),
            forget: translate(FORGET),
        }
    }
}

/// Complains about a URL without repeating it.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    let known = ["sqlite:", "postgres:", "postgresql:", "mysql:", "mariadb:"];
    if !known.iter().any(|scheme| url.starts_with(scheme)) {
        return Err("--database-url does not start with sqlite:, postgres: or mysql:".to_owned());
    }
    if url.starts_with("sqlite:") && (url.contains(":memory:") || url.contains("mode=memory")) {
        return Err("--database-url: processes cannot share a database in memory".to_owned());
    }
    AnyConnectOptions::from_str(url).map(drop).map_err(|fault| format!("--database-url: {fault}"))
}

/// The kind of the database: fit for a report, unlike its URL.
pub(crate) fn shown(url: Option<&str>) -> &str {
    url.and_then(|url| url.split_once(':')).map_or("sqlite", |(scheme, _)| scheme)
}

async fn pool(url: &str, connections: u32) -> Result<AnyPool, sqlx::Error> {
    sqlx::any::install_default_drivers();
    AnyPoolOptions::new()
        .min_connections(connections)
        .max_connections(connections)
        .acquire_timeout(QUEUE_LIMIT)
        .test_before_acquire(false)
        .after_connect(|connection, _| Box::pin(settle(connection)))
        .connect(url)
        .await
}

fn unreachable(fault: sqlx::Error) -> Fault {
    format!("cannot connect to the database: {fault}").into()
}

/// SQLite wants to be told that writers may wait for each other, and that this data need not
/// survive a power cut.
async fn settle(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    if connection.backend_name() == "SQLite" {
        for pragma in
            ["PRAGMA busy_timeout = 60000", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = OFF"]
        {
            connection.execute(pragma).await?;
        }
    }
    Ok(())
}

/// `?` as PostgreSQL writes it: `$1`, `$2`...
fn numbered(sql: &str) -> String {
    let mut pieces = sql.split('?');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.zip(1..).fold(first, |sql, (piece, number)| format!("{sql}${number}{piece}"))
}

fn product(row: &AnyRow) -> Result<Product, sqlx::Error> {
    Ok(Product {
        sku: small(row, "sku")?,
        name: row.try_get("name")?,
        price_cents: row.try_get("price_cents")?,
        stock: row.try_get("stock")?,
        categories: [row.try_get("department")?, row.try_get("aisle")?, row.try_get("shelf")?],
    })
}

fn count(row: &AnyRow) -> Result<((Way, u32, u32), u64), sqlx::Error> {
    let name: String = row.try_get("way")?;
    let way = Way::named(&name)
        .ok_or_else(|| sqlx::Error::Protocol(format!("no way is called `{name}`")))?;
    let queries: i64 = row.try_get("queries")?;
    Ok(((way, small(row, "round")?, small(row, "sku")?), queries.unsigned_abs()))
}

fn small(row: &AnyRow, column: &str) -> Result<u32, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    u32::try_from(number).map_err(|fault| sqlx::Error::Decode(fault.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_numbered_for_postgres() {
        assert_eq!(numbered("a = ? AND b = ?"), "a = $1 AND b = $2");
    }
}
