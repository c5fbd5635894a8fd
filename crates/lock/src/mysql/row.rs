//! Rows: `SELECT ... FOR UPDATE`, in a transaction that stays open.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bellwether::adapter::jitter;
use mysql_async::consts::StatusFlags;
use tokio::time::{Instant, sleep};

use super::classification::{classify, is_locked};
use super::fence::FenceCounter;
use super::session::MySqlSession;
use super::{MySqlOptions, fence};
use crate::LockError;
use crate::session::{Database, Name, TakenName};

/// The rows of a table.
pub(super) struct Rows {
    counter: FenceCounter,
    /// How many rows were freed: the first release and each 64th after it remove old rows.
    freed: AtomicU64,
}

/// The outcome of an attempt to lock a row.
enum RowState {
    Locked,
    Missing,
    /// Another claim has it.
    Taken,
}

impl Rows {
    /// Locks the row of a name. If it succeeds, the transaction stays open.
    async fn lock(
        session: &mut MySqlSession,
        name: &Name,
        left: Duration,
    ) -> Result<RowState, LockError> {
        let seconds = left.as_secs();
        let tag = session.tag;
        // The server waits for whole seconds only. For less, this asks without waiting.
        let how = if seconds == 0 { "NOWAIT" } else { "" };
        let wait = seconds.max(1);
        let select = format!(
            "SET SESSION innodb_lock_wait_timeout = {wait}; START TRANSACTION; \
             SELECT 1 FROM bellwether_locks WHERE name = '{name}' FOR UPDATE {how} /* {tag} */"
        );
        let row = match session.try_last(&select).await {
            Ok(Some(_)) => return Ok(RowState::Locked),
            Ok(None) => RowState::Missing,
            Err(error) if is_locked(&error) => RowState::Taken,
            Err(error) => return Err(classify(error)),
        };
        session.run("ROLLBACK").await?;
        Ok(row)
    }

    /// Inserts the row of a name. Another claim may be first, and hold it already.
    async fn make(session: &mut MySqlSession, name: &Name) -> Result<(), LockError> {
        let insert = format!("INSERT IGNORE INTO bellwether_locks (name) VALUES ('{name}')");
        match session.try_run(&insert).await {
            Err(error) if !is_locked(&error) => Err(classify(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes unused rows. If that fails, the session can be used as before.
    async fn clean_up(session: &mut MySqlSession) -> Result<(), LockError> {
        let Err(error) = Self::remove_old(session).await else { return Ok(()) };
        tracing::debug!(target: "bellwether::lock", ?error, "old rows of locks were not removed");
        session.run("ROLLBACK").await
    }

    async fn remove_old(session: &mut MySqlSession) -> Result<(), LockError> {
        // Without a lock: a range would also lock the first row that is not old.
        let old = session
            .texts(
                "SELECT name FROM bellwether_locks \
                 WHERE made_at < NOW() - INTERVAL 10 SECOND LIMIT 256",
            )
            .await?;
        // Our names have these letters only. Other rows stay.
        let is_ours = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b':');
        let old: Vec<_> = old.into_iter().filter(is_ours).collect();
        for old in old.chunks(TOGETHER) {
            Self::remove(session, old).await?;
        }
        Ok(())
    }

    /// Removes those of these rows that are not held.
    async fn remove(session: &mut MySqlSession, old: &[String]) -> Result<(), LockError> {
        // One statement per row: a statement for several rows may scan all, and wait for a locked
        // one. Rows that are held are skipped. A waiter for a row that is removed inserts it again.
        let lock = |name: &String| {
            format!(
                "SELECT name FROM bellwether_locks WHERE name = '{name}' FOR UPDATE SKIP LOCKED; "
            )
        };
        let lock: String = old.iter().map(lock).collect();
        let unused = session.texts(&format!("START TRANSACTION; {lock}")).await?;
        let remove =
            |name: &String| format!("DELETE FROM bellwether_locks WHERE name = '{name}'; ");
        session.run(&(unused.iter().map(remove).collect::<String>() + "COMMIT")).await
    }
}

/// Whether a transaction is open, by the server's last answer.
fn is_open(session: &MySqlSession) -> bool {
    let status = session.conn.last_ok_packet().map(|packet| packet.status_flags());
    status.is_some_and(|status| status.contains(StatusFlags::SERVER_STATUS_IN_TRANS))
}

impl Database for Rows {
    type Session = MySqlSession;

    fn new(options: &MySqlOptions) -> Self {
        Self { counter: FenceCounter::new(options.clone()), freed: AtomicU64::new(0) }
    }

    async fn prepare(&self, session: &mut MySqlSession) -> Result<(), LockError> {
        fence::prepare(session).await?;
        if fence::is_there(session, "bellwether_locks").await? {
            return Ok(());
        }
        fence::make(session, TABLE).await
    }

    async fn wait(
        &self,
        session: &mut MySqlSession,
        name: &Name,
        patience: Duration,
    ) -> Result<Option<TakenName>, LockError> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match Self::lock(session, name, left).await? {
                RowState::Locked => break,
                RowState::Missing => Self::make(session, name).await?,
                RowState::Taken if left.is_zero() => return Ok(None),
                RowState::Taken => sleep(left.min(PAUSE.mul_f64(0.5 + jitter() / 2.0))).await,
            }
        }
        let fence = self.counter.next().await?;
        let asked = Instant::now();
        // After the fence was counted: if the session has ended before, the next holder may have a
        // smaller fence.
        session.ping().await?;
        Ok(Some(TakenName { fence, asked }))
    }

    async fn holds(&self, session: &mut MySqlSession) -> Result<bool, LockError> {
        session.ping().await?;
        Ok(is_open(session))
    }

    async fn free(&self, session: &mut MySqlSession, _: &Name) -> Result<bool, LockError> {
        let was_held = self.holds(session).await?;
        session.run("ROLLBACK").await?;
        if self.freed.fetch_add(1, Ordering::Relaxed).is_multiple_of(CLEAN_UP_EVERY) {
            Self::clean_up(session).await?;
        }
        Ok(was_held)
    }
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS bellwether_locks \
     (name CHAR(43) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
     made_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, KEY made_at (made_at)) ENGINE=InnoDB";

/// The pause between two requests, for a wait of less than a second.
const PAUSE: Duration = Duration::from_millis(25);

/// After how many releases a process removes old rows. It removes 256 at most, four times as many
/// as it can have inserted meanwhile. Its first release does so, too: processes that end before
/// their 64th release would leave all their rows.
const CLEAN_UP_EVERY: u64 = 64;

/// How many rows are removed in one transaction. Meanwhile, their keys look taken.
const TOGETHER: usize = 16;
