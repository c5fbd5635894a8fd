//! Fences: a counter that no rollback undoes.

use std::sync::Mutex;

use bellwether::adapter::locked;
use tokio::sync::Semaphore;

use super::MySqlOptions;
use super::classification::{classify, is_forbidden, is_unprepared};
use super::session::MySqlSession;
use crate::session::DatabaseSession;
use crate::{LockError, LockErrorKind};

/// The next number, in a transaction of its own. No other transaction sees the row that it inserts.
pub(super) async fn next(session: &mut MySqlSession) -> Result<u64, LockError> {
    let next = session.number(
        "START TRANSACTION; INSERT INTO bellwether_fences () VALUES (); \
         DELETE FROM bellwether_fences WHERE id = LAST_INSERT_ID(); COMMIT; \
         SELECT LAST_INSERT_ID()",
    );
    next.await?.ok_or_else(LockError::malformed)
}

/// A connection that counts, for sessions whose transaction stays open: a number must be committed
/// before it is given out.
pub(super) struct FenceCounter {
    options: MySqlOptions,
    /// One session counts at a time, so that one connection is enough.
    turns: Semaphore,
    /// The connection, while it is not in use. Held for a moment, never across an `.await`.
    idle: Mutex<Option<MySqlSession>>,
}

impl FenceCounter {
    pub(super) fn new(options: MySqlOptions) -> Self {
        Self { options, turns: Semaphore::new(1), idle: Mutex::default() }
    }

    pub(super) async fn next(&self) -> Result<u64, LockError> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let idle = locked(&self.idle).take();
        let is_used = idle.is_some();
        let mut session = match idle {
            Some(session) => session,
            None => MySqlSession::open(&self.options).await?,
        };
        let mut counted = next(&mut session).await;
        // The connection was idle for too long.
        if is_used && counted.as_ref().is_err_and(LockError::ends_session) {
            session = MySqlSession::open(&self.options).await?;
            counted = next(&mut session).await;
        }
        // After an error, a transaction may be open.
        if counted.is_ok() {
            *locked(&self.idle) = Some(session);
        }
        counted
    }
}

/// Creates the counter if it is missing.
pub(super) async fn prepare(session: &mut MySqlSession) -> Result<(), LockError> {
    if is_there(session, "bellwether_fences").await? {
        return Ok(());
    }
    let now = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)";
    let now = session.number(now).await?.ok_or_else(LockError::malformed)?;
    let statement = format!(
        "CREATE TABLE IF NOT EXISTS bellwether_fences \
         (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY) \
         ENGINE=InnoDB AUTO_INCREMENT={now}"
    );
    make(session, &statement).await
}

/// Whether the table exists.
pub(super) async fn is_there(session: &mut MySqlSession, table: &str) -> Result<bool, LockError> {
    match session.run(&format!("SELECT 1 FROM {table} LIMIT 0")).await {
        Ok(()) => Ok(true),
        Err(error) if is_unprepared(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates a table. If a right is missing, the error contains the statement.
pub(super) async fn make(session: &mut MySqlSession, statement: &str) -> Result<(), LockError> {
    session.try_run(statement).await.map_err(|error| {
        let is_forbidden = is_forbidden(&error);
        let error = classify(error);
        if is_forbidden {
            let advice = format!("a table is missing, and the user may not create it: {statement}");
            return LockError::new(LockErrorKind::Misconfigured, advice);
        }
        error
    })
}
