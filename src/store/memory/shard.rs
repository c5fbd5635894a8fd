//! A shard of a `MemoryStore`: the entries, leases and watermarks of some keys.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use super::tags::{MemoryTag, Sequence, TagView};
use crate::duration::micros;
use crate::key::Key;
use crate::store::clock::Moment;
use crate::store::standing::Standing;
use crate::store::{
    Accept, Acquire, Claim, Draft, Entry, Failure, Lease, OtherLease, Renew, Settled, TagEpoch,
    Token, WATERMARK_TTL, Withdrawal,
};
use crate::tag::Tags;
use crate::trace::TraceParent;

#[derive(Default)]
pub(super) struct MemoryShard {
    max_entries: usize,
    max_bytes: usize,
    pub(super) bytes: usize,
    pub(super) evictions: u64,
    /// That of the store.
    hasher: RandomState,
    /// Where in `kept` an entry is, by the hash of its key, which also has chosen the shard. Of two keys
    /// with one hash, the later entry takes the place of the other.
    slots: HashMap<u64, usize, BuildHasherDefault<AsItIs>>,
    pub(super) kept: Slab<CachedEntry>,
    /// The hand of the second-chance clock: the next slot to be considered for eviction.
    hand: usize,
    pub(super) guards: Guards,
    /// Removed entries. The caller drops them after the lock, because the drop of a value runs a
    /// user's code.
    pub(super) removed: Vec<CachedEntry>,
    /// The fences, which all shards share, so that two leases of one microsecond have different
    /// ones.
    fences: Arc<Sequence>,
}

pub(super) struct CachedEntry {
    key: Key,
    hash: u64,
    entry: Entry,
    expires_at: Moment,
    /// The tags of the epochs of the entry, in the same order.
    tags: Box<[Arc<MemoryTag>]>,
    /// Whether it was read since the hand last came by.
    read: bool,
}

impl MemoryShard {
    pub(super) fn new(
        max_entries: usize,
        max_bytes: usize,
        hasher: RandomState,
        fences: Arc<Sequence>,
    ) -> Self {
        Self { max_entries, max_bytes, hasher, fences, ..Self::default() }
    }

    fn find(&mut self, key: &Key, now: Moment) -> Option<Entry> {
        self.find_hashed(self.hasher.hash_one(key), key, now)
    }

    /// Finds the entry of a key with this hash.
    pub(super) fn find_hashed(&mut self, hash: u64, key: &Key, now: Moment) -> Option<Entry> {
        let slot = *self.slots.get(&hash)?;
        let kept = Some(&mut self.kept[slot]).filter(|kept| kept.key == *key)?;
        let remaining = now.until(kept.expires_at);
        kept.read = true;
        let entry = kept.entry.clone().with_remaining(Some(remaining));
        let found = kept.standing().apply(entry, now.micros).filter(|_| !remaining.is_zero());
        if found.is_none() {
            self.remove(hash);
        }
        found
    }

    /// As [`find`](Self::find), if the entry has all these tags.
    pub(super) fn find_tagged(&mut self, key: &Key, tags: &Tags, now: Moment) -> Option<Entry> {
        self.find(key, now).filter(|entry| entry.has_tags(tags))
    }

    pub(super) fn acquire(
        &mut self,
        claim: Claim,
        term: Duration,
        accept: Accept,
        tags: Vec<TagView>,
        now: Moment,
    ) -> Acquire {
        let entry = self.find_tagged(claim.key(), claim.tags(), now);
        let stale = match entry {
            Some(entry) if accept.admits(&entry) => return Acquire::Found(entry),
            entry => entry,
        };
        let granted = self.guards.granted(claim.key(), now);
        let own = granted.filter(|granted| granted.token == claim.token());
        let own = own.map(|granted| (granted.fence, granted.until));
        let busy = granted.filter(|_| own.is_none());
        let trace = busy.and_then(|granted| granted.trace.clone());
        let busy = busy.map(|granted| now.until(granted.until));
        let failed = self.guards.failed(claim.key(), now);
        if let Some(failed) = failed.filter(|_| accept != Accept::Nothing)
            && let Some(remaining) = failed.holds_up(busy, now)
        {
            return Acquire::Failed { failure: failed.failure.clone(), remaining, stale };
        }
        if let Some(remaining) = busy {
            return Acquire::Busy { other: OtherLease::default(), remaining, stale, trace };
        }
        let failures = failed.map_or(0, |failed| failed.times(now));
        let probe = failed.filter(|failed| failed.is_shared(now));
        let probe = probe.map(|failed| failed.failure.clone());
        let next = || (self.fences.next(now), now);
        let (fence, until) = own.unwrap_or_else(next);
        let until = until.max(now.after(term));
        let epochs = tags.iter().map(|view| view.epoch).collect();
        let _tags = tags.into_iter().map(|view| view.tag).collect();
        let guard = self.guards.at(claim.key(), now);
        let trace = claim.trace().cloned();
        guard.lease = Some(ActiveLease { token: claim.token(), fence, until, trace, _tags });
        if probe.is_none() {
            guard.failed = None;
        }
        let probe = probe.filter(|_| accept != Accept::Nothing);
        let lease = Lease::granted(claim, term, fence, now.micros, epochs);
        Acquire::Lead { lease, stale, failures, probe }
    }

    pub(super) fn renew(
        &mut self,
        claim: &Claim,
        fence: u64,
        term: Duration,
        now: Moment,
    ) -> Renew {
        let Some(held) = self.guards.held(claim, fence, now) else { return Renew::Lost };
        held.until = now.after(term);
        Renew::Held
    }

    pub(super) fn commit(
        &mut self,
        lease: &Lease,
        draft: Draft,
        tags: Vec<TagView>,
        now: Moment,
    ) -> Settled {
        let key = lease.key();
        let holds = self.guards.held(&lease.claim, lease.fence, now).is_some();
        self.guards.end_lease(&lease.claim);
        if !holds && !self.may_still_store(lease, now) {
            return Settled::Superseded;
        }
        self.guards.forget_failure(key);
        if draft.invalidates {
            self.guards.at(key, now).watermark = Some(lease.fence);
        }
        if draft.lifetimes.life().is_zero() {
            self.remove(self.hasher.hash_one(key));
            return Settled::Done;
        }
        self.insert(lease, draft, tags, now)
    }

    /// Ends a lease, and remembers why the load failed.
    pub(super) fn fail(&mut self, lease: &Lease, failure: Failure, now: Moment) -> Settled {
        if self.guards.held(&lease.claim, lease.fence, now).is_some() {
            let failed = RecentFailure { failure, at: now };
            self.guards.at(lease.key(), now).failed = Some(failed);
        }
        self.guards.end_lease(&lease.claim);
        Settled::Done
    }

    /// Invalidates all keys, and returns what is removed.
    pub(super) fn clear(&mut self, now: Moment) -> Self {
        let (max_entries, max_bytes) = (self.max_entries, self.max_bytes);
        let (hasher, fences) = (self.hasher.clone(), Arc::clone(&self.fences));
        let empty = Self::new(max_entries, max_bytes, hasher, fences);
        let guards = Guards { merged: self.fences.next(now), ..Guards::default() };
        mem::replace(self, Self { guards, evictions: self.evictions, ..empty })
    }

    /// Returns whether there was an entry.
    pub(super) fn change(&mut self, key: &Key, change: Withdrawal, now: Moment) -> bool {
        // It is above every fence given so far, and below the next one.
        let watermark = Some(self.fences.next(now));
        *self.guards.at(key, now) = Guard { watermark, ..Guard::default() };
        let hash = self.hasher.hash_one(key);
        let was_there = self.find_hashed(hash, key, now).is_some();
        if change == Withdrawal::Invalidate {
            self.remove(hash);
        } else if was_there {
            let kept = &mut self.kept[self.slots[&hash]];
            let stale = now.after(kept.entry.lifetimes().stale());
            kept.expires_at = kept.expires_at.min(stale);
        }
        was_there
    }

    /// Whether a lease that no longer holds may still store: see point 2 of the contract.
    fn may_still_store(&mut self, lease: &Lease, now: Moment) -> bool {
        let age = now.micros.saturating_sub(lease.granted_at);
        let watermark = self.guards.watermark(lease.key());
        let stored = self.find(lease.key(), now).map_or(0, |entry| entry.fence());
        age < micros(WATERMARK_TTL) && lease.fence > watermark && lease.fence > stored
    }

    fn insert(&mut self, lease: &Lease, draft: Draft, tags: Vec<TagView>, now: Moment) -> Settled {
        let key = lease.key().clone();
        let hash = self.hasher.hash_one(&key);
        self.remove(hash);
        let life = draft.lifetimes.life();
        let epochs = tags.iter().map(|view| view.epoch).collect();
        let tags = tags.into_iter().map(|view| view.tag).collect();
        let entry = draft.into_entry(lease.fence, now.micros, Some(life), epochs);
        let expires_at = now.after(life);
        let kept = CachedEntry { key, hash, entry, expires_at, tags, read: false };
        if kept.weight() > self.max_bytes || self.max_entries == 0 {
            // It is too large even for an empty store, so nothing is evicted for it.
            self.removed.push(kept);
            return Settled::TooLarge;
        }
        self.bytes += kept.weight();
        let slot = self.kept.insert(kept);
        self.slots.insert(hash, slot);
        while self.kept.len() > self.max_entries || self.bytes > self.max_bytes {
            self.evict(slot, now);
        }
        Settled::Done
    }

    /// Removes an entry that has expired or was not read since the hand came by, but never the
    /// newest.
    fn evict(&mut self, newest: usize, now: Moment) {
        loop {
            self.hand = if self.hand < self.kept.capacity() { self.hand } else { 0 };
            let slot = self.hand;
            self.hand += 1;
            let Some(kept) = self.kept.get_mut(slot) else { continue };
            let is_live = kept.expires_at > now;
            if slot == newest || (is_live && mem::take(&mut kept.read)) {
                continue;
            }
            self.evictions += u64::from(is_live);
            let hash = kept.hash;
            return self.remove(hash);
        }
    }

    /// Removes the entry of the key with this hash.
    fn remove(&mut self, hash: u64) {
        let Some(slot) = self.slots.remove(&hash) else { return };
        let kept = self.kept.remove(slot);
        self.bytes -= kept.weight();
        self.removed.push(kept);
    }
}

impl CachedEntry {
    fn weight(&self) -> usize {
        let value = self.entry.value().weight();
        value.saturating_add(self.key.byte_len() + TABLES + self.tags.len() * TAG)
    }

    /// What its tags have made of it.
    #[inline]
    fn standing(&self) -> Standing {
        let seen = self.tags.iter().zip(self.entry.epochs());
        let standings = seen.map(|(tag, seen)| tag.standing(seen, || self.key.digest()));
        standings.min().unwrap_or(Standing::Current)
    }
}

/// The hash of a hash: itself.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What an entry costs in addition to its key and value: the tables of the store and its metadata.
const TABLES: usize = 640;

/// What each of its tags costs: the epoch and the reference.
const TAG: usize = size_of::<TagEpoch>() + size_of::<Arc<MemoryTag>>();

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
    /// The watermark of all keys, beside their own.
    merged: u64,
}

/// What prevents loads or commits of a key.
#[derive(Default)]
pub(super) struct Guard {
    pub(super) lease: Option<ActiveLease>,
    /// A lapsed lease up to this fence must not store. Fences are times, and a lease that is older than
    /// [`WATERMARK_TTL`] stores nothing: so a watermark that is older can be forgotten.
    pub(super) watermark: Option<u64>,
    pub(super) failed: Option<RecentFailure>,
}

pub(super) struct RecentFailure {
    pub(super) failure: Failure,
    pub(super) at: Moment,
}

pub(super) struct ActiveLease {
    pub(super) token: Token,
    pub(super) fence: u64,
    pub(super) until: Moment,
    pub(super) trace: Option<TraceParent>,
    /// The tags of the claim, which are not forgotten while it holds.
    pub(super) _tags: Vec<Arc<MemoryTag>>,
}

impl Guards {
    /// The watermark of a key: a lapsed lease up to this fence must not store.
    pub(super) fn watermark(&self, key: &Key) -> u64 {
        let own = self.of_keys.get(key).and_then(|guard| guard.watermark);
        own.unwrap_or(0).max(self.merged)
    }

    pub(super) fn failed(&self, key: &Key, now: Moment) -> Option<&RecentFailure> {
        let failed = self.of_keys.get(key)?.failed.as_ref();
        failed.filter(|failed| failed.until() > now)
    }

    pub(super) fn granted(&self, key: &Key, now: Moment) -> Option<&ActiveLease> {
        let lease = self.of_keys.get(key)?.lease.as_ref();
        lease.filter(|granted| granted.until > now)
    }

    /// The lease that a claim was granted with this fence.
    pub(super) fn held(&mut self, by: &Claim, fence: u64, now: Moment) -> Option<&mut ActiveLease> {
        let lease = self.of_keys.get_mut(by.key())?.lease.as_mut();
        let is_same = |held: &ActiveLease| held.token == by.token() && held.fence == fence;
        lease.filter(|held| held.until > now && is_same(held))
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
        self.of_keys.retain(|_, guard| {
            self.merged = self.merged.max(guard.watermark.take().unwrap_or(0));
            guard.failed = None;
            guard.is_live(now)
        });
    }
}

impl Guard {
    fn is_live(&self, now: Moment) -> bool {
        self.lease.as_ref().is_some_and(|granted| granted.until > now)
            || self
                .watermark
                .is_some_and(|it| it.saturating_add(micros(WATERMARK_TTL)) > now.micros)
            || self.failed.as_ref().is_some_and(|failed| failed.until() > now)
    }
}

impl RecentFailure {
    fn until(&self) -> Moment {
        self.at.after(self.failure.life)
    }

    /// For how long callers are given this failure. `busy` is what is left of another caller's
    /// lease. None if this caller may load.
    pub(super) fn holds_up(&self, busy: Option<Duration>, now: Moment) -> Option<Duration> {
        if self.failure.window.is_zero() {
            return None;
        }
        let cooldown = now.until(self.at.after(self.failure.cooldown));
        busy.or_else(|| Some(cooldown).filter(|left| !left.is_zero()))
    }

    /// Whether its window still runs.
    pub(super) fn is_shared(&self, now: Moment) -> bool {
        self.at.after(self.failure.window) > now
    }

    /// How many failures in a row there are, if they still count.
    pub(super) fn times(&self, now: Moment) -> u32 {
        let counts = self.at.after(self.failure.counts_for()) > now;
        if counts { self.failure.times } else { 0 }
    }
}

const FIRST_SWEEP: usize = 64;

/// The maximum number of guards of a shard, apart from leases.
const MOST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifetimes::Lifetimes;
    use crate::store::Value;
    use crate::store::clock::Clock;

    #[test]
    fn an_entry_is_not_that_of_another_key_with_its_hash() {
        let now = Clock::start().now();
        let mut shard = MemoryShard::new(10, 10_000, RandomState::new(), Arc::default());
        let [key, other] = [1_u64, 2].map(|number| Key::of("item").with(number));
        let life = Duration::from_secs(60);
        let lease = Lease::granted(Claim::new(key.clone()), life, 1, 1, Vec::new());
        let draft = Draft::new(Value::new("1".into()), 1, Lifetimes::fresh_for(life));
        assert_eq!(shard.insert(&lease, draft, Vec::new(), now), Settled::Done);
        let hash = shard.hasher.hash_one(&key);
        assert!(shard.find_hashed(hash, &other, now).is_none());
        assert!(shard.find_hashed(hash, &key, now).is_some());
    }

    fn now() -> Moment {
        Moment { micros: 1 }
    }

    fn invalidate(guards: &mut Guards, nth: u64) {
        guards.at(&Key::of("item").with(nth), now()).watermark = Some(nth);
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
            assert!(guards.watermark(&Key::of("item").with(nth)) >= nth);
        }
    }

    #[test]
    fn leases_stay_however_many_watermarks_there_are() {
        let mut guards = Guards::default();
        let claims: Vec<_> = (0..50).map(|nth| Claim::new(Key::of("load").with(nth))).collect();
        let until = now().after(Duration::from_secs(600));
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
