//! Stale fallbacks: older answers, served instead of an error or a longer wait.

use tokio::time::Instant;

use crate::status::{CacheStatus, StaleReason};
use crate::store::Entry;

/// An entry that may be served instead of an error or a wait, and when the store gave it.
#[derive(Clone, Debug)]
pub(crate) struct StaleFallback {
    entry: Entry,
    found_at: Instant,
}

impl StaleFallback {
    pub(super) fn found(entry: Entry) -> Self {
        Self { entry, found_at: Instant::now() }
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The entry and its status, unless its stale windows are over by now.
    pub(super) fn serve(self, why: StaleReason, now: Instant) -> Option<(Entry, CacheStatus)> {
        let Self { entry, found_at } = self;
        let since = now.saturating_duration_since(found_at);
        let stale_for = match (entry.stale_for(), entry.fresh_for()) {
            (Some(stale_for), _) => stale_for.saturating_add(since),
            (None, Some(fresh_for)) if fresh_for <= since => since - fresh_for,
            (None, fresh_for) => return Some((entry, CacheStatus::Hit { fresh_for })),
        };
        // In either stale window: the longer one counts.
        let is_usable = stale_for < entry.lifetimes().served_stale();
        is_usable.then_some((entry, CacheStatus::Stale { why, stale_for }))
    }
}
