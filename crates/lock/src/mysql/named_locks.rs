//! Named locks: `GET_LOCK`.

use std::time::Duration;

use tokio::time::Instant;

use super::session::MySqlSession;
use super::{MySqlOptions, fence};
use crate::LockErrorKind;
use crate::session::{Database, Name, SessionError, TakenName};

/// The named locks of a server.
pub(super) struct NamedLocks;

impl Database for NamedLocks {
    type Session = MySqlSession;

    fn new(_: &MySqlOptions) -> Self {
        Self
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
        match session.number(&take).await? {
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
        Ok(session.number(&holds).await? == Some(1))
    }

    async fn free(&self, session: &mut MySqlSession, name: &Name) -> Result<bool, SessionError> {
        // The session holds no other name, and nothing else was changed in it.
        Ok(session.number(&format!("SELECT RELEASE_LOCK('{name}')")).await? == Some(1))
    }
}
