//! What a request may be answered with if it cannot be answered any better.

use std::time::Duration;

use tokio::time::Instant;

use crate::flight::Waiter;
use crate::read_through::outcome::{Origin, Outcome};
use crate::status::{CacheStatus, StaleReason};
use crate::store::Entry;

/// A stale entry that a look has found, and when.
#[derive(Debug)]
pub(super) struct Fallback {
    entry: Entry,
    found: Instant,
}

impl Fallback {
    /// An entry that is given out instead of an error, if it is one.
    pub(super) fn of(entry: Entry) -> Option<Self> {
        entry.serves_if_error().then(|| Self { entry, found: Instant::now() })
    }

    /// The entry, if its window is not over by now, and how stale it is.
    pub(super) fn into_entry(self, why: StaleReason) -> Option<(Entry, CacheStatus)> {
        let Self { entry, found } = self;
        let stale_for = entry.stale_for()?.saturating_add(found.elapsed());
        let will_do = stale_for < entry.lifetimes().if_error();
        will_do.then_some((entry, CacheStatus::Stale { why, stale_for }))
    }
}

/// What a flight offers to those who will not wait for better.
pub(super) fn offered(waiter: &Waiter<Outcome>, why: StaleReason) -> Option<Outcome> {
    match waiter.offered()? {
        (Outcome::Value(kept, Origin::Kept(status)), age) => {
            Some(Outcome::Value(kept, Origin::Kept(aged(status, why, age))))
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
