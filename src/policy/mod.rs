//! Policy: what a layer does, as values that cannot contradict each other.
//!
//! This module reads no clock and draws no numbers: ages and draws are arguments.

mod pause;
mod wait;

use std::time::Duration;

pub(crate) use pause::Pauses;
pub(crate) use wait::Then;
pub use wait::Wait;

/// Everything a layer can be told, with its defaults. Set by the knobs of
/// [`ReadThroughLayer`](crate::ReadThroughLayer), where each is explained.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// How long an answer is fresh. Zero: it is shared among those who wait, and not kept.
    pub(crate) ttl: Duration,
    /// How long a lease holds without being renewed.
    pub(crate) lease: Duration,
    /// The hard limit on one load.
    pub(crate) load_timeout: Duration,
    /// What a loser does.
    pub(crate) wait: Wait,
    /// Whether a load nobody waits for any more is ended.
    pub(crate) when_abandoned: WhenAbandoned,
    /// The largest encoded answer that is kept, in bytes.
    pub(crate) max_entry_bytes: usize,
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
            ttl: Duration::ZERO,
            lease: Duration::from_secs(10),
            load_timeout: Duration::from_secs(30),
            wait: Wait::default(),
            when_abandoned: WhenAbandoned::default(),
            max_entry_bytes: 1024 * 1024,
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
