//! The options of [`Locks`](super::Locks), and what an attempt makes of them.

use std::time::Duration;

use tokio::time::Instant;

use super::instants::far;
use super::lock_wait::LockWait;
use super::{Attempt, Holder, LockFuture, Owner, Request};

/// What happens to work whose lock is lost before the work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenLost {
    /// The work is dropped at its next await, and the run ends with an error. The default: every
    /// further step could conflict with another holder.
    #[default]
    Cancel,
    /// The work runs to its end, and then the run ends with an error. For work that must not stop
    /// in the middle.
    Fail,
    /// The work runs to its end, and its answer is given. For locks that only save work. The work
    /// can ask [`LockStatus::current`](super::LockStatus::current).
    Finish,
}

/// The options of one clone of [`Locks`](super::Locks).
pub(super) struct LockPolicy<L> {
    pub(super) lease: Duration,
    pub(super) max_hold: Duration,
    pub(super) wait: LockWait,
    pub(super) owner: Option<Owner>,
    pub(super) take_over: Option<TakeOverPolicy<L>>,
    pub(super) when_lost: WhenLost,
}

/// After which silence of its holder a key is taken from it, and how.
pub(super) type TakeOverPolicy<L> = (Duration, fn(&L, Request, Holder) -> LockFuture<Attempt>);

impl<L> Clone for LockPolicy<L> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

/// How long one attempt waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitLimit {
    /// Not at all.
    Try,
    /// For `more` tries after the first one, one per interval.
    Tries { more: u32, interval: Duration },
    /// Until the deadline.
    Until(Instant),
}

impl WaitLimit {
    pub(super) fn of(wait: &LockWait) -> Self {
        match wait.tries {
            _ if wait.limit.is_zero() => Self::Try,
            Some((more, interval)) => Self::Tries { more, interval },
            None => Self::Until(far(Instant::now(), wait.limit)),
        }
    }

    /// Until when the attempt waits in the local queue.
    pub(super) fn queue_deadline(&self) -> Option<Instant> {
        match self {
            Self::Try => None,
            Self::Tries { more, interval } => {
                Some(far(Instant::now(), interval.saturating_mul(*more)))
            }
            Self::Until(deadline) => Some(*deadline),
        }
    }

    /// Until when the attempt waits for an answer of the lock.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Until(deadline) => Some(*deadline),
            Self::Try | Self::Tries { .. } => None,
        }
    }
}
