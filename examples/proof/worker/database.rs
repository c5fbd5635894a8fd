//! Changes that a database records, and followers apply.

use std::str::FromStr;
use std::time::Duration;

use bellwether::Tag;
use bellwether_redis::RedisStore;
use bellwether_sql::{ChangeLog, Follower, FollowerHandle};
use sqlx::Postgres;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tokio::time::sleep;

use super::World;
use crate::floors::{Sort, Subject};
use crate::kinds::{CHANGING, RowKey};

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
    Tag(Tag),
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
}

impl World {
    /// Records a change that the source has made. When a follower has applied it, it binds all reads that begin later.
    pub(super) async fn record(&self, what: Recorded, subject: Subject, version: u64) {
        let Some(database) = &self.database else { return };
        let Ok(id) = self.write_row(database, &what).await else {
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
                return self.checker.count("recorded");
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
            Recorded::Tag(tag) => database.changes.invalidate_tag(&mut transaction, tag).await?,
        }
        let id = "SELECT currval(pg_get_serial_sequence('bellwether_changes', 'id'))";
        let id = sqlx::query_scalar(id).fetch_one(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(id)
    }
}
