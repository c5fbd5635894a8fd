//! Policy: what a layer does, as values that cannot contradict each other.
//!
//! This module reads no clock and has no randomness: ages and random numbers are arguments.

mod failing;
mod freshness;
mod wait;

use std::time::Duration;

pub use failing::WhenStoreFails;
pub(crate) use failing::{Doubling, FailureWindow, FailureWindows};
pub(crate) use freshness::Freshness;
pub(crate) use wait::AfterWait;
pub use wait::{Backoff, Wait};

/// All options of a layer, with their defaults. [`ReadThroughLayer`](crate::ReadThroughLayer) sets
/// and explains them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    /// Whether the store is asked at all.
    pub(crate) enabled: bool,
    /// Whether what is stored answers no request, and is only compared with what is loaded.
    pub(crate) is_shadow: bool,
    /// Which share of fresh answers is loaded again, to compare them.
    pub(crate) audit: f64,
    /// Lifetimes of answers, and when they are refreshed.
    pub(crate) freshness: Freshness,
    /// How long a failure is shared, and how often a probe tries the key meanwhile.
    pub(crate) failures: FailureWindows,
    pub(crate) when_store_fails: WhenStoreFails,
    /// How long a lease holds without being renewed, once it has been renewed.
    pub(crate) lease: Duration,
    /// The hard limit on one load.
    pub(crate) load_timeout: Duration,
    /// How much longer a load may take after the head of its response. Zero if answers have no
    /// head.
    pub(crate) collect_within: Duration,
    /// How long a waiter waits before it takes a stale fallback. `None`: it waits on.
    pub(crate) slow_load: Option<Duration>,
    /// How long waiters wait, and what they do then.
    pub(crate) wait: Wait,
    /// Whether an abandoned load is cancelled.
    pub(crate) when_abandoned: WhenAbandoned,
    /// The largest encoded answer that is stored, in bytes.
    pub(crate) max_entry_bytes: usize,
    /// How many callers wait for one key at once in one process.
    pub(crate) max_waiters: usize,
    /// How many keys are looked up or loaded.
    pub(crate) max_flights: usize,
    /// How many loads go on that all callers have left.
    pub(crate) max_abandoned_loads: usize,
}

impl Policy {
    /// Whether what is stored answers requests.
    #[inline]
    pub(crate) fn serves_stored(&self) -> bool {
        self.enabled && !self.is_shadow
    }

    /// The first term of a lease. The first renewal extends it to the whole lease. So a lease whose
    /// grant was not acknowledged blocks its key for this long at most.
    pub(crate) fn first_term(&self) -> Duration {
        self.lease.min(FIRST_TERM)
    }

    /// How long a caller waits for the load of another caller.
    pub(crate) fn max_wait(&self) -> Duration {
        self.wait.max_wait(self.load_timeout.saturating_add(PROPAGATION))
    }

    /// How long a caller waits for its own lookup. `None`: without a bound here, since a store that is
    /// silent ends the lookup, and a timer for each lookup would slow down hits.
    pub(crate) fn max_lookup_wait(&self) -> Option<Duration> {
        let max_wait = self.max_wait();
        (!self.wait.is_fail_fast() && max_wait < LONG_LOOKUP).then_some(max_wait)
    }

    /// The delays of waiters between two requests. `told`: the store pushes changes.
    pub(crate) fn backoff(&self, told: bool) -> Backoff {
        self.wait.interval.map_or_else(|| Backoff::backing_off(told), Backoff::fixed)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            enabled: true,
            is_shadow: false,
            audit: 0.0,
            freshness: Freshness {
                jitter: 0.1,
                marker_ttl: Duration::from_secs(10),
                ..Freshness::default()
            },
            failures: FailureWindows {
                windows: Doubling {
                    first: Duration::from_secs(1),
                    longest: Duration::from_secs(30),
                },
                cooldowns: Doubling {
                    first: Duration::from_millis(100),
                    longest: Duration::from_secs(1),
                },
            },
            when_store_fails: WhenStoreFails::default(),
            lease: Duration::from_secs(3),
            load_timeout: Duration::from_secs(30),
            collect_within: Duration::ZERO,
            slow_load: None,
            wait: Wait::default(),
            when_abandoned: WhenAbandoned::default(),
            max_entry_bytes: 1024 * 1024,
            max_waiters: 10_000,
            max_flights: 10_000,
            max_abandoned_loads: 64,
        }
    }
}

/// Long enough for a process that stands still for a second, or begins 10,000 loads at once on a busy machine,
/// and then sends its first renewal, after a third of it. Short enough to wait for.
const FIRST_TERM: Duration = Duration::from_secs(3);

/// How long it takes at most, in a healthy fleet, until all processes know that a load has ended.
const PROPAGATION: Duration = Duration::from_secs(1);

/// Far more than a store takes to answer, also over a slow link, and less than the default wait.
const LONG_LOOKUP: Duration = Duration::from_secs(30);

/// What becomes of a load when the last caller that waited for it has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenAbandoned {
    /// It is dropped, and its lease is released. For loads that cost more than their answer is
    /// worth.
    Cancel,
    /// It goes on, and its answer is stored for the next caller. The default: callers usually ask
    /// again, and a client that gives up and retries would otherwise never get an answer.
    ///
    /// A layer runs as many of these loads as
    /// [`max_abandoned_loads`](crate::service::ReadThroughLayerBuilder::max_abandoned_loads) says. The oldest one is
    /// cancelled when there is one more, and before a caller gets
    /// [`CacheErrorKind::Full`](crate::CacheErrorKind::Full). A caller that joins one in time keeps
    /// it. A refresh in the background is not abandoned: it begins without a waiter. A load whose
    /// answer is not stored is dropped when all its callers have left.
    #[default]
    Finish,
}
