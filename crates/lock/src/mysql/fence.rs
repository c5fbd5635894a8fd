//! Fences: a counter that no transaction takes back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bellwether::StoreErrorKind;
use tokio::sync::Semaphore;

use super::MySqlOptions;
use super::classification::{is_forbidden, malformed, meaning};
use super::session::MySqlSession;
use crate::session::SessionError;

/// The next number, in a transaction of its own. No other transaction sees the row that it takes.
pub(super) async fn next(session: &mut MySqlSession) -> Result<u64, SessionError> {
    number(
        session,
        "START TRANSACTION; INSERT INTO bellwether_fences () VALUES (); \
         DELETE FROM bellwether_fences WHERE id = LAST_INSERT_ID(); COMMIT; \
         SELECT LAST_INSERT_ID()",
    )
    .await
}

async fn number(session: &mut MySqlSession, statements: &str) -> Result<u64, SessionError> {
    let last = session.last(statements).await?.ok_or_else(malformed)?;
    last.number()?.ok_or_else(malformed)
}

/// A connection to count by, where the one that holds the row cannot: a number must be committed
/// before it is given out, and a transaction that stays open commits nothing.
pub(super) struct Counter {
    options: MySqlOptions,
    /// One counts at a time, so that one connection will do.
    turns: Semaphore,
    /// It, while it is not in use. Held for a moment, never across an `.await`.
    idle: Mutex<Option<MySqlSession>>,
}

impl Counter {
    pub(super) fn new(options: MySqlOptions) -> Self {
        Self { options, turns: Semaphore::new(1), idle: Mutex::default() }
    }

    pub(super) async fn next(&self) -> Result<u64, SessionError> {
        // It is never closed.
        let _turn = self.turns.acquire().await;
        let idle = self.idle().take();
        if let Some(mut session) = idle {
            match next(&mut session).await {
                // It was left for too long.
                Err(trouble) if trouble.is_broken() => {}
                counted => return self.give_back(session, counted),
            }
        }
        let mut session = MySqlSession::open(&self.options).await?;
        let counted = next(&mut session).await;
        self.give_back(session, counted)
    }

    fn give_back(
        &self,
        session: MySqlSession,
        counted: Result<u64, SessionError>,
    ) -> Result<u64, SessionError> {
        // One that met trouble may be in the middle of a transaction.
        if counted.is_ok() {
            *self.idle() = Some(session);
        }
        counted
    }

    fn idle(&self) -> MutexGuard<'_, Option<MySqlSession>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the counter, if it is not there.
pub(super) async fn prepare(session: &mut MySqlSession) -> Result<(), SessionError> {
    if is_there(session, "bellwether_fences").await? {
        return Ok(());
    }
    let now = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)";
    let now = number(session, now).await?;
    let statement = format!(
        "CREATE TABLE IF NOT EXISTS bellwether_fences \
         (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY) \
         ENGINE=InnoDB AUTO_INCREMENT={now}"
    );
    make(session, &statement).await
}

/// Whether there is such a table.
pub(super) async fn is_there(
    session: &mut MySqlSession,
    table: &str,
) -> Result<bool, SessionError> {
    match session.run(&format!("SELECT 1 FROM {table} LIMIT 0")).await {
        Ok(()) => Ok(true),
        Err(trouble) if trouble.is_unprepared() => Ok(false),
        Err(trouble) => Err(trouble),
    }
}

/// Makes a table. An error for want of rights says what to do.
pub(super) async fn make(session: &mut MySqlSession, statement: &str) -> Result<(), SessionError> {
    session.try_run(statement).await.map_err(|error| {
        let is_forbidden = is_forbidden(&error);
        let trouble = meaning(error);
        if is_forbidden {
            let advice = format!("a table is missing that the user may not make: {statement}");
            return SessionError::refused(StoreErrorKind::Misconfigured, advice);
        }
        trouble
    })
}
