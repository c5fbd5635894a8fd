//! Advisory locks of sessions.

use std::time::Duration;

use tokio::time::Instant;

use super::PostgresOptions;
use super::classification::{classify, is_late};
use super::session::PostgresSession;
use crate::LockErrorKind;
use crate::session::{Database, Name, SessionError, TakenName};

/// The advisory locks of a database.
pub(super) struct Advisory;

impl Advisory {
    /// Whether the session has an advisory lock. It never has more than one.
    async fn has_any(session: &PostgresSession) -> Result<bool, SessionError> {
        let has = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' \
                   AND pid = pg_backend_pid() AND granted)";
        Ok(session.last(has).await?.as_deref() == Some("t"))
    }

    async fn is_there(session: &PostgresSession) -> Result<bool, SessionError> {
        Ok(session.last("SELECT to_regclass('bellwether_fences')").await?.is_some())
    }
}

impl Database for Advisory {
    type Session = PostgresSession;

    fn new(_: &PostgresOptions) -> Self {
        Self
    }

    async fn prepare(&self, session: &mut PostgresSession) -> Result<(), SessionError> {
        if Self::is_there(session).await? {
            return Ok(());
        }
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let now = session.number(now).await?.ok_or_else(SessionError::malformed)?;
        let make =
            format!("CREATE SEQUENCE IF NOT EXISTS bellwether_fences START WITH {now} CACHE 1");
        let Err(error) = session.run(&make).await else { return Ok(()) };
        // When two sessions create the sequence at once, one fails.
        if error.is_broken() || Self::is_there(session).await? {
            return if error.is_broken() { Err(error) } else { Ok(()) };
        }
        let advice = format!("{error}; a sequence is missing: {make}");
        Err(SessionError::refused(LockErrorKind::Misconfigured, advice))
    }

    async fn take(
        &self,
        session: &mut PostgresSession,
        name: &Name,
    ) -> Result<Option<TakenName>, SessionError> {
        let lock = name.number();
        let asked = Instant::now();
        // In one step with the fence.
        let take = format!(
            "SELECT CASE WHEN pg_try_advisory_lock({lock}) THEN nextval('bellwether_fences') END"
        );
        let fence = session.number(&take).await?;
        Ok(fence.map(|fence| TakenName { fence, asked }))
    }

    /// Waits for the lock, and then asks for the fence. The second request shows that the session
    /// still lives: it may have ended long before the grant arrives.
    async fn wait(
        &self,
        session: &mut PostgresSession,
        name: &Name,
        patience: Duration,
    ) -> Result<Option<TakenName>, SessionError> {
        let lock = name.number();
        // Zero means no timeout.
        let millis = patience.as_millis().max(1);
        let wait = format!("SET lock_timeout = {millis}; SELECT pg_advisory_lock({lock})");
        match session.client.batch_execute(&wait).await {
            Ok(()) => {}
            // The timeout may come just after the grant.
            Err(error) if is_late(&error) && Self::has_any(session).await? => {}
            Err(error) if is_late(&error) => return Ok(None),
            Err(error) => return Err(classify(error)),
        }
        let asked = Instant::now();
        let fence = session.number("SELECT nextval('bellwether_fences')").await?;
        let fence = fence.ok_or_else(SessionError::malformed)?;
        Ok(Some(TakenName { fence, asked }))
    }

    async fn holds(&self, session: &mut PostgresSession, _: &Name) -> Result<bool, SessionError> {
        Self::has_any(session).await
    }

    async fn free(&self, session: &mut PostgresSession, name: &Name) -> Result<bool, SessionError> {
        let lock = name.number();
        // Unlocks all, because another claim will use the session.
        let free = format!("SELECT pg_advisory_unlock({lock}), pg_advisory_unlock_all()");
        Ok(session.last(&free).await?.as_deref() == Some("t"))
    }
}
