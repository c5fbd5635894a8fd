//! `ChangeTable`: the statements on the table of changes.

use std::time::Duration;

use bellwether::stats::StatsSource;
use bellwether::store::Withdrawal;
use bellwether::{Cache, Key, Tag};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use sqlx::{Database, Error, Pool, Transaction};

use super::dialect::{BoundValue, Dialect};
use super::parts::json_of;

/// The table of a schema, and where it is.
#[derive(Debug)]
pub(crate) struct ChangeTable<D: Database> {
    pub(crate) pool: Pool<D>,
    pub(crate) schema: String,
}

impl<D: Database> Clone for ChangeTable<D> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), schema: self.schema.clone() }
    }
}

/// A row to be written: what has changed.
#[derive(Debug)]
pub(crate) struct NewRow {
    /// `key` or `tag`.
    target: &'static str,
    name: String,
    parts: Json,
    change: Withdrawal,
}

impl NewRow {
    pub(crate) fn of<K, V, C>(cache: &Cache<K, V, C>, key: &Key, change: Withdrawal) -> Self {
        let parts = json_of(key.parts());
        Self { target: "key", name: cache.name().to_owned(), parts, change }
    }

    pub(crate) fn of_tag(tag: &Tag, change: Withdrawal) -> Self {
        Self { target: "tag", name: tag.kind().to_owned(), parts: json_of(tag.parts()), change }
    }

    fn json(&self) -> Json {
        let expire_ms = match self.change {
            Withdrawal::Invalidate => None,
            Withdrawal::Expire { over } => {
                Some(i64::try_from(over.as_millis()).unwrap_or(i64::MAX))
            }
        };
        json!([self.target, self.name, self.parts.to_string(), expire_ms])
    }
}

/// A row as the table has it. The statements give its fields in this order.
#[derive(Debug, Deserialize)]
pub(crate) struct ChangeRow {
    pub(crate) id: i64,
    pub(crate) target: String,
    pub(crate) name: String,
    pub(crate) parts: String,
    pub(crate) expire_ms: Option<u64>,
    /// The stores that have it, by their places, with commas between.
    pub(crate) reached: String,
    /// How long ago it was committed, or else made, in seconds.
    pub(crate) age: f64,
    /// When it was applied.
    pub(crate) applied_at: Option<String>,
}

/// How long rows stay after they were applied: twice as long as most failovers take.
pub(crate) const RETAIN: Duration = Duration::from_secs(60);

/// How many rows are taken at once.
pub(crate) const BATCH: usize = 1_000;

/// How many rows are deleted at once.
const DELETED: u64 = 10_000;

impl<D: Dialect> ChangeTable<D> {
    pub(crate) fn new(pool: Pool<D>) -> Self {
        Self { schema: D::schema(&pool), pool }
    }

    /// A statement on this table.
    pub(crate) fn sql(&self, statement: &str) -> String {
        statement.replace("public.", &format!("\"{}\".", self.schema.replace('"', "\"\"")))
    }

    async fn execute(
        &self,
        connection: &mut D::Connection,
        statement: &str,
        values: &[BoundValue<'_>],
    ) -> Result<u64, Error> {
        D::execute(connection, &self.sql(statement), values).await
    }

    async fn fetch<T: DeserializeOwned>(
        &self,
        connection: &mut D::Connection,
        statement: &str,
        values: &[BoundValue<'_>],
    ) -> Result<Vec<T>, Error> {
        let rows = D::fetch(connection, &self.sql(statement), values).await?;
        let rows = rows.iter().map(|row| serde_json::from_str(row));
        rows.collect::<Result<_, _>>().map_err(|error| Error::Decode(error.into()))
    }

    /// Begins a transaction on rows of this table alone.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, D>, Error> {
        self.pool.begin_with(D::BEGIN).await
    }

    /// Writes rows in the transaction of the connection. If they are `quiet`, they wake no follower.
    pub(crate) async fn insert(
        &self,
        connection: &mut D::Connection,
        rows: &[NewRow],
        quiet: bool,
    ) -> Result<Vec<i64>, Error> {
        let rows = Json::from_iter(rows.iter().map(NewRow::json)).to_string();
        let values = [BoundValue::Text(&rows), BoundValue::Number(quiet.into())];
        let ids = self.fetch(connection, D::STATEMENTS.insert, &values).await?;
        match D::STATEMENTS.inserted {
            Some(inserted) => self.fetch(connection, inserted, &[]).await,
            None => Ok(ids),
        }
    }

    /// Takes pending rows above an id, oldest first, until the transaction ends: those that some stores have, or those
    /// that none has. Rows that another follower has taken are not among them.
    pub(crate) async fn take(
        &self,
        connection: &mut D::Connection,
        above: i64,
        has_reached: bool,
    ) -> Result<Vec<ChangeRow>, Error> {
        let values = [has_reached.into(), above, BATCH as i64].map(BoundValue::Number);
        self.fetch(connection, D::STATEMENTS.take, &values).await
    }

    /// Notes that rows were applied.
    pub(crate) async fn applied(
        &self,
        connection: &mut D::Connection,
        ids: &[i64],
    ) -> Result<(), Error> {
        let ids = list(ids);
        let values = [BoundValue::Text(&ids)];
        self.execute(connection, D::STATEMENTS.applied, &values).await.map(drop)
    }

    /// As [`applied`](Self::applied), by the writer of the rows. Rows that a follower holds are left to it, and it
    /// applies all of them again if this fails.
    pub(crate) async fn applied_by_writer(&self, ids: &[i64]) {
        if let Ok(mut connection) = self.pool.acquire().await {
            let ids = list(ids);
            let values = [BoundValue::Text(&ids)];
            _ = self.execute(&mut connection, D::STATEMENTS.applied_if_free, &values).await;
        }
    }

    /// Notes which stores have rows that others do not have yet.
    pub(crate) async fn reached(
        &self,
        connection: &mut D::Connection,
        ids: &[i64],
        stores: &[i32],
    ) -> Result<(), Error> {
        let (ids, stores) = (list(ids), list(stores));
        let values = [BoundValue::Text(&ids), BoundValue::Text(&stores)];
        self.execute(connection, D::STATEMENTS.reached, &values).await.map(drop)
    }

    /// Notes why rows can never be applied.
    pub(crate) async fn failed(
        &self,
        connection: &mut D::Connection,
        failures: &[(i64, String)],
    ) -> Result<(), Error> {
        let failures = json!(failures).to_string();
        let values = [BoundValue::Text(&failures)];
        self.execute(connection, D::STATEMENTS.failed, &values).await.map(drop)
    }

    /// The kinds of keys that names stand for.
    pub(crate) async fn kinds(
        &self,
        connection: &mut D::Connection,
    ) -> Result<Vec<(String, String)>, Error> {
        self.fetch(connection, D::STATEMENTS.kinds, &[]).await
    }

    /// Says that names stand for kinds, for another day. Rows that had failed for the lack of it are pending again.
    pub(crate) async fn register(&self, kinds: &[(String, String)]) -> Result<(), Error> {
        let mut transaction = self.begin().await?;
        let kinds = json!(kinds).to_string();
        let values = [BoundValue::Text(&kinds)];
        self.execute(&mut transaction, D::STATEMENTS.register, &values).await?;
        self.execute(&mut transaction, D::STATEMENTS.forget, &[]).await?;
        self.execute(&mut transaction, D::STATEMENTS.retry, &values).await?;
        transaction.commit().await
    }

    /// How many rows wait to be applied, counted up to 10,000, and the age of the oldest in seconds.
    pub(crate) async fn backlog(&self) -> Result<(u64, f64), Error> {
        let mut connection = self.pool.acquire().await?;
        let rows = self.fetch(&mut connection, D::STATEMENTS.backlog, &[]).await?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }

    /// The server's time this long ago.
    pub(crate) async fn time(&self, ago: Duration) -> Result<String, Error> {
        let mut connection = self.pool.acquire().await?;
        let values = [BoundValue::Number(millis(ago))];
        let rows = D::fetch(&mut connection, D::STATEMENTS.time, &values).await?;
        rows.into_iter().next().ok_or(Error::RowNotFound)
    }

    /// Rows that were applied after a row, up to a time.
    pub(crate) async fn applied_after(
        &self,
        (time, id): (&str, i64),
        until: &str,
    ) -> Result<Vec<ChangeRow>, Error> {
        let mut connection = self.pool.acquire().await?;
        let values = [
            BoundValue::Text(time),
            BoundValue::Number(id),
            BoundValue::Text(until),
            BoundValue::Number(BATCH as i64),
        ];
        self.fetch(&mut connection, D::STATEMENTS.applied_after, &values).await
    }

    /// Deletes rows that were applied longer ago than this, and failed ones of last week.
    pub(crate) async fn delete_old(&self, retain: Duration) -> Result<(), Error> {
        let values = [millis(retain), DELETED as i64].map(BoundValue::Number);
        loop {
            let mut transaction = self.begin().await?;
            self.execute(&mut transaction, D::STATEMENTS.delete_failed, &[]).await?;
            let delete = D::STATEMENTS.delete_applied;
            let deleted = self.execute(&mut transaction, delete, &values).await?;
            transaction.commit().await?;
            if deleted < DELETED {
                return Ok(());
            }
        }
    }
}

/// Numbers as a text, with commas between.
fn list(numbers: &[impl ToString]) -> String {
    let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(",")
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
