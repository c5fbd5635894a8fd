//! A shard of a `MemoryStore`: the entries, leases and watermarks of some keys.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tokio::time::Instant;

use super::guards::{ActiveLease, Guard, Guards, RecentFailure, Watermark};
use super::tags::{MemoryTag, Sequence, TagView};
use crate::duration::micros;
use crate::key::Key;
use crate::store::clock::Moment;
use crate::store::standing::Standing;
use crate::store::{
    Accept, Acquire, Claim, Draft, Entry, Failure, Lease, OtherLease, Renew, Settled, TagEpoch,
    WATERMARK_TTL, Withdrawal,
};
use crate::tag::Tags;

#[derive(Default)]
pub(super) struct MemoryShard {
    max_entries: usize,
    max_bytes: usize,
    pub(super) bytes: usize,
    pub(super) evictions: u64,
    slots: HashMap<Key, usize>,
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
    entry: Entry,
    expires_at: Instant,
    /// The tags of the epochs of the entry, in the same order.
    tags: Box<[Arc<MemoryTag>]>,
    /// Whether it was read since the hand last came by.
    read: bool,
}

impl MemoryShard {
    pub(super) fn new(max_entries: usize, max_bytes: usize, fences: Arc<Sequence>) -> Self {
        Self { max_entries, max_bytes, fences, ..Self::default() }
    }

    pub(super) fn find(&mut self, key: &Key, now: Moment) -> Option<Entry> {
        let slot = *self.slots.get(key)?;
        let kept = &mut self.kept[slot];
        let remaining = now.until(kept.expires_at);
        kept.read = true;
        let entry = kept.entry.clone().with_remaining(Some(remaining));
        let found = kept.standing().apply(entry, now.micros).filter(|_| !remaining.is_zero());
        if found.is_none() {
            self.remove(key);
        }
        found
    }

    /// The same, if the entry has all these tags.
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
        let next = || (self.fences.next(now), now.instant);
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
        if draft.change == Some(Withdrawal::Invalidate) {
            let watermark = Watermark { fence: lease.fence, until: now.after(WATERMARK_TTL) };
            self.guards.at(key, now).watermark = Some(watermark);
        }
        if draft.lifetimes.life().is_zero() {
            self.remove(key);
            return Settled::Done;
        }
        self.insert(lease, draft, tags, now)
    }

    /// Ends a lease, and remembers why the load failed.
    pub(super) fn fail(&mut self, lease: &Lease, failure: Failure, now: Moment) -> Settled {
        if self.guards.held(&lease.claim, lease.fence, now).is_some() {
            let failed = RecentFailure { failure, at: now.instant };
            self.guards.at(lease.key(), now).failed = Some(failed);
        }
        self.guards.end_lease(&lease.claim);
        Settled::Done
    }

    /// Invalidates all keys, and returns what is removed.
    pub(super) fn clear(&mut self, now: Moment) -> Self {
        let (max_entries, max_bytes) = (self.max_entries, self.max_bytes);
        let empty = Self::new(max_entries, max_bytes, Arc::clone(&self.fences));
        let fence = self.fences.next(now);
        let watermark = Watermark { fence, until: now.after(WATERMARK_TTL) };
        let guards = Guards::all_below(watermark);
        mem::replace(self, Self { guards, evictions: self.evictions, ..empty })
    }

    /// Returns whether there was an entry.
    pub(super) fn change(&mut self, key: &Key, change: Withdrawal, now: Moment) -> bool {
        // It is above every fence given so far, and below the next one.
        let fence = self.fences.next(now);
        let watermark = Watermark { fence, until: now.after(WATERMARK_TTL) };
        *self.guards.at(key, now) = Guard { watermark: Some(watermark), ..Guard::default() };
        let was_there = self.find(key, now).is_some();
        if change == Withdrawal::Invalidate {
            self.remove(key);
        } else if let Some(slot) = self.slots.get(key) {
            let kept = &mut self.kept[*slot];
            let stale = now.after(kept.entry.lifetimes().stale());
            kept.expires_at = kept.expires_at.min(stale);
        }
        was_there
    }

    /// Whether a lease that no longer holds may still store: see point 2 of the contract.
    fn may_still_store(&mut self, lease: &Lease, now: Moment) -> bool {
        let age = now.micros.saturating_sub(lease.granted_at);
        let watermark = self.guards.watermark(lease.key(), now);
        let stored = self.find(lease.key(), now).map_or(0, |entry| entry.fence());
        age < micros(WATERMARK_TTL) && lease.fence > watermark && lease.fence > stored
    }

    fn insert(&mut self, lease: &Lease, draft: Draft, tags: Vec<TagView>, now: Moment) -> Settled {
        let key = lease.key().clone();
        self.remove(&key);
        let life = draft.lifetimes.life();
        let epochs = tags.iter().map(|view| view.epoch).collect();
        let tags = tags.into_iter().map(|view| view.tag).collect();
        let entry = draft.into_entry(lease.fence, now.micros, Some(life), epochs);
        let expires_at = now.after(life);
        let kept = CachedEntry { key: key.clone(), entry, expires_at, tags, read: false };
        if kept.weight() > self.max_bytes || self.max_entries == 0 {
            // It is too large even for an empty store, so nothing is evicted for it.
            self.removed.push(kept);
            return Settled::TooLarge;
        }
        self.bytes += kept.weight();
        let slot = self.kept.insert(kept);
        self.slots.insert(key, slot);
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
            let is_live = kept.expires_at > now.instant;
            if slot == newest || (is_live && mem::take(&mut kept.read)) {
                continue;
            }
            self.evictions += u64::from(is_live);
            let key = kept.key.clone();
            return self.remove(&key);
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(slot) = self.slots.remove(key) else { return };
        let kept = self.kept.remove(slot);
        self.bytes -= kept.weight();
        self.removed.push(kept);
    }
}

impl CachedEntry {
    fn weight(&self) -> usize {
        let value = self.entry.value().weight();
        value.saturating_add(self.key.byte_len() * 2 + TABLES + self.tags.len() * TAG)
    }

    /// What its tags have made of it.
    #[inline]
    fn standing(&self) -> Standing {
        let seen = self.tags.iter().zip(self.entry.epochs());
        let standings = seen.map(|(tag, seen)| tag.standing(seen, || self.key.digest()));
        standings.min().unwrap_or(Standing::Current)
    }
}

/// What an entry costs in addition to its key and value: the tables of the store and its metadata.
const TABLES: usize = 640;

/// What each of its tags costs: the epoch and the reference.
const TAG: usize = size_of::<TagEpoch>() + size_of::<Arc<MemoryTag>>();
