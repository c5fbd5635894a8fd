//! What a process remembers of keys: loads that failed a moment ago, with the loader's own error;
//! private answers; and the claims of flights whose tasks were dropped.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::{Digest, Key};
use crate::locked::locked;
use crate::store::{Claim, Failure};

use super::outcome::Outcome;

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

/// Keys whose last answers in this process were private, and how many such answers came in a row.
///
/// Callers of such a key may bypass coalescing: at most as many at once as there were private
/// answers in a row, and none after a single one. A key whose answers are all private reaches this
/// with its first burst. A caller that provokes private answers for a shared key lets at most as
/// many loads bypass as it has caused itself. The first answer that can be shared ends it. Locked
/// for a map operation, never across an `.await`.
#[derive(Default)]
pub struct PrivateKeys(Mutex<PrivateKeyTable>);

#[derive(Default)]
struct PrivateKeyTable {
    keys: HashMap<Digest, KnownPrivateKey>,
    /// At this size the table removes its expired records. It doubles between two sweeps, so a
    /// sweep costs each added key a constant share.
    sweep_at: usize,
}

struct KnownPrivateKey {
    /// How many private answers came in a row.
    in_a_row: usize,
    /// How many of the last answers in a row were incomplete at their time limit.
    slow: u32,
    /// How many callers bypass right now.
    bypassing: Arc<AtomicUsize>,
    /// When the record expires.
    until: Instant,
}

/// A permit of one caller to load individually. Hold it until the answer is known.
#[derive(Debug)]
pub struct BypassPermit(Arc<AtomicUsize>);

impl Drop for BypassPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PrivateKeys {
    /// Notes a private answer, which is remembered for as long as it `lasts`.
    pub fn note_private(&self, key: Digest, lasts: Duration) {
        locked(&self.0).note(key, lasts).slow = 0;
    }

    /// Notes an answer that is private because it was not complete in time.
    pub fn note_slow(&self, key: Digest, lasts: Duration) {
        let mut table = locked(&self.0);
        let record = table.note(key, lasts);
        record.slow = record.slow.saturating_add(1);
    }

    /// Notes an answer that can be shared: callers are coalesced again.
    pub fn note_shared(&self, key: &Digest) {
        locked(&self.0).keys.remove(key);
    }

    /// A permit to load without waiting for another caller, if the key has enough private answers.
    pub fn bypass(&self, key: &Digest) -> Option<BypassPermit> {
        let table = locked(&self.0);
        let record = table.live(key).filter(|record| record.in_a_row >= ENOUGH)?;
        if record.bypassing.fetch_add(1, Ordering::Relaxed) < record.in_a_row {
            return Some(BypassPermit(Arc::clone(&record.bypassing)));
        }
        record.bypassing.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// How many answers in a row were not complete in time.
    pub fn slow_in_a_row(&self, key: &Digest) -> u32 {
        locked(&self.0).live(key).map_or(0, |record| record.slow)
    }
}

impl PrivateKeyTable {
    fn live(&self, key: &Digest) -> Option<&KnownPrivateKey> {
        self.keys.get(key).filter(|record| Instant::now() < record.until)
    }

    fn note(&mut self, key: Digest, lasts: Duration) -> &mut KnownPrivateKey {
        let now = Instant::now();
        if self.keys.len() >= self.sweep_at && !self.keys.contains_key(&key) {
            self.sweep(now);
        }
        let record = self.keys.entry(key).or_insert_with(|| KnownPrivateKey::new(now));
        if record.until <= now {
            *record = KnownPrivateKey::new(now);
        }
        record.in_a_row = record.in_a_row.saturating_add(1);
        record.until = now + lasts;
        record
    }

    fn sweep(&mut self, now: Instant) {
        self.keys.retain(|_, record| now < record.until);
        if self.keys.len() >= MAX_KEYS {
            self.keys.clear();
        }
        self.sweep_at = (self.keys.len() * 2).clamp(FIRST_SWEEP, MAX_KEYS);
    }
}

impl KnownPrivateKey {
    fn new(now: Instant) -> Self {
        Self { in_a_row: 0, slow: 0, bypassing: Arc::default(), until: now }
    }
}

crate::debug_fields! { PrivateKeys => |it| keys = locked(&it.0).keys.len() }

/// After how many private answers in a row callers bypass. One may be an exception.
const ENOUGH: usize = 2;

const FIRST_SWEEP: usize = 64;

/// How many keys are remembered at most. Beyond that all are forgotten, and found again by a few
/// loads each.
const MAX_KEYS: usize = 1 << 16;

/// The claims of one layer in this process, each until its lease has lapsed. Held for an operation on
/// the list, never across an `.await`.
#[derive(Default)]
pub(crate) struct OrphanedClaims(Mutex<Vec<(Claim, Instant)>>);

/// The claim of a flight. Dropping it while armed leaves the claim to the next flight of the key.
pub(crate) struct OrphanGuard {
    orphaned: Arc<OrphanedClaims>,
    claim: Option<Claim>,
    lease: Duration,
}

impl OrphanedClaims {
    pub(crate) fn guard(self: &Arc<Self>, claim: &Claim, lease: Duration) -> OrphanGuard {
        OrphanGuard { orphaned: Arc::clone(self), claim: Some(claim.clone()), lease }
    }

    /// The claims of earlier flights of this key, to be released.
    pub(crate) fn take(&self, key: &Key) -> Vec<Claim> {
        let now = Instant::now();
        let mut claims = locked(&self.0);
        claims.retain(|(_, until)| *until > now);
        let of_key = claims.extract_if(.., |(claim, _)| claim.key() == key);
        of_key.map(|(claim, _)| claim).collect()
    }
}

impl OrphanGuard {
    /// The flight has ended by itself.
    pub(crate) fn disarm(&mut self) {
        self.claim = None;
    }
}

impl Drop for OrphanGuard {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            locked(&self.orphaned.0).push((claim, Instant::now() + self.lease));
        }
    }
}

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

    fn len(private_keys: &PrivateKeys) -> usize {
        locked(&private_keys.0).keys.len()
    }

    fn bypassing(private_keys: &PrivateKeys) -> Vec<BypassPermit> {
        std::iter::from_fn(|| private_keys.bypass(&digest(0))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_bypass_at_once_as_there_were_private_answers_but_none_after_one() {
        let private_keys = PrivateKeys::default();
        for (answers, expected) in [(1, 0), (2, 2), (3, 3)] {
            private_keys.note_private(digest(0), WINDOW);
            let all = bypassing(&private_keys);
            assert_eq!(all.len(), expected, "after {answers} answers");
            drop(all);
            assert_eq!(bypassing(&private_keys).len(), expected, "the permits were given back");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shared_answer_or_the_end_of_the_window_ends_it() {
        let private_keys = PrivateKeys::default();
        let note = || (0..5).for_each(|_| private_keys.note_private(digest(0), WINDOW));
        note();
        private_keys.note_shared(&digest(0));
        assert!(bypassing(&private_keys).is_empty());
        note();
        tokio::time::advance(WINDOW).await;
        assert!(bypassing(&private_keys).is_empty());
        private_keys.note_private(digest(0), WINDOW);
        assert!(bypassing(&private_keys).is_empty(), "they are counted from the beginning");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_keys_is_bounded() {
        let private_keys = PrivateKeys::default();
        for nth in 0..MAX_KEYS * 2 {
            private_keys.note_private(digest(nth), WINDOW);
            assert!(len(&private_keys) <= MAX_KEYS);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn expired_keys_are_removed() {
        let private_keys = PrivateKeys::default();
        for nth in 0..FIRST_SWEEP * 100 {
            private_keys.note_private(digest(nth), Duration::from_millis(1));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(len(&private_keys) <= FIRST_SWEEP, "{private_keys:?}");
    }
}
