//! The failure cache: loads that failed in this process a moment ago, with the loader's own error.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::outcome::Outcome;
use crate::key::Digest;
use crate::locked::locked;
use crate::store::Failure;

/// Failures of this process, each for its life.
///
/// The store shares failures with the fleet, as text at most. This cache has the errors themselves,
/// for callers of this process. While the store is down, it is the only one. It is bounded in
/// number and in bytes. Of a failure that is too large, it remembers only that the load failed. Locked for
/// a map operation, never across an `.await`.
#[derive(Default)]
pub(crate) struct FailureCache(Mutex<FailureTable>);

/// Which failures of a key. Those of uncached loads and forced refreshes confirm each other, but put
/// no key into cooldown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FailureKind {
    Shared,
    Unshared,
}

#[derive(Default)]
struct FailureTable {
    failed: HashMap<(Digest, FailureKind), CachedFailure>,
    /// How many bytes they take together.
    bytes: usize,
    /// From when on the next addition removes the expired ones.
    sweep_at: Option<Instant>,
}

struct CachedFailure {
    /// `None`: it is too large, or no later caller shares it.
    outcome: Option<Outcome>,
    /// The types of the loader, for whose callers the outcome is.
    types: TypeId,
    bytes: usize,
    /// The store knows it.
    is_reported: bool,
    noted_at: Instant,
    failure: Failure,
}

/// What is remembered of a failure.
pub(crate) struct RememberedFailure {
    /// `None`: it was too large, or is one of a loader of other types.
    pub(crate) outcome: Option<Outcome>,
    /// How many loads in a row have failed, as far as this process knows.
    pub(crate) times: u32,
    /// The store knows it.
    pub(crate) is_reported: bool,
    /// What is left of its cooldown: at zero, one caller may probe. `None` after its window.
    pub(crate) cooldown: Option<Duration>,
}

impl FailureCache {
    /// How many bytes one failure may take.
    pub(crate) const MAX_FAILURE_BYTES: usize = 64 * 1024;

    /// Remembers a failure of a loader of these types, which takes so many bytes.
    pub(crate) fn note(
        &self,
        key: Digest,
        kind: FailureKind,
        types: TypeId,
        (outcome, bytes): (Outcome, usize),
        failure: Failure,
    ) {
        let noted_at = Instant::now();
        let mut table = locked(&self.0);
        let mut removed = Vec::from_iter(table.remove(key, kind));
        if table.sweep_at.is_none_or(|at| at <= noted_at) {
            let is_over = |it: &CachedFailure| it.noted_at + it.failure.life <= noted_at;
            let expired = table.failed.extract_if(|_, failed| is_over(failed));
            let expired: Vec<_> = expired.map(|(_, failed)| failed).collect();
            table.bytes -= expired.iter().map(|failed| failed.bytes).sum::<usize>();
            table.sweep_at = Some(noted_at + BETWEEN_SWEEPS);
            removed.extend(expired);
        }
        let fits = bytes <= Self::MAX_FAILURE_BYTES && table.bytes + bytes <= MAX_BYTES;
        let is_kept = fits && !failure.window.is_zero();
        let (outcome, bytes) = if is_kept { (Some(outcome), bytes) } else { (None, 0) };
        let failed = CachedFailure { outcome, types, bytes, is_reported: false, noted_at, failure };
        if table.failed.len() < MAX_FAILURES {
            table.bytes += bytes;
            table.failed.insert((key, kind), failed);
        } else {
            removed.push(failed);
        }
        drop(table);
        // After the lock, like an outcome that is left out: they may be of any type.
        drop(removed);
    }

    /// What is remembered of a failure of a key, for callers of these types.
    pub(crate) fn get(
        &self,
        key: Digest,
        kind: FailureKind,
        types: TypeId,
    ) -> Option<RememberedFailure> {
        let table = locked(&self.0);
        let failed = table.failed.get(&(key, kind))?;
        let (age, failure) = (failed.noted_at.elapsed(), &failed.failure);
        (age < failure.life).then(|| RememberedFailure {
            outcome: failed.outcome.clone().filter(|_| failed.types == types),
            times: if age < failure.counts_for() { failure.times } else { 0 },
            is_reported: failed.is_reported,
            cooldown: (age < failure.window).then(|| failure.cooldown.saturating_sub(age)),
        })
    }

    /// Notes that the store knows of the failure.
    pub(crate) fn note_reported(&self, key: Digest) {
        if let Some(failed) = locked(&self.0).failed.get_mut(&(key, FailureKind::Shared)) {
            failed.is_reported = true;
        }
    }

    /// How many keys fail, as far as this process remembers.
    pub(crate) fn failing_keys(&self) -> u64 {
        let is_failing = |it: &&CachedFailure| it.noted_at.elapsed() < it.failure.window;
        locked(&self.0).failed.values().filter(is_failing).count() as u64
    }

    /// Forgets the failures of a key, since a load has succeeded.
    pub(crate) fn forget(&self, key: Digest) {
        let kinds = [FailureKind::Shared, FailureKind::Unshared];
        let mut table = locked(&self.0);
        let earlier = kinds.map(|kind| table.remove(key, kind));
        drop(table);
        drop(earlier);
    }
}

impl FailureTable {
    fn remove(&mut self, key: Digest, kind: FailureKind) -> Option<CachedFailure> {
        let earlier = self.failed.remove(&(key, kind))?;
        self.bytes -= earlier.bytes;
        Some(earlier)
    }
}

/// How many failures are remembered at most.
const MAX_FAILURES: usize = 10_000;

/// How many bytes they may take together.
const MAX_BYTES: usize = 8 * 1024 * 1024;

const BETWEEN_SWEEPS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::fmt;
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
        let outcome = Outcome::LoadFailed(Arc::new(fmt::Error));
        let types = TypeId::of::<fmt::Error>();
        failures.note(digest(nth), FailureKind::Shared, types, (outcome, bytes), failure);
    }

    fn is_whole(failures: &FailureCache, nth: usize) -> Option<bool> {
        let types = TypeId::of::<fmt::Error>();
        let remembered = failures.get(digest(nth), FailureKind::Shared, types);
        remembered.map(|remembered| remembered.outcome.is_some())
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
        (0..MAX_FAILURES).for_each(|nth| failures.forget(digest(nth)));
        assert_eq!(locked(&failures.0).bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_failures_is_bounded() {
        let failures = FailureCache::default();
        (0..MAX_FAILURES * 2).for_each(|nth| note(&failures, nth, 1));
        assert_eq!(locked(&failures.0).failed.len(), MAX_FAILURES);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_failures_are_replaced() {
        let failures = FailureCache::default();
        (0..MAX_FAILURES).for_each(|nth| note(&failures, nth, FailureCache::MAX_FAILURE_BYTES));
        tokio::time::advance(WINDOW * 2).await;
        note(&failures, MAX_FAILURES, FailureCache::MAX_FAILURE_BYTES);
        assert_eq!(is_whole(&failures, MAX_FAILURES), Some(true));
        assert_eq!(locked(&failures.0).failed.len(), 1);
    }
}
