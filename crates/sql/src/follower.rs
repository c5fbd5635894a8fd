//! `Follower`: applies recorded changes to the stores of a cache.

use std::sync::Arc;
use std::time::Duration;

use bellwether::Cache;
use bellwether::stats::StatsSource;
use bellwether_redis::RedisStore;
use sqlx::Pool;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::dialect::ChangesDatabase;
use super::follower_task::FollowerTask;
use super::stats::{FollowerCounters, FollowerStats};

/// Applies recorded changes to the store of a cache, and so ends what is older in all processes.
///
/// Start one in each process that has caches, or let the program `bellwether follow` do it. Several share the work.
///
/// ```no_run
/// # async fn follow(
/// #     pool: sqlx::PgPool,
/// #     store: bellwether_redis::RedisStore,
/// #     items: bellwether::Cache<i64, String>,
/// # ) -> Result<(), sqlx::Error> {
/// use bellwether_sql::Follower;
///
/// let follower = Follower::new(pool, store).cache(&items).start().await?;
/// // .. serve requests ..
/// follower.shutdown().await;
/// # Ok(())
/// # }
/// ```
///
/// Each row is applied at least once, and rows in any order: to invalidate twice does no harm.
#[derive(Debug)]
#[must_use = "it does nothing until it is started"]
pub struct Follower<D: ChangesDatabase>(FollowerTask<D>);

impl<D: ChangesDatabase> Follower<D> {
    /// Reads the table of the database of a pool, and applies its rows to a store. It takes a connection of the pool
    /// while it works, and one beside the pool to [listen](Self::listen).
    pub fn new(pool: Pool<D>, store: RedisStore) -> Self {
        Self(FollowerTask::new(pool, store))
    }

    /// Applies the rows that have the name of this cache. Rows of a name that no follower of this table has get a
    /// `failure`.
    pub fn cache<K, V, C>(self, cache: &Cache<K, V, C>) -> Self {
        self.kind(cache.name(), cache.kind())
    }

    /// As [`cache`](Self::cache), by the name that rows have and the [kind](Cache::kind) of the keys.
    /// One name may stand for several kinds.
    pub fn kind(mut self, name: &str, kind: &str) -> Self {
        self.0.kinds.push((name.to_owned(), kind.to_owned()));
        self
    }

    /// Applies all rows to another store, too, such as that of another region. A row is done when all stores have it.
    /// All followers of a table need the same stores in the same order.
    pub fn also(mut self, store: RedisStore) -> Self {
        self.0.stores.0.push(store);
        self
    }

    /// Sets the schema of the table, in PostgreSQL.
    ///
    /// Default: `public`.
    pub fn schema(mut self, schema: &str) -> Self {
        schema.clone_into(&mut self.0.table.schema);
        self
    }

    /// Sets how often it reads the table if no message wakes it.
    ///
    /// Default: 1 s while it listens, since messages wake it, and 100 ms else, as in MySQL. Less than 1 ms counts as 1 ms.
    pub fn poll(mut self, every: Duration) -> Self {
        self.0.poll = Some(every.max(Duration::from_millis(1)));
        self
    }

    /// Sets whether messages wake it (`LISTEN`), by a connection of its own. MySQL has none.
    ///
    /// Default: yes. Not for a pooler that gives each transaction another connection, such as PgBouncer.
    pub fn listen(mut self, listens: bool) -> Self {
        self.0.listens = listens;
        self
    }

    /// Sets how long rows stay after they were applied. They are applied again if a store has connected again, since
    /// a failover may have lost them, and when a follower starts. With zero, they are not.
    ///
    /// Default: 60 s, twice as long as most failovers take. At most 366 days; more counts as that.
    pub fn retain(mut self, retain: Duration) -> Self {
        self.0.retain = retain.min(LONGEST);
        self
    }

    /// Starts it, in a task. Until it returns, values may be stored whose changes are not yet applied: so start it
    /// before the first request.
    ///
    /// # Errors
    /// That of the database, as when the [migrations](crate::Migrations) have not run. Later errors are logged
    /// and counted, and it goes on.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// If it is dropped, it has not started.
    pub async fn start(self) -> Result<FollowerHandle, sqlx::Error> {
        let Self(task) = self;
        task.table.register(&task.kinds).await?;
        let (name, counters) = (task.table.schema.clone(), Arc::clone(&task.counters));
        let (stop, stopped) = watch::channel(());
        let running = tokio::spawn(task.run(stopped).in_current_span());
        Ok(FollowerHandle { name, counters, stop, running })
    }
}

/// A running [`Follower`]. Dropping it stops the follower when it has applied what it has taken.
#[must_use = "dropping it stops the follower"]
pub struct FollowerHandle {
    name: String,
    counters: Arc<FollowerCounters>,
    /// Dropped to stop the task after its turn. It is not aborted: a connection of the pool could keep its transaction.
    stop: watch::Sender<()>,
    running: JoinHandle<()>,
}

impl FollowerHandle {
    /// What it has done.
    pub fn stats(&self) -> FollowerStats {
        self.counters.read()
    }

    /// Stops it when it has applied what it has taken. Other followers go on with the rest.
    ///
    /// # Cancel safety
    /// If it is dropped, the follower stops all the same.
    pub async fn shutdown(self) {
        let Self { stop, running, .. } = self;
        drop(stop);
        // Its panic is in the log.
        _ = running.await;
    }
}

bellwether::stats_source! { FollowerHandle => FollowerStats, |it| &it.name }

bellwether::debug_fields! { FollowerHandle => |it| stats = it.stats() }

/// Times before the first year of a database would be errors.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
