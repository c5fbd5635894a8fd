//! `ChangeTable`: the statements on the table of changes.

use std::time::Duration;

use bellwether::stats::StatsSource;
use bellwether::store::Withdrawal;
use bellwether::{Cache, Key, Tag};
use serde_json::Value;
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use sqlx::{FromRow, Row};

use super::parts::json_of;

/// The table of a schema, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct ChangeTable {
    pub(crate) pool: PgPool,
    pub(crate) schema: String,
}

/// A row to be written: what has changed.
#[derive(Debug)]
pub(crate) struct NewRow {
    /// `key` or `tag`.
    pub(crate) target: &'static str,
    pub(crate) name: String,
    pub(crate) parts: Value,
    pub(crate) change: Withdrawal,
}

impl NewRow {
    pub(crate) fn of<K, V, C>(cache: &Cache<K, V, C>, key: &Key, change: Withdrawal) -> Self {
        let parts = json_of(key.parts());
        Self { target: "key", name: cache.name().to_owned(), parts, change }
    }

    pub(crate) fn of_tag(tag: &Tag, change: Withdrawal) -> Self {
        Self { target: "tag", name: tag.kind().to_owned(), parts: json_of(tag.parts()), change }
    }
}

/// A row as the table has it.
#[derive(Debug)]
pub(crate) struct ChangeRow {
    pub(crate) id: i64,
    pub(crate) target: String,
    pub(crate) name: String,
    pub(crate) parts: String,
    pub(crate) expire_ms: Option<i64>,
    /// The stores that have it, by their places.
    pub(crate) reached: Vec<i32>,
    /// How long ago it was committed, or else made, in seconds.
    pub(crate) age: f64,
    /// When it was applied.
    pub(crate) applied_at: Option<String>,
}

impl FromRow<'_, PgRow> for ChangeRow {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get("id")?,
            target: row.try_get("target")?,
            name: row.try_get("name")?,
            parts: row.try_get("parts")?,
            expire_ms: row.try_get("expire_ms")?,
            reached: row.try_get("reached")?,
            age: row.try_get("age")?,
            applied_at: row.try_get("applied_at")?,
        })
    }
}

/// How long rows stay after they were applied: twice as long as most failovers take.
pub(crate) const RETAIN: Duration = Duration::from_secs(60);

/// How many rows are taken at once.
pub(crate) const BATCH: usize = 1_000;

impl ChangeTable {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool, schema: "public".to_owned() }
    }

    /// A statement on this table.
    fn sql(&self, statement: &str) -> String {
        statement.replace("public.", &format!("{}.", quoted(&self.schema)))
    }

    /// Writes rows in the transaction of the connection. If they are `quiet`, they wake no follower.
    pub(crate) async fn insert(
        &self,
        connection: &mut PgConnection,
        rows: &[NewRow],
        quiet: bool,
    ) -> Result<Vec<i64>, sqlx::Error> {
        let setting = "SELECT set_config('bellwether.notify', 'off', true)";
        let setting = if quiet { setting } else { "SELECT 1" };
        let sql = self.sql(&format!(
            "WITH setting AS MATERIALIZED ({setting})
             INSERT INTO public.bellwether_changes (target, name, parts, expire_ms)
             SELECT target, name, parts::jsonb, expire_ms
             FROM setting, unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
                 AS made (target, name, parts, expire_ms)
             RETURNING id"
        ));
        let expire_ms = |row: &NewRow| match row.change {
            Withdrawal::Invalidate => None,
            Withdrawal::Expire { over } => {
                Some(i64::try_from(over.as_millis()).unwrap_or(i64::MAX))
            }
        };
        sqlx::query_scalar(&sql)
            .bind(rows.iter().map(|row| row.target).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.parts.to_string()).collect::<Vec<_>>())
            .bind(rows.iter().map(expire_ms).collect::<Vec<_>>())
            .fetch_all(connection)
            .await
    }

    /// Takes pending rows above an id, oldest first, until the transaction ends: those that some stores have, or those
    /// that none has. Rows that another follower has taken are not among them.
    pub(crate) async fn take(
        &self,
        connection: &mut PgConnection,
        above: i64,
        has_reached: bool,
    ) -> Result<Vec<ChangeRow>, sqlx::Error> {
        let reached = if has_reached { "<>" } else { "=" };
        // The time of the commit is known only to a server that tracks it.
        let sql = self.sql(&format!(
            "SELECT id, target, name, parts::text, expire_ms, reached, NULL::text AS applied_at,
                 extract(epoch FROM clock_timestamp() - coalesce(
                     CASE WHEN current_setting('track_commit_timestamp') = 'on'
                         THEN pg_xact_commit_timestamp(xmin) END, made_at))::float8 AS age
             FROM public.bellwether_changes
             WHERE applied_at IS NULL AND failure IS NULL AND reached {reached} '{{}}' AND id > $1
             ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED"
        ));
        sqlx::query_as(&sql).bind(above).bind(BATCH as i64).fetch_all(connection).await
    }

    /// Notes that rows were applied; without `retain`, it deletes them.
    pub(crate) async fn applied(
        &self,
        connection: &mut PgConnection,
        ids: &[i64],
        retain: Duration,
    ) -> Result<(), sqlx::Error> {
        self.note_applied(connection, "$1", ids, retain).await
    }

    /// As [`applied`](Self::applied), by the writer of the rows. Rows that a follower holds are left to it, and it
    /// applies all of them again if this fails.
    pub(crate) async fn applied_by_writer(&self, ids: &[i64], retain: Duration) {
        let free = "ARRAY(SELECT id FROM public.bellwether_changes
            WHERE id = ANY($1) AND applied_at IS NULL FOR UPDATE SKIP LOCKED)";
        if let Ok(mut connection) = self.pool.acquire().await {
            _ = self.note_applied(&mut connection, free, ids, retain).await;
        }
    }

    async fn note_applied(
        &self,
        connection: &mut PgConnection,
        which: &str,
        ids: &[i64],
        retain: Duration,
    ) -> Result<(), sqlx::Error> {
        let what = match retain.is_zero() {
            true => "DELETE FROM public.bellwether_changes",
            false => "UPDATE public.bellwether_changes SET applied_at = clock_timestamp()",
        };
        let sql = self.sql(&format!("{what} WHERE id = ANY({which})"));
        sqlx::query(&sql).bind(ids).execute(connection).await.map(drop)
    }

    /// Notes which stores have rows that others do not have yet.
    pub(crate) async fn reached(
        &self,
        connection: &mut PgConnection,
        ids: &[i64],
        stores: &[i32],
    ) -> Result<(), sqlx::Error> {
        let sql = self.sql("UPDATE public.bellwether_changes SET reached = $2 WHERE id = ANY($1)");
        sqlx::query(&sql).bind(ids).bind(stores).execute(connection).await.map(drop)
    }

    /// Notes why rows can never be applied.
    pub(crate) async fn failed(
        &self,
        connection: &mut PgConnection,
        failures: &[(i64, String)],
    ) -> Result<(), sqlx::Error> {
        let sql = self.sql(
            "UPDATE public.bellwether_changes AS changes SET failure = failed.failure
             FROM unnest($1::bigint[], $2::text[]) AS failed (id, failure) WHERE changes.id = failed.id",
        );
        let (ids, reasons): (Vec<i64>, Vec<String>) = failures.iter().cloned().unzip();
        sqlx::query(&sql).bind(ids).bind(reasons).execute(connection).await.map(drop)
    }

    /// The kinds of keys that names stand for.
    pub(crate) async fn kinds(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Vec<(String, String)>, sqlx::Error> {
        let sql = self.sql("SELECT name, kind FROM public.bellwether_caches");
        sqlx::query_as(&sql).fetch_all(connection).await
    }

    /// Says that names stand for kinds, for another day. Rows that had failed for the lack of it are pending again.
    pub(crate) async fn register(&self, kinds: &[(String, String)]) -> Result<(), sqlx::Error> {
        let (names, kinds): (Vec<String>, Vec<String>) = kinds.iter().cloned().unzip();
        let mut transaction = self.pool.begin().await?;
        let sql = self.sql(
            "INSERT INTO public.bellwether_caches (name, kind) SELECT DISTINCT * FROM unnest($1::text[], $2::text[])
             ON CONFLICT (name, kind) DO UPDATE SET seen_at = clock_timestamp()",
        );
        sqlx::query(&sql).bind(&names).bind(kinds).execute(&mut *transaction).await?;
        let sql = self.sql(
            "DELETE FROM public.bellwether_caches WHERE (name, kind) IN (
                 SELECT name, kind FROM public.bellwether_caches
                 WHERE seen_at < clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED)",
        );
        sqlx::query(&sql).execute(&mut *transaction).await?;
        let sql = self.sql(
            "UPDATE public.bellwether_changes SET failure = NULL
             WHERE failure LIKE 'no follower%' AND name = ANY($1)",
        );
        sqlx::query(&sql).bind(names).execute(&mut *transaction).await?;
        transaction.commit().await
    }

    /// How many rows wait to be applied, counted up to 10,000, and the age of the oldest in seconds.
    pub(crate) async fn backlog(&self) -> Result<(i64, f64), sqlx::Error> {
        let sql = self.sql(
            "WITH first AS (SELECT id, made_at FROM public.bellwether_changes
                 WHERE applied_at IS NULL AND failure IS NULL LIMIT 10000)
             SELECT count(*) AS pending, coalesce(extract(epoch FROM clock_timestamp() - min(made_at)), 0)::float8
                 AS oldest FROM first",
        );
        sqlx::query_as(&sql).fetch_one(&self.pool).await
    }

    /// The server's time this long ago.
    pub(crate) async fn time(&self, ago: Duration) -> Result<String, sqlx::Error> {
        let sql = "SELECT (clock_timestamp() - make_interval(secs => $1))::text";
        sqlx::query_scalar(sql).bind(ago.as_secs_f64()).fetch_one(&self.pool).await
    }

    /// Rows that were applied after a row, up to a time.
    pub(crate) async fn applied_after(
        &self,
        (time, id): (&str, i64),
        until: &str,
    ) -> Result<Vec<ChangeRow>, sqlx::Error> {
        let sql = self.sql(
            "SELECT id, target, name, parts::text, expire_ms, '{}'::integer[] AS reached, applied_at::text, 0::float8 AS age
             FROM public.bellwether_changes
             WHERE (applied_at, id) > ($1::timestamptz, $2) AND applied_at <= $3::timestamptz
             ORDER BY applied_at, id LIMIT $4",
        );
        let query = sqlx::query_as(&sql).bind(time).bind(id).bind(until).bind(BATCH as i64);
        query.fetch_all(&self.pool).await
    }

    /// Deletes rows that were applied longer ago than this, and failed ones of last week.
    pub(crate) async fn delete_old(&self, retain: Duration) -> Result<(), sqlx::Error> {
        let sql = self.sql(
            "DELETE FROM public.bellwether_changes WHERE id = ANY(ARRAY(
                 SELECT id FROM public.bellwether_changes
                 WHERE applied_at < clock_timestamp() - make_interval(secs => $1)
                 ORDER BY applied_at LIMIT 10000 FOR UPDATE SKIP LOCKED))",
        );
        loop {
            let deleted = sqlx::query(&sql).bind(retain.as_secs_f64()).execute(&self.pool).await?;
            if deleted.rows_affected() < 10_000 {
                break;
            }
        }
        let sql = self.sql(
            "DELETE FROM public.bellwether_changes
             WHERE failure IS NOT NULL AND made_at < clock_timestamp() - interval '7 days'",
        );
        sqlx::query(&sql).execute(&self.pool).await.map(drop)
    }
}

/// A name in quotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
