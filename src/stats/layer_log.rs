//! What a layer logs, throttled for each layer, so that one does not hide what another one has to
//! say.

use std::fmt::Display;
use std::time::Duration;

use super::cache_stats::LimitEvent;
use super::shown_key::ShownKey;
use crate::log_throttle::LogThrottle;

/// What may be logged now.
#[derive(Debug)]
pub(super) struct LayerLog {
    failed_refreshes: LogThrottle,
    refused: [LogThrottle; LimitEvent::COUNT],
    store_failures: [LogThrottle; StoreFailure::COUNT],
}

/// What follows from a failure of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFailure {
    Lookup,
    LaterLookup,
    Lease,
    Renewal,
    Commit,
    Marker,
    Replacement,
}

impl StoreFailure {
    const COUNT: usize = 7;

    fn consequence(self) -> &'static str {
        match self {
            Self::Lookup => "the lookup counts as a miss",
            Self::LaterLookup => "the remaining waiters ask it themselves",
            Self::Lease => "loading without a lease",
            Self::Renewal => "a lease could not be renewed",
            Self::Commit => "a loaded answer may not be stored",
            Self::Marker => "callers of other processes may wait for a private answer",
            Self::Replacement => "an answer may not be stored",
        }
    }
}

impl Default for LayerLog {
    fn default() -> Self {
        let throttle = || LogThrottle::once_per(LOG_EVERY);
        Self {
            failed_refreshes: throttle(),
            refused: std::array::from_fn(|_| throttle()),
            store_failures: std::array::from_fn(|_| throttle()),
        }
    }
}

impl LayerLog {
    pub(super) fn refresh_failed(&self, cache: &str, key: ShownKey<'_>, error: &dyn Display) {
        if let Some(held_back) = self.failed_refreshes.admit() {
            tracing::warn!(target: LOAD, cache, %key, %error, held_back, "a refresh in the background failed");
        }
    }

    pub(super) fn refused(&self, cache: &str, limit: LimitEvent) {
        if let Some(held_back) = self.refused[limit as usize].admit() {
            tracing::warn!(target: LOAD, cache, ?limit, held_back, "a limit is reached: callers are refused");
        }
    }

    pub(super) fn store_failed(&self, cache: &str, failure: StoreFailure, error: &dyn Display) {
        if let Some(held_back) = self.store_failures[failure as usize].admit() {
            let consequence = failure.consequence();
            tracing::warn!(target: LOAD, cache, %error, held_back, "the store failed: {consequence}");
        }
    }
}

/// The target of spans and log messages about loads.
pub(super) const LOAD: &str = "bellwether::load";

/// How often a layer logs one kind of message at most.
const LOG_EVERY: Duration = Duration::from_secs(10);
