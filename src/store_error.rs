//! `StoreError`: why a store operation failed.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::config_error::ConfigError;

/// Why a store operation failed.
///
/// The [`source`](StdError::source) is the error of the driver, if the driver reported one. The
/// message contains what it says.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    is_pending: bool,
    is_of_move: bool,
}

impl StoreError {
    /// Makes an error of a store. The message says what was done and how it failed. It must hold no
    /// value and no secret.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into().into(),
            source: None,
            is_pending: false,
            is_of_move: false,
        }
    }

    /// Adds the cause. Like the message, it must hold no value and no secret.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: Some(source.into().into()), ..self }
    }

    /// Says that the store keeps the invalidation that failed, and repeats it until it succeeds.
    #[must_use]
    pub fn pending(self) -> Self {
        let message = format!("{}; the invalidation is repeated until it succeeds", self.message);
        Self { message: message.into(), is_pending: true, ..self }
    }

    /// Says that the slot of the names is moving to another node of a cluster. Nothing was executed.
    #[must_use]
    pub fn of_move(self) -> Self {
        Self { is_of_move: true, ..self }
    }

    /// What went wrong.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether it is of an invalidation that the store [keeps pending](Self::pending).
    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Whether the operation failed because its slot [is moving](Self::of_move). It can succeed when
    /// the move has ended.
    pub fn is_of_move(&self) -> bool {
        self.is_of_move
    }
}

/// The options of a store are wrong.
impl From<ConfigError> for StoreError {
    fn from(error: ConfigError) -> Self {
        Self::new(StoreErrorKind::Misconfigured, error.to_string()).with_source(error)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// The kind of a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The circuit breaker is open: the store has failed several times in a row. The store was not
    /// asked.
    Down,
    /// The store gave a reply that the operation cannot have.
    Malformed,
    /// The options of the store are wrong, or do not fit the server.
    Misconfigured,
    /// The store replied that it is not ready: it is starting, busy, or has lost another server
    /// that it needs.
    NotReady,
    /// The store refused the operation.
    Refused,
    /// The store did not reply in time. Whether the operation happened is unknown.
    TimedOut,
    /// The store could not be reached, or the connection broke. Whether the operation happened is
    /// unknown.
    Unreachable,
    /// The store has no such operation.
    Unsupported,
}
