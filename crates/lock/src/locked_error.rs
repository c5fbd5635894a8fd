//! `LockedError`: why work under a lock has no answer.

use std::error::Error as StdError;
use std::fmt;

use bellwether::SharedError;

use super::error::LockError;

/// Why work under a lock has no answer: an error of the work, or of the lock.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedError<E> {
    /// The work failed.
    Inner(SharedError<E>),
    /// The lock was not granted, so the work was not run; or the lock was lost meanwhile.
    Lock(LockError),
}

impl<E> LockedError<E> {
    /// The error of the work, if that failed. A [`BoxError`](bellwether::BoxError) is no error type
    /// itself: for one, use [`source`](StdError::source).
    pub fn inner(&self) -> Option<&E>
    where
        E: StdError + 'static,
    {
        match self {
            Self::Inner(error) => error.get(),
            Self::Lock(_) => None,
        }
    }
}

impl<E> From<LockError> for LockedError<E> {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl<E> fmt::Display for LockedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(error) => error.fmt(f),
            Self::Lock(error) => error.fmt(f),
        }
    }
}

/// The message is that of the inner error, or of the lock's, and so is the
/// [`source`](StdError::source).
impl<E: fmt::Debug> StdError for LockedError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Inner(error) => Some(&**error),
            Self::Lock(error) => Some(error),
        }
    }
}
