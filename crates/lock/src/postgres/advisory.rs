//! Advisory locks of sessions.

use std::time::Duration;

use tokio::time::Instant;

use super::PostgresOptions;
use super::classification::{classify, is_late};
use super::session::PostgresSession;
use crate::session::{Database, DatabaseSession, Name, TakenName};
use crate::{LockError, LockErrorKind};

/// The advisory locks of a database.
pub(super) struct Advisory {
    options: PostgresOptions,
}

impl Advisory {
    /// Whether the session has an advisory lock. It never has more than one.
    async fn has_any(session: &PostgresSession) -> Result<bool, LockError> {
        let pid = session.pid;
        let has = format!(
            "SELECT pg_backend_pid() = {pid} AND EXISTS (SELECT FROM pg_locks \
             WHERE locktype = 'advisory' AND pid = {pid} AND granted)"
        );
        Ok(session.last(&has).await?.as_deref() == Some("t"))
    }

    /// Fails if a pooler gives one server process to several sessions. It gives an idle one to the next
    /// session that asks, or each to the next request.
    async fn check_pooling(&self, session: &PostgresSession) -> Result<(), LockError> {
        let other = PostgresSession::open(&self.options).await?;
        if session.pid == other.pid {
            return Err(shared());
        }
        for asked in [session, session, &other] {
            if asked.number("SELECT pg_backend_pid()").await? != Some(asked.pid) {
                return Err(shared());
            }
        }
        Ok(())
    }

    /// Whether the sequence is there.
    async fn is_there(session: &PostgresSession) -> Result<bool, LockError> {
        let may_use = format!("SELECT has_sequence_privilege(to_regclass('{FENCES}'), 'USAGE')");
        match session.last(&may_use).await?.as_deref() {
            Some("f") => {
                let advice = format!("run: GRANT USAGE ON SEQUENCE {FENCES} TO PUBLIC");
                Err(LockError::new(LockErrorKind::Misconfigured, advice))
            }
            may_use => Ok(may_use.is_some()),
        }
    }
}

impl Database for Advisory {
    type Session = PostgresSession;

    fn new(options: &PostgresOptions) -> Self {
        Self { options: options.clone() }
    }

    async fn prepare(&self, session: &mut PostgresSession) -> Result<(), LockError> {
        self.check_pooling(session).await?;
        if Self::is_there(session).await? {
            return Ok(());
        }
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let now = session.number(now).await?.ok_or_else(LockError::malformed)?;
        // All users share the locks of the database, so they share the sequence.
        let make = format!(
            "CREATE SEQUENCE IF NOT EXISTS {FENCES} START WITH {now} CACHE 1; \
             GRANT USAGE ON SEQUENCE {FENCES} TO PUBLIC"
        );
        match session.run(&make).await {
            Err(error) if error.is_transient() => Err(error),
            // When two sessions create the sequence at once, one fails.
            Err(error) if !Self::is_there(session).await? => {
                let advice = format!("{error}; a sequence is missing: {make}");
                Err(LockError::new(LockErrorKind::Misconfigured, advice))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn take(
        &self,
        session: &mut PostgresSession,
        name: &Name,
    ) -> Result<Option<TakenName>, LockError> {
        let (lock, pid) = (name.number(), session.pid);
        let asked = Instant::now();
        // In one step with the fence.
        let take = format!(
            "SELECT CASE WHEN pg_backend_pid() <> {pid} THEN 0 \
             WHEN pg_try_advisory_lock({lock}) THEN nextval('{FENCES}') END"
        );
        match session.number(&take).await? {
            Some(0) => Err(shared()),
            fence => Ok(fence.map(|fence| TakenName { fence, asked })),
        }
    }

    /// Waits for the lock, and then asks for the fence. The second request shows that the session
    /// still lives: it may have ended long before the grant arrives.
    async fn wait(
        &self,
        session: &mut PostgresSession,
        name: &Name,
        patience: Duration,
    ) -> Result<Option<TakenName>, LockError> {
        let lock = name.number();
        // Zero means no timeout.
        let millis = patience.as_millis().max(1);
        let pid = session.pid;
        let wait = format!(
            "SET lock_timeout = {millis}; \
             SELECT pg_advisory_lock({lock}) WHERE pg_backend_pid() = {pid}"
        );
        match session.client.batch_execute(&wait).await {
            Ok(()) => {}
            // The timeout may come just after the grant.
            Err(error) if is_late(&error) && Self::has_any(session).await? => {}
            Err(error) if is_late(&error) => return Ok(None),
            Err(error) => return Err(classify(error)),
        }
        let asked = Instant::now();
        let next =
            format!("SELECT CASE WHEN pg_backend_pid() = {pid} THEN nextval('{FENCES}') END");
        let fence = session.number(&next).await?.ok_or_else(shared)?;
        Ok(Some(TakenName { fence, asked }))
    }

    /// A session has what it has locked until it ends, unless a pooler gives it to other clients.
    async fn holds(&self, session: &mut PostgresSession) -> Result<bool, LockError> {
        Ok(session.number("SELECT pg_backend_pid()").await? == Some(session.pid))
    }

    async fn free(&self, session: &mut PostgresSession, name: &Name) -> Result<bool, LockError> {
        let (lock, pid) = (name.number(), session.pid);
        // Unlocks all, because another claim will use the session.
        let free = format!(
            "SELECT pg_advisory_unlock({lock}), pg_advisory_unlock_all() WHERE pg_backend_pid() = {pid}"
        );
        Ok(session.last(&free).await?.as_deref() == Some("t"))
    }
}

/// The session is not one.
fn shared() -> LockError {
    LockError::new(LockErrorKind::Misconfigured, SHARED)
}

const SHARED: &str = "a pooler shares the sessions of the server, as PgBouncer does in transaction mode, \
     so a lock would exclude no other holder: use its session mode, or the server's own address";

/// The counter. Named with its schema, because the locks are those of the whole database, whatever the
/// `search_path` of a user is.
const FENCES: &str = "public.bellwether_fences";
