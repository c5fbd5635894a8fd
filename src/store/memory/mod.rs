//! `MemoryStore`: the reference implementation of the contract, and the embedded default.

mod options;
mod shard;
mod tags;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use self::options::MemoryOptions;

use self::shard::MemoryShard;
use self::tags::{MemoryTags, Sequence, TagView};
use super::clock::{Clock, Moment};
use super::{
    Accept, Acquire, Claim, Draft, End, Entry, InProcessStore, Lease, Peek, Renew, Settled, Store,
    StoreFuture, Watch, Watchers, Withdrawal, WithdrawalTarget,
};
use crate::key::Key;
use crate::locked::locked;
use crate::stats::MemoryStats;
use crate::tag::Tags;

/// Entries and leases in the memory of this process, bounded by count and by bytes.
///
/// A handle: clones share one store. Layers over one `MemoryStore` behave like processes over one
/// Redis.
///
/// A full store evicts about the least recently read entry, by the second-chance clock
/// (F. J. Corbató, "A Paging Experiment with the Multics System", 1968): a read marks its entry and
/// moves nothing. Leases and watermarks are never evicted; they end by themselves.
///
/// Every operation locks one of up to 16 shards once, whatever the number of keys.
///
/// Its clock is tokio's: in a test with paused time, entries and leases end as the test advances it.
///
/// ```
/// use bellwether::MemoryStore;
/// use bellwether::store::MemoryOptions;
///
/// let store = MemoryStore::new(10_000); // entries, and 64 MiB
/// assert!(store.is_empty());
/// let store = MemoryStore::new(MemoryOptions::new(10_000).max_bytes(16 * 1024 * 1024));
/// # let _ = store;
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    options: MemoryOptions,
    /// Each guards the entries and leases of some keys. Held for a few operations, never across an
    /// `.await`, and never two at once.
    shards: Box<[Mutex<MemoryShard>]>,
    hasher: RandomState,
    tags: MemoryTags,
    /// The fences and the epochs.
    sequence: Arc<Sequence>,
    watchers: Watchers,
    clock: Clock,
}

impl MemoryStore {
    /// A store of at most this many entries, or with these [options](MemoryOptions).
    pub fn new(options: impl Into<MemoryOptions>) -> Self {
        let options = options.into();
        let MemoryOptions { max_entries, max_bytes, .. } = options;
        let count = (max_entries / 256).min(max_bytes / LEAST_BYTES).clamp(1, 16);
        let share = |whole: usize, of: usize| whole / count + usize::from(of < whole % count);
        let (sequence, hasher) = (Arc::new(Sequence::default()), RandomState::new());
        let shard = |of| {
            let (entries, bytes) = (share(max_entries, of), share(max_bytes, of));
            Mutex::new(MemoryShard::new(entries, bytes, hasher.clone(), Arc::clone(&sequence)))
        };
        let shards = (0..count).map(shard).collect();
        Self(Arc::new(Inner {
            options,
            shards,
            hasher,
            tags: MemoryTags::default(),
            sequence,
            watchers: Watchers::default(),
            clock: Clock::start(),
        }))
    }

    /// How full it is, and what it has done since it was made.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats::default();
        for shard in self.0.shards.iter().map(locked) {
            stats.entries += shard.kept.len() as u64;
            stats.bytes += shard.bytes as u64;
            stats.evictions += shard.evictions;
        }
        stats
    }

    /// How many entries are kept, including expired ones that were not removed yet.
    pub fn len(&self) -> usize {
        self.stats().entries as usize
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Invalidates a key, as [`Withdrawal::Invalidate`] does, without a future.
    pub(super) fn invalidate(&self, key: &Key) {
        let now = self.0.clock.now();
        self.shard(key, |shard| shard.change(key, Withdrawal::Invalidate, now));
        self.tell(key);
    }

    /// Invalidates all keys, and frees their memory.
    pub(super) fn clear(&self) {
        for shard in &self.0.shards {
            let mut shard = locked(shard);
            let removed = shard.clear(self.0.clock.now());
            drop(shard);
            drop(removed);
        }
    }

    /// Ends the lease of a claim. Returns whether it had one.
    pub(super) fn release(&self, claim: &Claim) -> bool {
        let is_ended = self.shard(claim.key(), |shard| shard.guards.end_lease(claim));
        self.tell(claim.key());
        is_ended
    }

    /// Runs a function on the shard of a key.
    fn shard<T>(&self, key: &Key, change: impl FnOnce(&mut MemoryShard) -> T) -> T {
        self.shard_of(self.0.hasher.hash_one(key), change)
    }

    /// Runs a function on the shard of keys with this hash.
    fn shard_of<T>(&self, hash: u64, change: impl FnOnce(&mut MemoryShard) -> T) -> T {
        let shards = &self.0.shards;
        // By other bits than those by which a table places its entries.
        let shard = (hash >> 32) as usize % shards.len();
        // A poisoned shard is consistent, because no user code runs under the lock.
        let mut shard = locked(&shards[shard]);
        let done = change(&mut shard);
        let removed = std::mem::take(&mut shard.removed);
        drop(shard);
        drop(removed);
        done
    }

    /// A future that runs an operation when it is polled, at the time of that poll.
    fn answer<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Self, Moment) -> T + Send + 'static,
    ) -> StoreFuture<T> {
        let store = self.clone();
        Box::pin(async move { Ok(operation(&store, store.0.clock.now())) })
    }

    /// The tags of an entry to be stored, unless one has changed since its lease was granted.
    fn tags_of(&self, lease: &Lease, draft: &Draft) -> Option<Vec<TagView>> {
        let before = self.0.tags.view(lease.claim.tags());
        let mut unchanged = before.iter().map(|view| view.epoch).eq(lease.epochs.iter().copied());
        let mut all = before;
        for view in self.0.tags.view(&draft.tags) {
            if all.iter().all(|known| known.epoch.tag != view.epoch.tag) {
                unchanged &= view.epoch.soft <= lease.fence;
                all.push(view);
            }
        }
        all.sort_by_key(|view| view.epoch.tag);
        unchanged.then_some(all)
    }

    fn commit(&self, lease: &Lease, draft: Draft, now: Moment) -> Settled {
        let tags = self.tags_of(lease, &draft);
        self.shard(lease.key(), |shard| match tags {
            Some(tags) => shard.commit(lease, draft, tags, now),
            None => {
                shard.guards.end_lease(&lease.claim);
                Settled::Superseded
            }
        })
    }

    fn tell(&self, key: &Key) {
        if !self.0.watchers.is_empty() {
            self.0.watchers.tell(&key.digest(), None);
        }
    }
}

crate::stats_source! { MemoryStore => MemoryStats, |it| it.0.options.name }

impl InProcessStore for MemoryStore {}

impl Store for MemoryStore {
    fn peek(&self, key: &Key) -> Peek {
        let (now, hash) = (self.0.clock.now(), self.0.hasher.hash_one(key));
        let found = self.shard_of(hash, |shard| shard.find_hashed(hash, key, now));
        found.map_or(Peek::Gone, Peek::Found)
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.watchers.watch(key.digest())
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        self.answer(move |store, now| {
            store.shard(&key, |shard| shard.find_tagged(&key, &tags, now))
        })
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        let key = claim.key().clone();
        self.answer(move |store, now| {
            let tags = store.0.tags.view(claim.tags());
            store.shard(&key, |shard| shard.acquire(claim, term, accept, tags, now))
        })
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        let (claim, fence) = (lease.claim.clone(), lease.fence);
        self.answer(move |store, now| {
            store.shard(claim.key(), |shard| shard.renew(&claim, fence, term, now))
        })
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        self.answer(move |store, now| {
            let key = end.claim().key().clone();
            let settled = match end {
                End::Commit(lease, draft) => store.commit(&lease, draft, now),
                End::Fail(lease, why) => store.shard(&key, |shard| shard.fail(&lease, why, now)),
                End::Abandon(claim) => {
                    store.shard(&key, |shard| shard.guards.end_lease(&claim));
                    Settled::Done
                }
            };
            store.tell(&key);
            settled
        })
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        self.answer(move |store, now| match target {
            WithdrawalTarget::Key(key) => {
                let was_there = store.shard(&key, |shard| shard.change(&key, change, now));
                store.tell(&key);
                was_there
            }
            WithdrawalTarget::Tag(tag) => {
                store.0.tags.change(tag.digest(), change, &store.0.sequence, now);
                false
            }
        })
    }
}

crate::debug_fields! { MemoryStore => |it| options = it.0.options }

/// The least size of a shard in bytes, so that it keeps the largest entry that a layer stores by default.
const LEAST_BYTES: usize = 4 * 1024 * 1024;
