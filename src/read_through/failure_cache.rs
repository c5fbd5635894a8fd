//! The failure cache: loads that failed in this process a moment ago, with the loader's own error.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::outcome::Outcome;
use crate::key::Digest;
use crate::stats::{Activity, CurrentStats};
use crate::store::Failure;

/// Failures of this process, each for its life.
///
/// The store shares failures with the fleet, as text at most. This cache has the errors themselves,
/// for callers of this process. While the store is down, it is the only one. It is bounded in
/// number and in bytes. Of a failure that is too large, it remembers only that the load failed.
#[derive(Default)]
pub(crate) struct FailureCache(Mutex<FailureTable>);

#[derive(Default)]
struct FailureTable {
    failed: HashMap<Digest, CachedFailure>,
    /// How many bytes they take together.
    bytes: usize,
    /// From when on the next addition removes the expired ones.
    sweep_at: Option<Instant>,
}

struct CachedFailure {
    /// `None`: it is too large, or no later caller shares it.
    outcome: Option<Outcome>,
    bytes: usize,
    /// How many loads in a row have failed.
    times: u32,
    /// The store knows it.
    is_reported: bool,
    /// When its cooldown ends, so that one caller may probe.
    due: Instant,
    /// When its failure window ends.
    until: Instant,
    /// Until when a further failure is one in a row.
    counts_until: Instant,
    /// When it is forgotten.
    gone_at: Instant,
}

/// A failure within its window.
pub(crate) struct RememberedFailure {
    /// `None`: it was too large.
    pub(crate) outcome: Option<Outcome>,
    /// What is left of its cooldown. At zero, one caller may probe.
    pub(crate) left: Duration,
}

impl FailureCache {
    /// How many bytes one failure may take.
    pub(crate) const MAX_FAILURE_BYTES: usize = 64 * 1024;

    /// Remembers a failure that takes so many bytes.
    pub(crate) fn note(&self, key: Digest, outcome: Outcome, bytes: usize, failure: &Failure) {
        let now = Instant::now();
        let mut expired = Vec::new();
        let mut left_out = None;
        let earlier = {
            let mut table = self.table();
            let earlier = table.remove(&key);
            if table.sweep_at.is_none_or(|at| at <= now) {
                expired.extend(table.failed.extract_if(|_, failed| failed.gone_at <= now));
                table.bytes -= expired.iter().map(|(_, failed)| failed.bytes).sum::<usize>();
                table.sweep_at = Some(now + BETWEEN_SWEEPS);
            }
            let fits = bytes <= Self::MAX_FAILURE_BYTES && table.bytes + bytes <= MAX_BYTES;
            let mut outcome = Some(outcome);
            if !fits || failure.window().is_zero() {
                left_out = outcome.take();
            }
            let bytes = if outcome.is_some() { bytes } else { 0 };
            if table.failed.len() < MAX_FAILURES {
                table.bytes += bytes;
                table.failed.insert(key, CachedFailure::new(outcome, bytes, failure, now));
            } else {
                left_out = left_out.or(outcome);
            }
            earlier
        };
        // After the lock: they may be of any type.
        drop((expired, left_out, earlier));
    }

    /// The failure of a key, if its window is not over.
    pub(crate) fn of(&self, key: &Digest) -> Option<RememberedFailure> {
        let table = self.table();
        let now = Instant::now();
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

    /// How many loads of a key have failed in a row, as far as this process knows.
    pub(crate) fn times(&self, key: &Digest) -> u32 {
        self.count(key, |_| true)
    }

    /// The same, but zero if the store knows of it.
    pub(crate) fn unreported(&self, key: &Digest) -> u32 {
        self.count(key, |failed| !failed.is_reported)
    }

    fn count(&self, key: &Digest, matters: impl Fn(&CachedFailure) -> bool) -> u32 {
        let table = self.table();
        let now = Instant::now();
        let failed = table.failed.get(key).filter(|failed| failed.counts_until > now);
        failed.filter(|failed| matters(failed)).map_or(0, |failed| failed.times)
    }

    /// How many keys have a failure whose window is not over.
    fn len(&self) -> usize {
        let now = Instant::now();
        self.table().failed.values().filter(|failed| failed.until > now).count()
    }

    /// Notes that the store knows of the failure.
    pub(crate) fn note_reported(&self, key: &Digest) {
        if let Some(failed) = self.table().failed.get_mut(key) {
            failed.is_reported = true;
        }
    }

    /// Forgets the failure, since a load has succeeded.
    pub(crate) fn forget(&self, key: &Digest) {
        let earlier = self.table().remove(key);
        drop(earlier);
    }

    /// Guards the table only: held for a map operation, never across an `.await`.
    fn table(&self) -> MutexGuard<'_, FailureTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity for FailureCache {
    fn read(&self) -> CurrentStats {
        CurrentStats { failing_keys: self.len() as u64, ..CurrentStats::default() }
    }
}

impl CachedFailure {
    fn new(outcome: Option<Outcome>, bytes: usize, failure: &Failure, now: Instant) -> Self {
        Self {
            outcome,
            bytes,
            times: failure.times(),
            is_reported: false,
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

/// How many failures are remembered at most.
const MAX_FAILURES: usize = 10_000;

/// How many bytes they may take together.
const MAX_BYTES: usize = 8 * 1024 * 1024;

const BETWEEN_SWEEPS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::FailureCause;
    use crate::key::Key;

    const WINDOW: Duration = Duration::from_secs(1);

    fn digest(nth: usize) -> Digest {
        Key::of("item").with(nth).digest()
    }

    fn note(failures: &FailureCache, nth: usize, bytes: usize) {
        let failure = Failure::new(FailureCause::Error, 1, WINDOW);
        failures.note(digest(nth), Outcome::LoadFailed(Arc::new(fmt::Error)), bytes, &failure);
    }

    fn is_whole(failures: &FailureCache, nth: usize) -> Option<bool> {
        failures.of(&digest(nth)).map(|remembered| remembered.outcome.is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_is_too_large_is_remembered_without_its_error() {
        let failures = FailureCache::default();
        note(&failures, 1, FailureCache::MAX_FAILURE_BYTES);
        note(&failures, 2, FailureCache::MAX_FAILURE_BYTES + 1);
        assert_eq!((is_whole(&failures, 1), is_whole(&failures, 2)), (Some(true), Some(false)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_bytes_of_failures_are_bounded() {
        let failures = FailureCache::default();
        (0..MAX_FAILURES).for_each(|nth| note(&failures, nth, FailureCache::MAX_FAILURE_BYTES));
        let whole = (0..MAX_FAILURES).filter(|nth| is_whole(&failures, *nth) == Some(true)).count();
        assert_eq!(whole, MAX_BYTES / FailureCache::MAX_FAILURE_BYTES);
        (0..MAX_FAILURES).for_each(|nth| failures.forget(&digest(nth)));
        assert_eq!(failures.table().bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_failures_is_bounded() {
        let failures = FailureCache::default();
        (0..MAX_FAILURES * 2).for_each(|nth| note(&failures, nth, 1));
        assert_eq!(failures.table().failed.len(), MAX_FAILURES);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_failures_are_replaced() {
        let failures = FailureCache::default();
        (0..MAX_FAILURES).for_each(|nth| note(&failures, nth, FailureCache::MAX_FAILURE_BYTES));
        tokio::time::advance(WINDOW * 2).await;
        note(&failures, MAX_FAILURES, FailureCache::MAX_FAILURE_BYTES);
        assert_eq!(is_whole(&failures, MAX_FAILURES), Some(true));
        assert_eq!(failures.table().failed.len(), 1);
    }
}
