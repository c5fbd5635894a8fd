//! A server of PostgreSQL or MySQL.

use std::str::FromStr;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::any::{AnyConnectOptions, AnyRow};
use sqlx::{AnyPool, Row};

use super::{COUNT, Connections, Counts, FORGET, LEAVE_TRACE, QUEUE_LIMIT, TABLES, way};
use crate::Fault;
use crate::catalog::Product;
use crate::messages::Ask;
use crate::shown::shown;
use crate::tables::{self, small};
use crate::ways::Way;

/// The connections to a server, for one run.
pub(super) struct RemoteConnections {
    pool: AnyPool,
    statements: Statements,
    run: Arc<str>,
}

struct Statements {
    find: String,
    leave_trace: String,
    count: String,
    forget: String,
}

impl RemoteConnections {
    pub(super) async fn open(url: &str, run: &str, connections: u32) -> Result<Self, Fault> {
        let pool = tables::connect(url, connections, QUEUE_LIMIT).await?;
        Ok(Self { pool, statements: Statements::for_database(url), run: run.into() })
    }

    async fn find(&self, way: Way, ask: Ask) -> Result<Product, sqlx::Error> {
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

    async fn counts(&self) -> Result<Counts, Fault> {
        let rows =
            sqlx::query(&self.statements.count).bind(&*self.run).fetch_all(&self.pool).await?;
        rows.iter().map(count).collect()
    }

    async fn forget(&self) -> Result<(), Fault> {
        sqlx::query(&self.statements.forget).bind(&*self.run).execute(&self.pool).await?;
        Ok(())
    }
}

impl Connections for RemoteConnections {
    fn find(&self, way: Way, ask: &Ask) -> BoxFuture<'_, Result<Product, Fault>> {
        let ask = *ask;
        async move { Ok(self.find(way, ask).await?) }.boxed()
    }

    fn counts(&self) -> BoxFuture<'_, Result<Counts, Fault>> {
        self.counts().boxed()
    }

    fn forget(&self) -> BoxFuture<'_, Result<(), Fault>> {
        self.forget().boxed()
    }
}

impl Statements {
    fn for_database(url: &str) -> Self {
        let find = format!("{} WHERE product.sku = ?", TABLES.select_products());
        let written = |sql: &str| placeholders(url, sql);
        Self {
            find: written(&find),
            leave_trace: written(LEAVE_TRACE),
            count: written(COUNT),
            forget: written(FORGET),
        }
    }
}

fn count(row: &AnyRow) -> Result<((Way, u32, u32), u64), Fault> {
    let name: String = row.try_get("way")?;
    let queries: i64 = row.try_get("queries")?;
    Ok(((way(&name)?, small(row, "round")?, small(row, "sku")?), queries.unsigned_abs()))
}

/// Complains about a URL without repeating what may be secret in it.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    let parsed = AnyConnectOptions::from_str(url);
    parsed.map(drop).map_err(|fault| format!("--database-url {}: {fault}", shown(url)))
}

/// Placeholders as this database writes them: `?`, or in PostgreSQL `$1`, `$2`...
fn placeholders(url: &str, sql: &str) -> String {
    if url.starts_with("postgres") { numbered(sql) } else { sql.to_owned() }
}

fn numbered(sql: &str) -> String {
    let mut pieces = sql.split('?');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.zip(1..).fold(first, |sql, (piece, number)| format!("{sql}${number}{piece}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_url_is_named_with_the_reason_and_without_its_password() {
        let complaint = check_url("postgres://me:secret@db:port/shop").unwrap_err();
        assert!(complaint.starts_with("--database-url "), "{complaint}");
        assert!(complaint.contains("db") && !complaint.contains("secret"), "{complaint}");
    }

    #[test]
    fn placeholders_are_numbered_for_postgres() {
        assert_eq!(placeholders("postgres://db", "a = ? AND b = ?"), "a = $1 AND b = $2");
        assert_eq!(placeholders("mysql://db", "a = ?"), "a = ?");
    }
}
