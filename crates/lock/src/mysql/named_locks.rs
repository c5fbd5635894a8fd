//! Named locks: `GET_LOCK`.

use std::fmt;
use std::future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use tokio::time::Instant;

use super::MySqlOptions;
use super::classification::{classify, malformed};
use super::fence;
use super::session::{MySqlSession, WaitingStatement};
use crate::LockErrorKind;
use crate::session::{Database, Name, SessionError, TakenName};

/// The named locks of a server.
pub(super) struct NamedLocks(MySqlOptions);

impl NamedLocks {
    pub(super) fn new(options: MySqlOptions) -> Self {
        Self(options)
    }
}

impl Database for NamedLocks {
    const NAME: &'static str = "mysql";

    type Session = MySqlSession;
    type Interrupt = WaitingStatement;

    async fn connect(&self) -> Result<MySqlSession, SessionError> {
        MySqlSession::open(&self.0).await
    }

    async fn prepare(&self, session: &mut MySqlSession) -> Result<(), SessionError> {
        fence::prepare(session).await
    }

    async fn wait(
        &self,
        session: &mut MySqlSession,
        name: &Name,
        patience: Duration,
    ) -> Result<Option<TakenName>, SessionError> {
        let seconds = patience.as_secs_f64();
        let tag = session.tag;
        let take = format!("SELECT GET_LOCK('{name}', {seconds:.3}) /* {tag} */");
        match session.last(&take).await?.ok_or_else(malformed)?.number()? {
            Some(1) => {}
            Some(_) => return Ok(None),
            None => {
                let message = "GET_LOCK gave NULL: it was interrupted, or the server lacks memory";
                return Err(SessionError::refused(LockErrorKind::NotReady, message));
            }
        }
        let asked = Instant::now();
        let fence = fence::next(session).await?;
        Ok(Some(TakenName { fence, asked }))
    }

    async fn holds(&self, session: &mut MySqlSession, name: &Name) -> Result<bool, SessionError> {
        let holds = format!("SELECT IS_USED_LOCK('{name}') = CONNECTION_ID()");
        Ok(session.last(&holds).await?.ok_or_else(malformed)?.number()? == Some(1))
    }

    async fn free(&self, session: &mut MySqlSession, name: &Name) -> Result<bool, SessionError> {
        // The session holds no other name, and nothing else was changed in it.
        let free = format!("SELECT RELEASE_LOCK('{name}')");
        Ok(session.last(&free).await?.ok_or_else(malformed)?.number()? == Some(1))
    }

    async fn ping(&self, session: &mut MySqlSession) -> Result<(), SessionError> {
        session.conn.ping().await.map_err(classify)
    }

    fn interrupt_of(&self, session: &MySqlSession) -> WaitingStatement {
        session.waiting()
    }

    async fn interrupt(&self, of: WaitingStatement) {
        if let Err(error) = of.interrupt(&self.0).await {
            tracing::debug!(target: "bellwether::lock", ?error, "a wait in mysql was not interrupted");
        }
    }

    /// Never completes: a connection that is not read from reports nothing.
    fn ended(_: &MySqlSession) -> BoxFuture<'static, ()> {
        Box::pin(future::pending())
    }
}

impl fmt::Debug for NamedLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
