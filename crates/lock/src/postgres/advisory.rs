//! Advisory locks of sessions.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_postgres::{CancelToken, NoTls};

use super::PostgresOptions;
use super::classification::{classify, is_late, malformed};
use super::session::PostgresSession;
use crate::LockErrorKind;
use crate::session::{Database, Name, SessionError, TakenName};

/// The advisory locks of a database.
pub(super) struct Advisory(PostgresOptions);

impl Advisory {
    pub(super) fn new(options: PostgresOptions) -> Self {
        Self(options)
    }

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

fn number(text: &str) -> Result<u64, SessionError> {
    text.parse().map_err(|_| malformed())
}

impl Database for Advisory {
    const NAME: &'static str = "postgres";

    type Session = PostgresSession;
    type Interrupt = CancelToken;

    async fn connect(&self) -> Result<PostgresSession, SessionError> {
        PostgresSession::open(&self.0).await
    }

    async fn prepare(&self, session: &mut PostgresSession) -> Result<(), SessionError> {
        if Self::is_there(session).await? {
            return Ok(());
        }
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let now = number(&session.last(now).await?.ok_or_else(malformed)?)?;
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
        let Some(fence) = session.last(&take).await? else { return Ok(None) };
        Ok(Some(TakenName { fence: number(&fence)?, asked }))
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
        let fence = session.last("SELECT nextval('bellwether_fences')").await?;
        let fence = number(&fence.ok_or_else(malformed)?)?;
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

    async fn ping(&self, session: &mut PostgresSession) -> Result<(), SessionError> {
        session.run("").await
    }

    fn interrupt_of(&self, session: &PostgresSession) -> CancelToken {
        session.client.cancel_token()
    }

    async fn interrupt(&self, of: CancelToken) {
        if let Err(error) = of.cancel_query(NoTls).await {
            tracing::debug!(target: "bellwether::lock", %error, "a wait in postgres was not interrupted");
        }
    }

    fn ended(session: &PostgresSession) -> BoxFuture<'static, ()> {
        let mut ended = session.ended.clone();
        Box::pin(async move {
            // No value is ever sent: an error is the end of the session.
            while ended.changed().await.is_ok() {}
        })
    }
}

impl fmt::Debug for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
