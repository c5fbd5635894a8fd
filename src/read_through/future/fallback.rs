//! Stale fallbacks: older answers, served instead of an error or a longer wait.

use std::time::Duration;

use tokio::time::Instant;

use crate::flight::Waiter;
use crate::read_through::outcome::{Outcome, ValueOrigin};
use crate::status::{CacheStatus, StaleReason};
use crate::store::Entry;

/// A stale entry that a lookup found, and when.
#[derive(Debug)]
pub(super) struct FoundFallback {
    entry: Entry,
    found: Instant,
}

impl FoundFallback {
    /// An entry, if it may be served instead of an error.
    pub(super) fn of(entry: Entry) -> Option<Self> {
        entry.serves_if_error().then(|| Self { entry, found: Instant::now() })
    }

    /// The entry and its status, unless its stale window is over by now.
    pub(super) fn into_entry(self, why: StaleReason) -> Option<(Entry, CacheStatus)> {
        let Self { entry, found } = self;
        let stale_for = entry.stale_for()?.saturating_add(found.elapsed());
        let is_usable = stale_for < entry.lifetimes().if_error();
        is_usable.then_some((entry, CacheStatus::Stale { why, stale_for }))
    }
}

/// The stale fallback of a flight, for a waiter that waits no longer.
pub(super) fn fallback_of(waiter: &Waiter<Outcome>, why: StaleReason) -> Option<Outcome> {
    match waiter.stale_fallback()? {
        (Outcome::Value(kept, ValueOrigin::Stored(status)), age) => {
            Some(Outcome::Value(kept, ValueOrigin::Stored(aged(status, why, age))))
        }
        _ => None,
    }
}

fn aged(status: CacheStatus, why: StaleReason, age: Duration) -> CacheStatus {
    match status {
        CacheStatus::Stale { stale_for, .. } => {
            CacheStatus::Stale { why, stale_for: stale_for.saturating_add(age) }
        }
        other => other,
    }
}
