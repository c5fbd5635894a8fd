//! Policy: what a layer does, as values that cannot contradict each other.
//!
//! This module reads no clock and draws no numbers: ages and draws are arguments.

mod failing;
mod freshness;
mod pause;
mod wait;

use std::time::Duration;

pub(crate) use failing::FailureWindows;
pub use failing::WhenStoreFails;
pub(crate) use freshness::Freshness;
pub(crate) use pause::Pauses;
pub(crate) use wait::Then;
pub use wait::Wait;

/// Everything a layer can be told, with its defaults. Set by the knobs of
/// [`ReadThroughLayer`](crate::ReadThroughLayer), where each is explained.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// How long answers are good for, and when they are loaded anew.
    pub(crate) freshness: Freshness,
    /// For how long nobody tries again after a load has failed.
    pub(crate) failures: FailureWindows,
    pub(crate) when_store_fails: WhenStoreFails,
    /// How long a lease holds without being renewed.
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
    /// Whether a load nobody waits for any more is ended.
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
    /// The longest that anything is kept. "No entry lives for ever" needs an end, and stores
    /// overflow on absurd ones.
    pub(crate) const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 60 * 60);
    pub(crate) const LEASES: [Duration; 2] =
        [Duration::from_millis(100), Duration::from_secs(60 * 60)];
    pub(crate) const LOAD_TIMEOUTS: [Duration; 2] =
        [Duration::from_millis(1), Duration::from_secs(24 * 60 * 60)];

    /// How often a lease is renewed while the load runs: twice may fail, and it still holds.
    pub(crate) fn renewal(&self) -> Duration {
        self.lease / 3
    }

    /// How the losers of this policy pause, given whether the store tells them of changes.
    pub(crate) fn pauses(&self, told: bool) -> Pauses {
        self.wait.interval().map_or_else(|| Pauses::backing_off(told), Pauses::fixed)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            freshness: Freshness::default(),
            failures: FailureWindows::default(),
            when_store_fails: WhenStoreFails::default(),
            lease: Duration::from_secs(10),
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

/// What becomes of a load when the last caller that waited for it has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenAbandoned {
    /// It is ended, and the lease given up. For loads that cost more than their answer is worth.
    Cancel,
    /// It goes on, and its answer is kept for the next caller. The default: who asks once mostly
    /// asks again, and a client that gives up and retries would never get an answer otherwise.
    #[default]
    Finish,
}
