//! Work under a lock: it begins when the lock is held, and does not outlive it unseen.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::pin;

use bellwether::Key;
use tokio::time::timeout;

use super::error::LockError;
use super::gates::LONGEST_RELEASE;
use super::held::{Held, Standing};
use super::locks::Locks;
use super::{Lock, Released};

/// What becomes of work whose lock is lost before it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenLost {
    /// It is dropped at its next await, and ends with an error. The default: every further step
    /// could be in somebody else's way.
    #[default]
    Cancel,
    /// It goes on to its end, and then ends with an error. For work that must not stop in the
    /// middle.
    Fail,
    /// It goes on, and its answer is given. For locks that only save work; it can see for itself by
    /// [`Standing::current`].
    Finish,
}

impl<L: Lock> Locks<L> {
    /// Runs a future while a key is held, and gives the key up: when this returns, it is free.
    ///
    /// That costs the round trip of the release. A release that fails is waited for as
    /// [`Held::release`] does, and one without an answer for 5 s; then it goes on in the background,
    /// and the answer of the future is given. So does the release of a key that was lost.
    ///
    /// The future does not begin before the lock is [taken](Locks::lock). If the lock is lost
    /// meanwhile, it is as [`when_lost`](Locks::when_lost) says. Within it,
    /// [`Standing::current`] is that of this lock.
    ///
    /// # Errors
    /// Those of [`lock`](Locks::lock), and [`LockErrorKind::Lost`](super::LockErrorKind::Lost): also
    /// if the key [may have been lost](Held::is_lost) by the clock at the end, or if its release finds
    /// that it was.
    ///
    /// # Cancel safety
    /// The future is dropped with this, and the key is given up in the background.
    pub async fn run<F: Future>(&self, key: &Key, work: F) -> Result<F::Output, LockError> {
        let held = self.lock(key).await?;
        let done = CURRENT.scope(held.standing(), self.run_under(&held, work)).await?;
        if held.is_lost() {
            return Ok(done);
        }
        // The keeper logs what does not work, and goes on.
        let released = timeout(LONGEST_RELEASE, held.release()).await;
        let was_lost = matches!(released, Ok(Ok(Released::NotHeld)));
        match self.knobs.when_lost {
            WhenLost::Cancel | WhenLost::Fail if was_lost => Err(LockError::lost(key)),
            _ => Ok(done),
        }
    }

    async fn run_under<F: Future>(&self, held: &Held<L>, work: F) -> Result<F::Output, LockError> {
        let done = match self.knobs.when_lost {
            WhenLost::Finish => return Ok(work.await),
            WhenLost::Fail => Some(work.await),
            WhenLost::Cancel => {
                let work = pin!(work);
                tokio::select! {
                    biased;
                    () = held.lost() => None,
                    done = work => Some(done),
                }
            }
        };
        // What was done at the very end may have been done too late.
        done.filter(|_| !held.is_lost()).ok_or_else(|| LockError::lost(held.key()))
    }
}

tokio::task_local! {
    static CURRENT: Standing;
}

impl Standing {
    /// How the lock stands under which this runs: that of the innermost [`Locks::run`],
    /// [`LockLayer`](super::LockLayer) or `#[locked]`. None, if it runs under none, or in a task of
    /// its own.
    ///
    /// It has the [fence](Standing::fence) to send along with what is written.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }
}

/// Why there is no answer of what is run under a lock: its own fault, or the lock's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LockedError<E> {
    /// It was run, and failed.
    Inner(E),
    /// It was not run, or its lock was lost meanwhile.
    Lock(LockError),
}

impl<E> From<LockError> for LockedError<E> {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl<E: fmt::Display> fmt::Display for LockedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(error) => error.fmt(f),
            Self::Lock(error) => error.fmt(f),
        }
    }
}

/// What failed under the lock shows through as it is, and is given whole by matching: asking for
/// `E: std::error::Error` would leave out tower's own `BoxError`.
impl<E: fmt::Debug + fmt::Display> StdError for LockedError<E> {}
