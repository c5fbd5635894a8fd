//! The tables of the catalog, in SQLite, PostgreSQL or MySQL.
//!
//! Each program has tables of its own, by its name, so that one may change what another compares
//! its answers with.

mod create;
#[path = "../shown.rs"]
pub(crate) mod shown;

use std::time::Duration;

use sqlx::any::{AnyPoolOptions, AnyRow};
use sqlx::{AnyConnection, AnyPool, Executor, Row};
use tokio::time::timeout;

pub(crate) use self::shown::shown;

use crate::Fault;
use crate::catalog::Product;
use crate::catalog::schema::SQLITE_PRAGMAS;
pub(crate) use crate::catalog::schema::Tables;

/// The pool itself would try for as long as a query may queue.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
const TOO_FEW: &str = "the database does not give this process all its connections";

/// Connects now, so that no query has to. A query that waits for a connection for longer than
/// `queue_limit` fails.
pub(crate) async fn connect(
    url: &str,
    connections: u32,
    queue_limit: Duration,
) -> Result<AnyPool, Fault> {
    sqlx::any::install_default_drivers();
    let pool = AnyPoolOptions::new()
        .min_connections(connections)
        .max_connections(connections)
        .acquire_timeout(queue_limit)
        .test_before_acquire(false)
        .after_connect(|connection, _| Box::pin(settle(connection)))
        .connect(url);
    let pool = timeout(CONNECT_LIMIT, pool).await.map_err(|_| TOO_FEW)?;
    pool.map_err(unreachable)
}

/// A row of [`Tables::select_products`].
pub(crate) fn product(row: &AnyRow) -> Result<Product, sqlx::Error> {
    Ok(Product {
        sku: small(row, "sku")?,
        name: row.try_get("name")?,
        price_cents: row.try_get("price_cents")?,
        stock: row.try_get("stock")?,
        categories: [row.try_get("department")?, row.try_get("aisle")?, row.try_get("shelf")?],
    })
}

pub(crate) fn small(row: &AnyRow, column: &str) -> Result<u32, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    u32::try_from(number).map_err(|fault| sqlx::Error::Decode(fault.into()))
}

fn unreachable(fault: sqlx::Error) -> Fault {
    format!("cannot connect to the database: {fault}").into()
}

async fn settle(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    if connection.backend_name() == "SQLite" {
        for pragma in SQLITE_PRAGMAS {
            connection.execute(pragma).await?;
        }
    }
    Ok(())
}
