//! `ChangeTable`: the statements on the table of changes.

use std::time::Duration;

use bellwether::store::{Withdrawal, WithdrawalTarget};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
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

/// A row to be written.
pub(crate) type NewRow = Json;

/// A row of a key in the cache of a name, or of a tag.
pub(crate) fn new_row(name: &str, target: &WithdrawalTarget, change: Withdrawal) -> NewRow {
    let (target, parts) = match target {
        WithdrawalTarget::Key(key) => ("key", json_of(key.parts())),
        WithdrawalTarget::Tag(tag) => ("tag", json_of(tag.parts())),
    };
    let expire_ms = match change {
        Withdrawal::Invalidate => None,
        Withdrawal::Expire { over } => Some(millis(over)),
    };
    json!([target, name, parts.to_string(), expire_ms])
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
    /// The kinds of keys that its name stands for.
    pub(crate) kinds: Vec<String>,
    /// How long ago it was committed, or else made, in seconds.
    pub(crate) age: f64,
    /// When it was applied.
    pub(crate) applied_at: Option<String>,
}

impl ChangeRow {
    /// Whether a store has it.
    pub(crate) fn has_reached(&self, place: usize) -> bool {
        self.reached.split(',').any(|reached| reached.parse() == Ok(place))
    }
}

/// Why a row was not applied.
#[derive(Debug, Serialize)]
pub(crate) struct RowNote {
    pub(crate) id: i64,
    /// The stores that have it, if others do not.
    pub(crate) reached: Option<String>,
    /// Why it can never be applied.
    pub(crate) failure: Option<String>,
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

    async fn fetch_one<T: DeserializeOwned>(
        &self,
        statement: &str,
        values: &[BoundValue<'_>],
    ) -> Result<T, Error> {
        let mut connection = self.pool.acquire().await?;
        self.fetch(&mut connection, statement, values).await?.pop().ok_or(Error::RowNotFound)
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
    ) -> Result<(), Error> {
        let rows = json!(rows).to_string();
        let values = [BoundValue::Text(&rows), BoundValue::Number(quiet.into())];
        self.execute(connection, D::STATEMENTS.insert, &values).await.map(drop)
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

    /// Notes which taken rows were applied, and why others were not.
    pub(crate) async fn settle(
        &self,
        connection: &mut D::Connection,
        applied: &[i64],
        others: &[RowNote],
    ) -> Result<(), Error> {
        let rows = [(D::STATEMENTS.applied, json!(applied)), (D::STATEMENTS.note, json!(others))];
        for (statement, rows) in rows.iter().filter(|(_, rows)| *rows != json!([])) {
            let rows = rows.to_string();
            self.execute(connection, statement, &[BoundValue::Text(&rows)]).await?;
        }
        Ok(())
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
        self.fetch_one(D::STATEMENTS.backlog, &[]).await
    }

    /// The server's time this long ago, and now.
    pub(crate) async fn times(&self, ago: Duration) -> Result<(String, String), Error> {
        self.fetch_one(D::STATEMENTS.times, &[BoundValue::Number(millis(ago))]).await
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

    /// Deletes rows that were applied longer ago than this, and failed ones of last week. Returns whether some are left.
    pub(crate) async fn delete_old(&self, retain: Duration) -> Result<bool, Error> {
        let values = [millis(retain), DELETED as i64].map(BoundValue::Number);
        let mut transaction = self.begin().await?;
        self.execute(&mut transaction, D::STATEMENTS.delete_failed, &[]).await?;
        let delete = D::STATEMENTS.delete_applied;
        let deleted = self.execute(&mut transaction, delete, &values).await?;
        transaction.commit().await?;
        Ok(deleted == DELETED)
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
