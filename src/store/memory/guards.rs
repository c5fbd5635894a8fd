//! `Guards`: leases, invalidation watermarks and failures, by key.

use std::collections::HashMap;
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
/// Each guard ends by itself: a lease with its load, a failure with its window, a watermark ten
/// minutes after its invalidation. If there are too many, the watermarks of all keys are merged
/// into one, the highest. It refuses all commits that have to be refused, and also some commits of
/// other keys whose lease has lapsed. Failures are removed then, which costs a load each. Leases
/// stay, because there are no more of them than loads.
#[derive(Default)]
pub(super) struct Guards {
    of_keys: HashMap<Key, Guard>,
    /// At this count, guards that have ended are removed. As many were added since the last
    /// removal, so the cost per guard is constant.
    sweep_at: usize,
    /// The watermark of all keys that have none of their own.
    merged: Option<Watermark>,
}

/// What prevents loads or commits of a key.
#[derive(Default)]
pub(super) struct Guard {
    pub(super) lease: Option<ActiveLease>,
    pub(super) watermark: Option<Watermark>,
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

#[derive(Clone, Copy)]
pub(super) struct Watermark {
    pub(super) fence: u64,
    pub(super) until: Instant,
}

impl Guards {
    /// The watermark of a key: a lapsed lease up to this fence must not store.
    pub(super) fn watermark(&self, key: &Key, now: Moment) -> u64 {
        let own = self.of_keys.get(key).and_then(|guard| guard.watermark);
        let live = own.into_iter().chain(self.merged).filter(|mark| mark.until > now.instant);
        live.map(|watermark| watermark.fence).max().unwrap_or(0)
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
    pub(super) fn held(&mut self, by: &Claim, fence: u64, now: Moment) -> Option<&mut ActiveLease> {
        let lease = self.of_keys.get_mut(by.key())?.lease.as_mut();
        let is_same = |held: &ActiveLease| held.token == by.token() && held.fence == fence;
        lease.filter(|held| held.until > now.instant && is_same(held))
    }

    pub(super) fn forget_failure(&mut self, key: &Key) {
        if let Some(guard) = self.of_keys.get_mut(key) {
            guard.failed = None;
        }
    }

    /// Ends the lease of a claim, even if it has lapsed. Returns whether it had one.
    pub(super) fn end_lease(&mut self, claim: &Claim) -> bool {
        let Some(guard) = self.of_keys.get_mut(claim.key()) else { return false };
        let ended = guard.lease.take_if(|granted| granted.token == claim.token()).is_some();
        if ended && guard.watermark.is_none() && guard.failed.is_none() {
            self.of_keys.remove(claim.key());
        }
        ended
    }

    /// No lease and no failure, and this watermark for all keys.
    pub(super) fn all_below(watermark: Watermark) -> Self {
        Self { merged: Some(watermark), ..Self::default() }
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
            self.merge(now);
        }
        let count = self.of_keys.len();
        self.sweep_at = (count * 2).min(MOST).max(count + MOST / 4);
    }

    /// Merges all watermarks into one, and removes failures.
    fn merge(&mut self, now: Moment) {
        let merged = self.merged.filter(|watermark| watermark.until > now.instant);
        let watermarks = self.of_keys.values().filter_map(|guard| guard.watermark).chain(merged);
        self.merged = watermarks.reduce(|one, other| Watermark {
            fence: one.fence.max(other.fence),
            until: one.until.max(other.until),
        });
        self.of_keys.retain(|_, guard| {
            guard.watermark = None;
            guard.failed = None;
            guard.is_live(now)
        });
    }
}

impl Guard {
    fn is_live(&self, now: Moment) -> bool {
        self.lease.as_ref().is_some_and(|granted| granted.until > now.instant)
            || self.watermark.is_some_and(|watermark| watermark.until > now.instant)
            || self.failed.as_ref().is_some_and(|failed| failed.until() > now.instant)
    }
}

impl RecentFailure {
    fn until(&self) -> Instant {
        later(self.at, self.failure.life)
    }

    /// For how long callers are given this failure. `busy` is what is left of another caller's
    /// lease. None if this caller may load.
    pub(super) fn holds_up(&self, busy: Option<Duration>, now: Moment) -> Option<Duration> {
        if self.failure.window.is_zero() {
            return None;
        }
        let cooldown = now.until(later(self.at, self.failure.cooldown));
        busy.or_else(|| Some(cooldown).filter(|left| !left.is_zero()))
    }

    /// Whether its window still runs.
    pub(super) fn is_shared(&self, now: Moment) -> bool {
        later(self.at, self.failure.window) > now.instant
    }

    /// How many failures in a row there are, if they still count.
    pub(super) fn times(&self, now: Moment) -> u32 {
        let counts = later(self.at, self.failure.counts_for()) > now.instant;
        if counts { self.failure.times } else { 0 }
    }
}

const FIRST_SWEEP: usize = 64;

/// The maximum number of guards of a shard, apart from leases.
const MOST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Moment {
        Moment { instant: Instant::now(), micros: 1 }
    }

    fn invalidate(guards: &mut Guards, nth: u64) {
        let until = now().instant + Duration::from_secs(600);
        guards.at(&Key::of("item").with(nth), now()).watermark =
            Some(Watermark { fence: nth, until });
    }

    #[test]
    fn invalidations_of_any_number_of_keys_leave_a_bounded_number_of_watermarks() {
        let mut guards = Guards::default();
        for nth in 0..100_000 {
            invalidate(&mut guards, nth);
            assert!(guards.of_keys.len() <= MOST);
        }
        // None is lower than it was.
        for nth in 0..100_000 {
            assert!(guards.watermark(&Key::of("item").with(nth), now()) >= nth);
        }
    }

    #[test]
    fn leases_stay_however_many_watermarks_there_are() {
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
        (0..10_000).for_each(|nth| invalidate(&mut guards, nth));
        assert!(claims.iter().all(|claim| guards.granted(claim.key(), now()).is_some()));
    }
}
