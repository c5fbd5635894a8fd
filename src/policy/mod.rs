//! Policy: what a layer does, as values that cannot contradict each other.
//!
//! This module reads no clock and draws no numbers: ages and draws are arguments.

mod failing;
mod freshness;
mod pause;
mod wait;

use std::time::Duration;

pub use failing::WhenStoreFails;
pub(crate) use failing::{Doubling, FailureWindow, FailureWindows};
pub(crate) use freshness::Freshness;
pub use pause::Backoff;
pub(crate) use wait::Then;
pub use wait::Wait;

/// Everything a layer can be told, with its defaults. Set by the knobs of
/// [`ReadThroughLayer`](crate::ReadThroughLayer), where each is explained.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Lifetimes of answers, and when they are refreshed.
    pub(crate) freshness: Freshness,
    /// How long a failure is shared, and how often the key is tried meanwhile.
    pub(crate) failures: FailureWindows,
    pub(crate) when_store_fails: WhenStoreFails,
    /// How long a lease holds without being renewed, once it has been renewed.
    pub(crate) lease: Duration,
    /// The hard limit on one load.
    pub(crate) load_timeout: Duration,
    /// How much longer a load may take once the head of its response is there. Zero where answers
    /// have no head.
    pub(crate) collect_within: Duration,
    /// After how long a load is slow enough that a stale answer is given out instead.
    pub(crate) slow_load: Option<Duration>,
    /// What a loser does.
    pub(crate) wait: Wait,
    /// Whether an abandoned load is cancelled.
    pub(crate) when_abandoned: WhenAbandoned,
    /// The largest encoded answer that is kept, in bytes.
    pub(crate) max_entry_bytes: usize,
    pub(crate) bounds: Bounds,
}

/// How much may be under way at once, in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Callers that wait for one key.
    pub(crate) waiters: usize,
    /// Keys that are being asked for or loaded.
    pub(crate) flights: usize,
    /// Loads without a lease: while the store fails, or after a wait in vain.
    pub(crate) loads_around: usize,
}

impl Policy {
    pub(crate) const LEASES: [Duration; 2] =
        [Duration::from_millis(100), Duration::from_secs(60 * 60)];
    pub(crate) const LOAD_TIMEOUTS: [Duration; 2] =
        [Duration::from_millis(1), Duration::from_secs(24 * 60 * 60)];

    /// The term for which a lease is taken. The first renewal makes it the whole one, so a lease
    /// whose grant was never heard of blocks its key for this long at most.
    pub(crate) fn first_term(&self) -> Duration {
        self.lease.min(FIRST_TERM)
    }

    /// How long after a term has begun the next one does, while the load runs: two renewals may
    /// fail, and the lease still holds.
    pub(crate) fn renewal(term: Duration) -> Duration {
        term / 3
    }

    /// How long a caller waits for a load of others.
    pub(crate) fn patience(&self) -> Duration {
        self.wait.patience(self.load_timeout.saturating_add(NEWS))
    }

    /// How long a caller waits for a look, if that has to be bounded here: a look ends by the
    /// store's own timeout, and a timer for each would slow down the hits.
    pub(crate) fn patience_for_look(&self) -> Option<Duration> {
        let patience = self.patience();
        (!self.wait.is_fail_fast() && patience < LONG_LOOK).then_some(patience)
    }

    /// How the losers of this policy pause, given whether the store tells them of changes.
    pub(crate) fn pauses(&self, told: bool) -> Backoff {
        self.wait.interval().map_or_else(|| Backoff::backing_off(told), Backoff::fixed)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            freshness: Freshness::default(),
            failures: FailureWindows::default(),
            when_store_fails: WhenStoreFails::default(),
            lease: Duration::from_secs(3),
            load_timeout: Duration::from_secs(30),
            collect_within: Duration::ZERO,
            slow_load: None,
            wait: Wait::default(),
            when_abandoned: WhenAbandoned::default(),
            max_entry_bytes: 1024 * 1024,
            bounds: Bounds { waiters: 10_000, flights: 10_000, loads_around: 64 },
        }
    }
}

/// Long enough for most loads to end before the first renewal, a third of it later. Short enough to
/// wait for.
const FIRST_TERM: Duration = Duration::from_secs(1);

/// How long it takes at most, in a fleet in good health, until all know that a load has ended.
const NEWS: Duration = Duration::from_secs(1);

/// Far more than a store may take for an answer, which is 250 ms by default.
const LONG_LOOK: Duration = Duration::from_secs(1);

/// What becomes of a load when the last caller that waited for it has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenAbandoned {
    /// It is ended, and the lease given up. For loads that cost more than their answer is worth.
    Cancel,
    /// It goes on, and its answer is stored for the next caller. The default: a caller that asks once mostly
    /// asks again, and a client that gives up and retries would never get an answer otherwise.
    #[default]
    Finish,
}
