//! A server of PostgreSQL or MySQL.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyPool, Row};

use super::{COUNT, Connections, Counts, FORGET, LEAVE_TRACE, QUEUE_LIMIT, TABLES, way};
use crate::Fault;
use crate::catalog::Product;
use crate::messages::Ask;
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
        let written = |sql: &str| tables::placeholders(url, sql);
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
