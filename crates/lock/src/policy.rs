//! The options of [`Locks`](super::Locks), and what an attempt makes of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::instants::far;
use super::lock_wait::LockWait;
use super::{Owner, TakeOver};

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
#[derive(Clone)]
pub(super) struct LockPolicy {
    pub(super) lease: Duration,
    pub(super) max_hold: Duration,
    pub(super) wait: LockWait,
    pub(super) owner: Option<Owner>,
    /// After which silence of its holder a key is taken from it, and by what.
    pub(super) take_over: Option<(Duration, Arc<dyn TakeOver>)>,
    pub(super) when_lost: WhenLost,
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
