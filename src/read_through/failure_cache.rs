//! What failed in this process a moment ago, with the loader's own error.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::outcome::Outcome;
use crate::key::Digest;
use crate::store::Failure;

/// Failures of this process, each for its life.
///
/// The store remembers failures for the fleet, as words at best. This remembers them as they were,
/// for those who ask here; and where the store is down, it is all that is remembered. There is a
/// bound on how many there are, and on how large: of more bytes than that, it is remembered only
/// that it failed.
#[derive(Default)]
pub(crate) struct FailureCache(Mutex<FailureTable>);

#[derive(Default)]
struct FailureTable {
    failed: HashMap<Digest, CachedFailure>,
    /// How many bytes they have together.
    bytes: usize,
    /// When those that are over are removed, if one is added then.
    sweep_at: Option<Instant>,
}

struct CachedFailure {
    /// None: it is too large, or is shared with no later caller.
    outcome: Option<Outcome>,
    bytes: usize,
    times: u32,
    /// The store knows of it.
    is_told: bool,
    /// When one caller is let through as a probe.
    due: Instant,
    /// When its window is over.
    until: Instant,
    /// Until when it counts for the next one in a row.
    counts_until: Instant,
    gone_at: Instant,
}

/// A failure whose window is not over.
pub(crate) struct RememberedFailure {
    /// None: it was too large.
    pub(crate) outcome: Option<Outcome>,
    /// What is left of its cooldown. Zero: one caller is let through as a probe.
    pub(crate) left: Duration,
}

impl FailureCache {
    /// How many bytes one failure may have.
    pub(crate) const MOST_OF_ONE: usize = 64 * 1024;

    /// Remembers a failure of so many bytes.
    pub(crate) fn note(&self, key: Digest, outcome: Outcome, bytes: usize, failure: &Failure) {
        let now = Instant::now();
        let (mut over, mut left_out) = (Vec::new(), None);
        let earlier = {
            let mut table = self.table();
            let earlier = table.remove(&key);
            if table.sweep_at.is_none_or(|at| at <= now) {
                over.extend(table.failed.extract_if(|_, failed| failed.gone_at <= now));
                table.bytes -= over.iter().map(|(_, failed)| failed.bytes).sum::<usize>();
                table.sweep_at = Some(now + BETWEEN_SWEEPS);
            }
            let fits = bytes <= Self::MOST_OF_ONE && table.bytes + bytes <= MOST_BYTES;
            let mut outcome = Some(outcome);
            if !fits || failure.window().is_zero() {
                left_out = outcome.take();
            }
            let bytes = if outcome.is_some() { bytes } else { 0 };
            if table.failed.len() < MOST {
                table.bytes += bytes;
                table.failed.insert(key, CachedFailure::new(outcome, bytes, failure, now));
            } else {
                left_out = left_out.or(outcome);
            }
            earlier
        };
        // After the lock: they may be of anybody's type.
        drop((over, left_out, earlier));
    }

    /// What failed, if its window is not over.
    pub(crate) fn of(&self, key: &Digest) -> Option<RememberedFailure> {
        let (table, now) = (self.table(), Instant::now());
        let failed = table.failed.get(key).filter(|failed| failed.until > now)?;
        let left = failed.due.saturating_duration_since(now);
        Some(RememberedFailure { outcome: failed.outcome.clone(), left })
    }

    /// The error itself, for as long as it is remembered.
    pub(crate) fn outcome(&self, key: &Digest) -> Option<Outcome> {
        let table = self.table();
        let failed = table.failed.get(key).filter(|failed| failed.gone_at > Instant::now())?;
        failed.outcome.clone()
    }

    /// How many times in a row it has failed, as far as that is known.
    pub(crate) fn times(&self, key: &Digest) -> u32 {
        self.count(key, |_| true)
    }

    /// The same, of what the store does not know.
    pub(crate) fn untold(&self, key: &Digest) -> u32 {
        self.count(key, |failed| !failed.is_told)
    }

    fn count(&self, key: &Digest, matters: impl Fn(&CachedFailure) -> bool) -> u32 {
        let (table, now) = (self.table(), Instant::now());
        let failed = table.failed.get(key).filter(|failed| failed.counts_until > now);
        failed.filter(|failed| matters(failed)).map_or(0, |failed| failed.times)
    }

    /// The store knows of it.
    pub(crate) fn note_told(&self, key: &Digest) {
        if let Some(failed) = self.table().failed.get_mut(key) {
            failed.is_told = true;
        }
    }

    /// It has not failed any more.
    pub(crate) fn forget(&self, key: &Digest) {
        let earlier = self.table().remove(key);
        drop(earlier);
    }

    /// Guards the table only: held for a map operation, never across an `.await`.
    fn table(&self) -> MutexGuard<'_, FailureTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedFailure {
    fn new(outcome: Option<Outcome>, bytes: usize, failure: &Failure, now: Instant) -> Self {
        Self {
            outcome,
            bytes,
            times: failure.times(),
            is_told: false,
            due: now + failure.cooldown(),
            until: now + failure.window(),
            counts_until: now + failure.counts_for(),
            gone_at: now + failure.life(),
        }
    }
}

impl FailureTable {
    fn remove(&mut self, key: &Digest) -> Option<CachedFailure> {
        let earlier = self.failed.remove(key)?;
        self.bytes -= earlier.bytes;
        Some(earlier)
    }
}

impl fmt::Debug for FailureCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table();
        f.debug_struct("FailureCache")
            .field("failed", &table.failed.len())
            .field("bytes", &table.bytes)
            .finish()
    }
}

/// How many failures are remembered.
const MOST: usize = 10_000;

/// How many bytes they may have together.
const MOST_BYTES: usize = 8 * 1024 * 1024;

const BETWEEN_SWEEPS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::key::Key;
    use crate::store::FailureCause;

    const WINDOW: Duration = Duration::from_secs(1);

    fn digest(nth: usize) -> Digest {
        Key::of("item").with(nth).digest()
    }

    fn note(failures: &FailureCache, nth: usize, bytes: usize) {
        let failure = Failure::new(FailureCause::Error, 1, WINDOW);
        failures.note(digest(nth), Outcome::LoadFailed(Arc::new(nth)), bytes, &failure);
    }

    fn is_whole(failures: &FailureCache, nth: usize) -> Option<bool> {
        failures.of(&digest(nth)).map(|remembered| remembered.outcome.is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn of_what_is_too_large_it_is_known_that_it_failed() {
        let failures = FailureCache::default();
        note(&failures, 1, FailureCache::MOST_OF_ONE);
        note(&failures, 2, FailureCache::MOST_OF_ONE + 1);
        assert_eq!((is_whole(&failures, 1), is_whole(&failures, 2)), (Some(true), Some(false)));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_bytes_are_remembered_than_there_is_room_for() {
        let failures = FailureCache::default();
        (0..MOST).for_each(|nth| note(&failures, nth, FailureCache::MOST_OF_ONE));
        let whole = (0..MOST).filter(|nth| is_whole(&failures, *nth) == Some(true)).count();
        assert_eq!(whole, MOST_BYTES / FailureCache::MOST_OF_ONE);
        (0..MOST).for_each(|nth| failures.forget(&digest(nth)));
        assert_eq!(failures.table().bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_failures_are_remembered_than_there_is_room_for() {
        let failures = FailureCache::default();
        (0..MOST * 2).for_each(|nth| note(&failures, nth, 1));
        assert_eq!(failures.table().failed.len(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_that_are_over_make_room() {
        let failures = FailureCache::default();
        (0..MOST).for_each(|nth| note(&failures, nth, FailureCache::MOST_OF_ONE));
        tokio::time::advance(WINDOW * 2).await;
        note(&failures, MOST, FailureCache::MOST_OF_ONE);
        assert_eq!(is_whole(&failures, MOST), Some(true));
        assert_eq!(failures.table().failed.len(), 1);
    }
}
