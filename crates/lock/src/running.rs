//! Work under a lock: it begins when the lock is held, and a loss of the lock is an error.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::pin;

use bellwether::{Key, SharedError};
use tokio::time::timeout;

use super::error::LockError;
use super::guard::{LockGuard, LockStatus};
use super::local_queue::LONGEST_RELEASE;
use super::locks::Locks;
use super::policy::WhenLost;
use super::{Lock, Released};

impl<L: Lock> Locks<L> {
    /// Runs a future while a key is held. When this returns, the key has been released.
    ///
    /// That costs the round trip of the release. A release that fails is retried for a second, and
    /// one without an answer is awaited for 5 s. Then it goes on in the background, and the answer
    /// of the future is returned. A key that was lost is released in the background, too.
    ///
    /// The future starts when the lock is [taken](Locks::lock). [`when_lost`](Locks::when_lost)
    /// says what happens to it if the lock is lost meanwhile. Within the future,
    /// [`LockStatus::current`] is the status of this lock.
    ///
    /// # Errors
    /// Those of [`lock`](Locks::lock), and [`LockErrorKind::Lost`](super::LockErrorKind::Lost) if
    /// the lock was lost. That is also the error if the lock [may have been
    /// lost](LockGuard::is_lost) by the clock at the end, or if its release finds that it was.
    ///
    /// # Cancel safety
    /// Dropping this drops the future, and the key is released in the background.
    pub async fn run<F: Future>(&self, key: &Key, work: F) -> Result<F::Output, LockError> {
        let guard = self.lock(key).await?;
        let done = CURRENT.scope(guard.status(), self.run_under(&guard, work)).await?;
        if guard.is_lost() {
            return Ok(done);
        }
        // A release that fails logs its error, and goes on in the background.
        let released = timeout(LONGEST_RELEASE, guard.release()).await;
        let was_lost = matches!(released, Ok(Ok(Released::NotHeld)));
        match self.policy.when_lost {
            WhenLost::Cancel | WhenLost::Fail if was_lost => Err(LockError::lost(key)),
            _ => Ok(done),
        }
    }

    async fn run_under<F: Future>(
        &self,
        guard: &LockGuard<L>,
        work: F,
    ) -> Result<F::Output, LockError> {
        let done = match self.policy.when_lost {
            WhenLost::Finish => return Ok(work.await),
            WhenLost::Fail => Some(work.await),
            WhenLost::Cancel => {
                let work = pin!(work);
                tokio::select! {
                    biased;
                    () = guard.lost() => None,
                    done = work => Some(done),
                }
            }
        };
        // The lease may have ended before the work did.
        done.filter(|_| !guard.is_lost()).ok_or_else(|| LockError::lost(guard.key()))
    }
}

tokio::task_local! {
    static CURRENT: LockStatus;
}

impl LockStatus {
    /// The status of the lock under which this code runs: that of the innermost [`Locks::run`],
    /// [`LockLayer`](super::LockLayer) or `#[locked]`. `None` outside of them, and in a task that
    /// was spawned inside.
    ///
    /// Send its [fence](LockStatus::fence) along with each write.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }
}

/// Why work under a lock has no answer: an error of the work, or of the lock.
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

impl<E> Clone for LockedError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Inner(error) => Self::Inner(error.clone()),
            Self::Lock(error) => Self::Lock(error.clone()),
        }
    }
}

impl<E> fmt::Debug for LockedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(error) => f.debug_tuple("Inner").field(error).finish(),
            Self::Lock(error) => f.debug_tuple("Lock").field(error).finish(),
        }
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
impl<E> StdError for LockedError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Inner(error) => Some(&**error),
            Self::Lock(error) => Some(error),
        }
    }
}
