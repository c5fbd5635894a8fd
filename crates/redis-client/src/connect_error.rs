//! Errors of connecting.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{ErrorKind, RedisError};
use tokio::time::timeout;

use super::address::ServerAddress;
use bellwether::adapter::locked;
use bellwether::store::StoreErrorKind;

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(super) enum ConnectError {
    /// The client or the server reports an error.
    Reported(RedisError),
    /// What else is in the way, and the kind of that.
    Other(StoreErrorKind, Arc<str>),
}

impl ConnectError {
    /// What is needed for a connection does not answer, or not yet.
    pub(super) fn unavailable(message: impl Into<Arc<str>>) -> Self {
        Self::Other(StoreErrorKind::Unreachable, message.into())
    }

    /// The options or the files that they name do not fit the server.
    pub(super) fn misconfigured(message: impl Into<Arc<str>>) -> Self {
        Self::Other(StoreErrorKind::Misconfigured, message.into())
    }

    /// Whether a server that refused RESP3 may accept RESP2. It refuses wrong credentials by both.
    pub(super) fn is_about_the_protocol(&self) -> bool {
        matches!(self, Self::Reported(error) if !error.is_io_error())
            && !self.is_about_credentials()
    }

    /// Whether it lasts until the options, the files or the user of the server are changed.
    pub(super) fn is_mistake(&self) -> bool {
        matches!(self, Self::Other(StoreErrorKind::Misconfigured, _)) || self.is_about_credentials()
    }

    /// Whether the server refused the credentials.
    pub(super) fn is_about_credentials(&self) -> bool {
        let Self::Reported(error) = self else { return false };
        error.kind() == ErrorKind::AuthenticationFailed
            || matches!(error.code(), Some("WRONGPASS" | "NOAUTH"))
    }
}

/// What an attempt to connect waits for.
pub(super) struct DialStep(Mutex<String>);

impl DialStep {
    pub(super) fn new(what: &str) -> Self {
        Self(Mutex::new(format!("no {what}")))
    }

    /// From now on it waits for this of a server.
    pub(super) fn next(&self, what: &str, of: &ServerAddress) {
        *locked(&self.0) = format!("{of}: no {what}");
    }

    /// Runs an attempt for no longer than a limit. After that, the error says what was missing.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        attempt: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        timeout(limit, attempt).await.unwrap_or_else(|_| {
            let missing = locked(&self.0);
            let message = format!("{missing} within {limit:?}");
            Err(ConnectError::Other(StoreErrorKind::TimedOut, message.into()))
        })
    }
}

/// Shows an error reply in the words of the server.
pub(super) fn said(error: &RedisError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => write!(f, "{code} {detail}"),
        (Some(code), None) => f.write_str(code),
        (None, _) => fmt::Display::fmt(error, f),
    }
}

impl From<RedisError> for ConnectError {
    fn from(error: RedisError) -> Self {
        Self::Reported(error)
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Reported(error.into())
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported(error) => said(error, f),
            Self::Other(_, message) => f.write_str(message),
        }
    }
}
