//! Why a lock was not given.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::{Key, StoreError, StoreErrorKind};

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

    /// The wait reached its limit. The message has the error of the last request, if it failed.
    pub(super) fn timed_out(key: &Key, waited: Duration, last: Option<&StoreError>) -> Self {
        let because = last.map(|error| format!("; the last error: {error}")).unwrap_or_default();
        Self::new(
            LockErrorKind::TimedOut,
            format!("`{key}` did not become free within {waited:?}{because}"),
        )
    }

    pub(super) fn lost(key: &Key) -> Self {
        Self::new(LockErrorKind::Lost, format!("`{key}` was lost while it was held"))
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

    pub(super) fn store(key: &Key, error: &StoreError) -> Self {
        let source = Some(Arc::new(error.clone()) as _);
        Self {
            source,
            ..Self::new(LockErrorKind::Store(error.kind()), format!("`{key}`: {error}"))
        }
    }

    fn new(kind: LockErrorKind, message: String) -> Self {
        Self { kind, message: message.into(), source: None }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// Another holder has the key, and the call does not wait.
    Busy,
    /// The key was granted, and lost before the work was done.
    Lost,
    /// The call was made outside of a tokio runtime.
    NoRuntime,
    /// The call was made, or was waiting, after [`Locks::shutdown`](super::Locks::shutdown).
    ShutDown,
    /// The lock failed: it could not be reached, or refused the request.
    Store(StoreErrorKind),
    /// The key did not become free within the wait limit.
    TimedOut,
}

/// Whether the error is transient: another request may succeed.
pub(super) fn may_pass(error: &StoreError) -> bool {
    use StoreErrorKind::{Down, NotReady};
    matches!(error.kind(), Down | NotReady) || is_unknown(error)
}

/// Whether the server may have done what was asked, although there was no answer.
pub(super) fn is_unknown(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::TimedOut | StoreErrorKind::Unreachable)
}
