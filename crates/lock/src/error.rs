//! Why a lock was not given.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, iter};

use bellwether::store::StoreErrorKind;
use bellwether::{BoxError, ConfigError, Key, StoreError};

/// Why a lock was not given, or not kept.
///
/// Opaque, so that it can carry more later: programs match on its [`kind`](LockError::kind).
/// Messages name the key by its kind and digest.
///
/// The [`source`](StdError::source) is the error of the lock's server or of its driver, if one was
/// reported. The message contains what it says.
#[derive(Clone, Debug)]
pub struct LockError {
    kind: LockErrorKind,
    message: Arc<str>,
    /// Whether the server had answered before that another holder has the key.
    was_busy: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl LockError {
    /// What went wrong.
    pub fn kind(&self) -> LockErrorKind {
        self.kind
    }

    pub(super) fn busy(key: &Key) -> Self {
        Self::new(LockErrorKind::Busy, format!("another holder has `{key}`"))
    }

    pub(super) fn unreleased(key: &Key) -> Self {
        let message =
            format!("this process has not released `{key}`: the release failed, or goes on");
        Self::new(LockErrorKind::Unreleased, message)
    }

    /// The wait reached its limit. The message has the error of the last request, if it failed.
    pub(super) fn timed_out(key: &Key, waited: Duration, last: Option<&Self>) -> Self {
        let because = last.map(|error| format!("; the last error: {error}")).unwrap_or_default();
        let message = format!("`{key}` did not become free within {waited:?}{because}");
        let source = last.map(|error| Arc::new(error.clone()) as _);
        Self { source, ..Self::new(LockErrorKind::TimedOut, message) }
    }

    pub(super) fn lost(key: &Key, max_hold: Option<Duration>) -> Self {
        let because = max_hold.map(|longest| format!(" for longer than `max_hold`, {longest:?}"));
        let because = because.unwrap_or_default();
        Self::new(LockErrorKind::Lost, format!("`{key}` was lost while it was held{because}"))
    }

    pub(super) fn no_runtime(key: &Key) -> Self {
        Self::new(
            LockErrorKind::NoRuntime,
            format!("`{key}` cannot be locked outside of a tokio runtime"),
        )
    }

    pub(super) fn shut_down(key: &Key) -> Self {
        Self::new(LockErrorKind::ShutDown, format!("`{key}` is not locked: the locks shut down"))
    }

    /// An error of the lock, for a caller that asked for this key.
    pub(super) fn of_key(key: &Key, error: Self) -> Self {
        Self::new(error.kind, format!("`{key}`: {error}")).with_source(error)
    }

    /// Makes an error of a lock, for locks of your own. The message says what was done and how it
    /// failed. It must hold no value and no secret.
    pub fn new(kind: LockErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into(), was_busy: false, source: None }
    }

    /// Adds the cause. Like the message, it must hold no value and no secret.
    #[must_use]
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into().into()), ..self }
    }

    /// The error ended a wait in the server, which had answered that another holder has the key.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(super) fn while_busy(self) -> Self {
        Self { was_busy: true, ..self }
    }

    /// The answer is none that the request can have.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(super) fn malformed() -> Self {
        Self::new(LockErrorKind::Malformed, "the answer is malformed")
    }

    /// There was no answer in time.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(super) fn late(limit: Duration) -> Self {
        Self::new(LockErrorKind::NoReply, format!("no answer within {limit:?}"))
    }

    /// The same error, which says before what was done.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "zookeeper"))]
    pub(super) fn during(self, server: &str, what: &str, key: Option<&Key>) -> Self {
        let of = key.map(|key| format!(" `{key}`")).unwrap_or_default();
        Self { message: format!("{server}, {what}{of}: {}", self.message).into(), ..self }
    }

    /// Whether the session with a database has ended, or cannot be used any more. Without a reply, that
    /// is unknown.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(super) fn ends_session(&self) -> bool {
        use LockErrorKind::{NoReply, NotReady, Refused};
        !matches!(self.kind, NoReply | NotReady | Refused)
    }

    pub(super) fn was_busy(&self) -> bool {
        self.was_busy
    }

    /// Whether the error is transient: another request may succeed.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.kind, LockErrorKind::Down | LockErrorKind::NotReady) || self.is_unknown()
    }

    /// Whether the slot of the key is moving to another node of a Redis Cluster.
    pub(super) fn is_of_move(&self) -> bool {
        let mut causes = iter::successors(self.source(), |&error| error.source());
        causes.any(|error| error.downcast_ref().is_some_and(StoreError::is_of_move))
    }

    /// Whether the server may have done what was asked, although there was no answer.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.kind, LockErrorKind::NoReply | LockErrorKind::Unreachable)
    }
}

/// The options of a lock are wrong.
impl From<ConfigError> for LockError {
    fn from(error: ConfigError) -> Self {
        Self::new(LockErrorKind::Misconfigured, error.to_string()).with_source(error)
    }
}

/// The Redis client reports errors of a store.
impl From<StoreError> for LockError {
    fn from(error: StoreError) -> Self {
        let kind = match error.kind() {
            StoreErrorKind::Down => LockErrorKind::Down,
            StoreErrorKind::Misconfigured => LockErrorKind::Misconfigured,
            StoreErrorKind::NotReady => LockErrorKind::NotReady,
            StoreErrorKind::Refused => LockErrorKind::Refused,
            StoreErrorKind::TimedOut => LockErrorKind::NoReply,
            StoreErrorKind::Unreachable => LockErrorKind::Unreachable,
            // A kind that this version does not know is no reply that it understands.
            _ => LockErrorKind::Malformed,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for LockError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// The kind of a [`LockError`].
///
/// A [`Lock`](super::Lock) itself fails with `Down`, `Malformed`, `Misconfigured`, `NoReply`,
/// `NotReady`, `Refused` or `Unreachable`. The others come from [`Locks`](super::Locks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// Another holder has the key, and the call does not wait.
    Busy,
    /// The circuit breaker is open: the server has failed several times in a row. The server was
    /// not asked.
    Down,
    /// The key was granted, and lost before the work was done.
    Lost,
    /// The server gave a reply that the operation cannot have.
    Malformed,
    /// The options of the lock are wrong, or do not fit the server: a wrong password, a missing
    /// right, a node of a cluster.
    Misconfigured,
    /// The server did not reply in time. Whether the operation happened is unknown.
    NoReply,
    /// The call was made outside of a tokio runtime.
    NoRuntime,
    /// The server replied that it is not ready: it is starting or busy, or has no free connection.
    NotReady,
    /// The server refused the operation.
    Refused,
    /// The call was made, or was waiting, after [`Locks::shutdown`](super::Locks::shutdown).
    ShutDown,
    /// The key did not become free within the wait limit.
    TimedOut,
    /// This process had the key, or may have had it, and its release has failed or has not ended;
    /// the call does not wait longer for it. Whether the key is free is unknown. When the lease has
    /// ended, the next call asks the server again.
    Unreleased,
    /// The server could not be reached, or the connection broke. Whether the operation happened is
    /// unknown.
    Unreachable,
}
