//! `Guards`: leases, invalidation watermarks and failures, by key.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::tags::MemoryTag;
use crate::key::Key;
use crate::store::clock::{Moment, later};
use crate::store::{Claim, Failure, Token};
use crate::trace::TraceParent;

/// The guards of a shard, bounded by count.
///
/// Each guard ends by itself: a lease with its load, a failure with its window. If there are too many,
/// failures are removed, which costs a load each. Leases stay, because there are no more of them than
/// loads.
///
/// Keys share watermarks by their hashes. A watermark refuses all commits that have to be refused, and
/// also a few commits of other keys whose lease has lapsed.
pub(super) struct Guards {
    of_keys: HashMap<Key, Guard>,
    /// At this count, guards that have ended are removed. As many were added since the last
    /// removal, so the cost per guard is constant.
    sweep_at: usize,
    watermarks: Box<[u64; WATERMARKS]>,
}

/// What prevents loads of a key.
#[derive(Default)]
pub(super) struct Guard {
    pub(super) lease: Option<ActiveLease>,
    pub(super) failed: Option<RecentFailure>,
}

pub(super) struct RecentFailure {
    pub(super) failure: Failure,
    pub(super) at: Instant,
}

pub(super) struct ActiveLease {
    pub(super) token: Token,
    pub(super) fence: u64,
    pub(super) until: Instant,
    pub(super) trace: Option<TraceParent>,
    /// The tags of the claim, which are not forgotten while it holds.
    pub(super) _tags: Vec<Arc<MemoryTag>>,
}

impl Default for Guards {
    fn default() -> Self {
        Self { of_keys: HashMap::new(), sweep_at: 0, watermarks: Box::new([0; WATERMARKS]) }
    }
}

impl Guards {
    /// The watermark of a key: a lapsed lease up to this fence must not store.
    pub(super) fn watermark(&self, key: &Key) -> u64 {
        self.watermarks[self.place_of(key)]
    }

    /// Raises the watermark of a key, and ends its other guards.
    pub(super) fn raise_watermark(&mut self, key: &Key, fence: u64) {
        let place = self.place_of(key);
        self.watermarks[place] = fence;
        self.of_keys.remove(key);
    }

    fn place_of(&self, key: &Key) -> usize {
        self.of_keys.hasher().hash_one(key) as usize % WATERMARKS
    }

    pub(super) fn failed(&self, key: &Key, now: Moment) -> Option<&RecentFailure> {
        let failed = self.of_keys.get(key)?.failed.as_ref();
        failed.filter(|failed| failed.until() > now.instant)
    }

    pub(super) fn granted(&self, key: &Key, now: Moment) -> Option<&ActiveLease> {
        let lease = self.of_keys.get(key)?.lease.as_ref();
        lease.filter(|granted| granted.until > now.instant)
    }

    /// The lease that a claim was granted with this fence.
    pub(super) fn held(
        &mut self,
        claim: &Claim,
        fence: u64,
        now: Moment,
    ) -> Option<&mut ActiveLease> {
        let lease = self.of_keys.get_mut(claim.key())?.lease.as_mut();
        let is_same = |held: &ActiveLease| held.token == claim.token() && held.fence == fence;
        lease.filter(|held| held.until > now.instant && is_same(held))
    }

    pub(super) fn forget_failure(&mut self, key: &Key) {
        if let Some(guard) = self.of_keys.get_mut(key) {
            guard.failed = None;
        }
    }

    /// Ends the lease of a claim, even if it has lapsed. Returns whether it was there.
    pub(super) fn end_lease(&mut self, claim: &Claim) -> bool {
        let Some(guard) = self.of_keys.get_mut(claim.key()) else { return false };
        let ended = guard.lease.take_if(|granted| granted.token == claim.token()).is_some();
        if ended && guard.failed.is_none() {
            self.of_keys.remove(claim.key());
        }
        ended
    }

    /// The guard of a key, to be changed.
    pub(super) fn at(&mut self, key: &Key, now: Moment) -> &mut Guard {
        if self.of_keys.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.sweep(now);
        }
        self.of_keys.entry(key.clone()).or_default()
    }

    fn sweep(&mut self, now: Moment) {
        self.of_keys.retain(|_, guard| guard.is_live(now));
        if self.of_keys.len() > MOST / 2 {
            self.of_keys.retain(|_, guard| {
                guard.failed = None;
                guard.is_live(now)
            });
        }
        let count = self.of_keys.len();
        self.sweep_at = (count * 2).min(MOST).max(count + MOST / 4);
    }
}

impl Guard {
    fn is_live(&self, now: Moment) -> bool {
        self.lease.as_ref().is_some_and(|granted| granted.until > now.instant)
            || self.failed.as_ref().is_some_and(|failed| failed.until() > now.instant)
    }
}

impl RecentFailure {
    fn until(&self) -> Instant {
        later(self.at, self.failure.life())
    }

    /// For how long callers are given this failure. `busy` is what is left of another caller's
    /// lease. None if this caller may load.
    pub(super) fn holds_up(&self, busy: Option<Duration>, now: Moment) -> Option<Duration> {
        if self.failure.window().is_zero() {
            return None;
        }
        let cooldown = now.until(later(self.at, self.failure.cooldown()));
        busy.or_else(|| Some(cooldown).filter(|left| !left.is_zero()))
    }

    /// Whether its window still runs.
    pub(super) fn is_shared(&self, now: Moment) -> bool {
        later(self.at, self.failure.window()) > now.instant
    }

    /// How many failures in a row there are, if they still count.
    pub(super) fn times(&self, now: Moment) -> u32 {
        let counts = later(self.at, self.failure.counts_for()) > now.instant;
        if counts { self.failure.times() } else { 0 }
    }
}

const FIRST_SWEEP: usize = 64;

/// The maximum number of guards of a shard, apart from leases.
const MOST: usize = 1024;

/// How many watermarks a shard has.
const WATERMARKS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FailureCause;

    fn now() -> Moment {
        Moment { instant: Instant::now(), micros: 1 }
    }

    fn fail(guards: &mut Guards, nth: u64) {
        let failure = Failure::new(FailureCause::Error, 1, Duration::from_secs(600));
        guards.at(&Key::of("item").with(nth), now()).failed =
            Some(RecentFailure { failure, at: now().instant });
    }

    #[test]
    fn failures_of_any_number_of_keys_leave_a_bounded_number_of_guards() {
        let mut guards = Guards::default();
        for nth in 0..100_000 {
            fail(&mut guards, nth);
            assert!(guards.of_keys.len() <= MOST);
        }
    }

    #[test]
    fn no_watermark_is_lower_than_it_was() {
        let mut guards = Guards::default();
        (0..100_000).for_each(|nth| guards.raise_watermark(&Key::of("item").with(nth), nth));
        for nth in 0..100_000 {
            assert!(guards.watermark(&Key::of("item").with(nth)) >= nth);
        }
    }

    #[test]
    fn leases_stay_however_many_failures_there_are() {
        let mut guards = Guards::default();
        let claims: Vec<_> = (0..50).map(|nth| Claim::new(Key::of("load").with(nth))).collect();
        let until = now().instant + Duration::from_secs(600);
        for claim in &claims {
            let granted = ActiveLease {
                token: claim.token(),
                fence: 1,
                until,
                trace: None,
                _tags: Vec::new(),
            };
            guards.at(claim.key(), now()).lease = Some(granted);
        }
        (0..10_000).for_each(|nth| fail(&mut guards, nth));
        assert!(claims.iter().all(|claim| guards.granted(claim.key(), now()).is_some()));
    }
}
