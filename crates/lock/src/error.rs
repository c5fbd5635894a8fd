//! Why a lock was not given.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::{Key, StoreError, StoreErrorKind};

/// Why a lock was not given, or not kept.
///
/// Opaque, so that what it carries can grow; a program asks [`kind`](LockError::kind). Messages
/// name the key by its kind and digest.
#[derive(Clone, Debug)]
pub struct LockError {
    kind: LockErrorKind,
    message: Arc<str>,
}

impl LockError {
    /// What went wrong.
    pub fn kind(&self) -> LockErrorKind {
        self.kind
    }

    pub(super) fn busy(key: &Key) -> Self {
        Self::new(LockErrorKind::Busy, format!("`{key}` is held by somebody else"))
    }

    /// The wait ran out; at its end the lock was in trouble, perhaps.
    pub(super) fn timed_out(key: &Key, waited: Duration, trouble: Option<&StoreError>) -> Self {
        let because = trouble.map(|error| format!("; at last, {error}")).unwrap_or_default();
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
        Self::new(LockErrorKind::Store(error.kind()), format!("`{key}`: {error}"))
    }

    fn new(kind: LockErrorKind, message: String) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for LockError {}

/// What kind of [`LockError`] it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// Somebody else has the key, and it was not to be waited for.
    Busy,
    /// It was granted, and lost before what it was for had been done.
    Lost,
    /// It was asked for outside of a tokio runtime.
    NoRuntime,
    /// It was asked for after [`Locks::shutdown`](super::Locks::shutdown).
    ShutDown,
    /// The lock failed: it could not be reached, or refused.
    Store(StoreErrorKind),
    /// The wait for it ran out.
    TimedOut,
}

/// Whether asking again may have another answer.
pub(super) fn may_pass(error: &StoreError) -> bool {
    use StoreErrorKind::{Down, NotReady};
    matches!(error.kind(), Down | NotReady) || is_unknown(error)
}

/// Whether it may have been done all the same.
pub(super) fn is_unknown(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::TimedOut | StoreErrorKind::Unreachable)
}
