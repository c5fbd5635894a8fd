//! Changes that a database records, and followers apply.

use std::str::FromStr;
use std::time::Duration;

use bellwether_redis::RedisStore;
use bellwether_sql::{ChangeLog, Follower, FollowerHandle};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Executor, Postgres, Transaction};
use tokio::time::sleep;

use super::World;
use crate::floors::{Sort, Subject};
use crate::kinds::{CHANGING, Kind, RowKey, tag};

/// How long a writer waits between two looks at its row.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// The database of a turn, as one worker uses it.
pub(super) struct Database {
    pool: PgPool,
    changes: ChangeLog<Postgres>,
    /// What this worker does for the table. It stops with it.
    _follower: FollowerHandle,
}

/// What a row says.
pub(super) enum Recorded {
    Key(RowKey),
    Group(Kind, u64),
}

/// What writes it.
#[derive(Clone, Copy)]
pub(super) enum Recorder {
    /// A program that knows of the cache.
    Program,
    /// A trigger, in the transaction of a program that does not.
    Trigger,
}

impl Database {
    pub(super) async fn open(url: &str, store: RedisStore) -> Result<Self, sqlx::Error> {
        // The server of the tests keeps only what a commit has waited for.
        let options = PgConnectOptions::from_str(url)?.options([("synchronous_commit", "on")]);
        let pool = PgPoolOptions::new().max_connections(8).connect_lazy_with(options);
        // A worker may start while the database does not run.
        let follower = loop {
            let follower = Follower::new(pool.clone(), store.clone());
            let follower =
                CHANGING.iter().fold(follower, |it, kind| it.kind(kind.name(), kind.name()));
            match follower.start().await {
                Ok(follower) => break follower,
                Err(_) => sleep(LOOKS_EVERY).await,
            }
        };
        Ok(Self { changes: ChangeLog::new(pool.clone()), pool, _follower: follower })
    }

    /// Changes the row or the group in its table, as a program does that has never heard of the cache.
    async fn write_sql(&self, what: &Recorded, version: u64) -> Result<i64, sqlx::Error> {
        let (table, number) = match what {
            Recorded::Key(key) => (key.kind.name().to_owned(), key.number),
            Recorded::Group(kind, group) => (format!("{}_groups", kind.name()), *group),
        };
        let update = format!("UPDATE {table} SET version = {version} WHERE number = {number}");
        let mut transaction = self.pool.begin().await?;
        transaction.execute(&*update).await?;
        commit(transaction).await
    }
}

/// Commits, and gives the id of the last row that the transaction has recorded.
async fn commit(mut transaction: Transaction<'_, Postgres>) -> Result<i64, sqlx::Error> {
    let id = "SELECT currval(pg_get_serial_sequence('bellwether_changes', 'id'))";
    let id = sqlx::query_scalar(id).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(id)
}

impl World {
    /// Records a change that the source has made. When a follower has applied it, it binds all reads that begin later.
    pub(super) async fn record(
        &self,
        what: Recorded,
        by: Recorder,
        subject: Subject,
        version: u64,
    ) {
        let Some(database) = &self.database else { return };
        let written = match by {
            Recorder::Program => self.write_row(database, &what).await,
            Recorder::Trigger => database.write_sql(&what, version).await,
        };
        let Ok(id) = written else {
            return self.checker.count("recorded, failed");
        };
        let committed = self.checker.committed_member();
        self.checker.floors().publish(subject, Sort::Hard, committed, version);
        let applied = "SELECT applied_at IS NOT NULL FROM bellwether_changes WHERE id = $1";
        while !self.is_ending() {
            let row = sqlx::query_scalar(applied).bind(id).fetch_optional(&database.pool).await;
            // A row that is gone was applied a minute ago.
            if let Ok(None | Some(true)) = row {
                let member = self.checker.recorded_member();
                self.checker.floors().publish(subject, Sort::Hard, member, version);
                return self.checker.count(match by {
                    Recorder::Program => "recorded",
                    Recorder::Trigger => "recorded by a trigger",
                });
            }
            sleep(LOOKS_EVERY).await;
        }
    }

    async fn write_row(&self, database: &Database, what: &Recorded) -> Result<i64, sqlx::Error> {
        let mut transaction = database.pool.begin().await?;
        match what {
            Recorded::Key(key) => {
                let cache = self.caches.of(0, *key);
                database.changes.invalidate(&mut transaction, cache, key.number).await?;
            }
            Recorded::Group(kind, group) => {
                let tag = tag(*kind, *group);
                database.changes.invalidate_tag(&mut transaction, &tag).await?;
            }
        }
        commit(transaction).await
    }
}
