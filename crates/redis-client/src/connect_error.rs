//! Errors of connecting.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, RedisError};
use tokio::time::timeout;

use super::address::ServerAddress;

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(super) enum ConnectError {
    /// The client or the server reports an error.
    Reported(RedisError),
    /// The options or the files that they name do not fit the server.
    Misconfigured(Arc<str>),
    /// What is needed for a connection does not answer, or not yet.
    Unavailable(Arc<str>),
    /// The time for connecting is over. The text says what was missing.
    Late(Arc<str>),
}

impl ConnectError {
    pub(super) fn unavailable(message: impl Into<Arc<str>>) -> Self {
        Self::Unavailable(message.into())
    }

    pub(super) fn misconfigured(message: impl Into<Arc<str>>) -> Self {
        Self::Misconfigured(message.into())
    }

    /// Whether a server that refused RESP3 may accept RESP2. It refuses wrong credentials by both.
    pub(super) fn is_about_the_protocol(&self) -> bool {
        match self {
            Self::Reported(error) => !error.is_io_error() && !self.is_about_credentials(),
            Self::Misconfigured(_) | Self::Unavailable(_) | Self::Late(_) => false,
        }
    }

    /// Whether it lasts until the options, the files or the user of the server are changed.
    pub(super) fn is_mistake(&self) -> bool {
        matches!(self, Self::Misconfigured(_)) || self.is_about_credentials()
    }

    /// Whether the server refused the credentials.
    pub(super) fn is_about_credentials(&self) -> bool {
        let Self::Reported(error) = self else { return false };
        error.kind() == ErrorKind::AuthenticationFailed
            || matches!(error.code(), Some("WRONGPASS" | "NOAUTH"))
    }
}

/// What an attempt to connect waits for.
#[derive(Debug)]
pub(super) struct DialStep(Mutex<String>);

impl DialStep {
    pub(super) fn new(what: &str) -> Self {
        Self(Mutex::new(format!("no {what}")))
    }

    /// From now on it waits for this of a server.
    pub(super) fn next(&self, what: &str, of: &ServerAddress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = format!("{of}: no {what}");
    }

    /// Runs an attempt for no longer than a limit. After that, the error says what was missing.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        attempt: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        timeout(limit, attempt).await.unwrap_or_else(|_| {
            let missing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Err(ConnectError::Late(format!("{missing} within {limit:?}").into()))
        })
    }
}

/// Shows an error reply in the words of the server.
pub(super) struct Said<'a>(pub(super) &'a RedisError);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.detail()) {
            (Some(code), Some(detail)) => write!(f, "{code} {detail}"),
            (Some(code), None) => f.write_str(code),
            (None, _) => self.0.fmt(f),
        }
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
            Self::Reported(error) => Said(error).fmt(f),
            Self::Misconfigured(message) | Self::Unavailable(message) | Self::Late(message) => {
                f.write_str(message)
            }
        }
    }
}
