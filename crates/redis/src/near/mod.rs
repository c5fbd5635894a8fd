//! The near tier: copies of entries in this process, invalidated by push messages (client-side
//! caching).
//!
//! # When a copy is valid
//! 1. The version of a key is taken before the lookup is sent, and the copy keeps that version. A
//!    change that is reported later, even before the reply arrives, makes the version invalid, and
//!    the copy with it.
//! 2. Versions are valid only as long as the connection over which the lookup was sent. In a
//!    cluster, that is the connection to the owner of the slot, and the version of a key is valid
//!    only as long as the slot has the same owner and no request to it was redirected. Copies are
//!    served only while changes are reported. Validity is checked in [`Near::find`] only, so the
//!    order of replies, push messages and disconnections does not matter. Invalidating one copy or
//!    all of them is one atomic store, which never blocks the push handler. New copies reuse the
//!    memory of invalid ones, and an idle near tier frees it.
//! 3. A copy ends with its entry. Its remaining life is counted from before the lookup was sent.
//! 4. A connection can be dead without a sign. So a copy is served only if the connection has
//!    answered a request that was sent less than [`silence`] ago: one second plus the timeout of an
//!    operation. The server reports a change before it replies to later requests, so a change that
//!    is not yet reported when a reply arrives is younger than that request. Every reply over that
//!    connection counts. While copies are read, a [heartbeat](Near::beat) ensures that
//!    there are enough. The first read after an idle time is a lookup, and its reply confirms all
//!    copies.
//! 5. No copy is served for longer than `near_ttl` in any case.
//! 6. A tag has a version like a key, which is taken before its epoch is read over the same
//!    connection. A copy keeps the versions of all its tags, so a change of a tag invalidates the
//!    copies of its entries, and a hit compares numbers.
//! 7. A server whose tracking table is full drops names from it, and reports each as changed. So a
//!    reported tag may be unchanged. Each lookup notes what it read of tags, with their versions.
//!    That is as good for an older copy as if it had been made then: if the tag has the epochs under
//!    which the entry was loaded, the copy has that version, too. No epoch of a tag comes back.
//!
//! Time is that of [`Instant`]. It runs while the process is stopped, so a process that continues
//! serves no copy before the server has answered again. On Linux and macOS it does not run while
//! the machine is suspended. There, the bound counts time awake, and holds from the wake-up on.
//!
//! The near tier does not copy what this process stores, because the push message about that write
//! may still be under way and would drop the copy. The next lookup makes one.
//!
//! # Why `quick_cache`
//! Of the measured caches, it finds a hot key fastest: 57 ns for a `get`. A sharded LRU behind
//! mutexes takes 65 ns, moka 210 to 260 ns, foyer 245 ns and mini-moka 390 ns. It is also the
//! fastest to insert, has two small dependencies, and resists scans (S3-FIFO). Copies are stored
//! under the [`Key`] instead of its digest: then a hit needs no digest, which saves 80 ns.

mod epochs;

/// What epochs are made of. `tests/interleavings` puts parts that it can interleave in their place.
mod sync {
    pub(super) use std::sync::Mutex;
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};

    pub(super) use bellwether::adapter::locked;
}

use std::hash::RandomState;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

pub(super) use self::epochs::Version;

use self::epochs::Epochs;
use super::stats::NearStats;
use bellwether::Key;
use bellwether::codec::decoded_len;
use bellwether::stats::Striped;
use bellwether::store::{Digest, Entry, TagEpoch};
use bellwether_redis_client::{RedisClient, ServerEvent, ServerObserver, SlotOwners};

/// Copies of entries in this process.
#[derive(Debug)]
pub(super) struct Near {
    copies: Cache<Key, NearCopy, Weights, RandomState, Evicted>,
    /// Whether a key or a tag may have changed. A version is noted before it is read.
    pub(super) epochs: Epochs,
    /// The maximum time for which a copy is served. After this long without use, none is valid.
    longest: Duration,
    /// Whether a copy was made or read since [`was_used`](Self::was_used) was last called.
    used: AtomicBool,
    hits: Striped<1>,
    evictions: Arc<AtomicU64>,
}

/// The version of a key before a lookup, and the time of that.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadStart {
    version: Version,
    /// As [`Epochs::now`].
    at: u64,
}

#[derive(Clone, Debug)]
struct NearCopy {
    /// With the life that was left when the lookup was sent, or less.
    entry: Entry,
    start: ReadStart,
    /// The versions of its tags, in the order of its epochs. Shared, because a hit clones the copy.
    tags: Option<Arc<[Version]>>,
}

impl Near {
    /// A near tier of at most this many bytes. It serves a copy for `longest` at most, and no copy
    /// while the connection has not answered for `silence`.
    pub(super) fn new(
        bytes: usize,
        longest: Duration,
        silence: Duration,
        owners: Arc<SlotOwners>,
    ) -> Self {
        let options = OptionsBuilder::new()
            .shards((bytes / SHARD).clamp(1, MOST_SHARDS))
            .estimated_items_capacity(bytes / TYPICAL)
            .weight_capacity(bytes as u64)
            .build()
            .unwrap_or_else(|_| unreachable!("both capacities are set"));
        let evictions = Arc::default();
        let evicted = Evicted(Arc::clone(&evictions));
        let copies = Cache::with_options(options, Weights, RandomState::new(), evicted);
        let counters = (bytes / TYPICAL).clamp(LEAST_COUNTERS, MOST_COUNTERS);
        let epochs = Epochs::new(counters, silence, owners);
        let used = AtomicBool::new(false);
        let hits = Striped::default();
        Self { copies, epochs, longest, used, hits, evictions }
    }

    /// The copy of an entry with its remaining life, if the copy is valid.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<Entry> {
        let NearCopy { entry, start, tags } = self.copies.get(key)?;
        let life = entry.remaining()?;
        let now = self.epochs.now();
        let age = Duration::from_nanos(now.saturating_sub(start.at));
        let is_valid = |version: &Version| self.epochs.is_valid(version, now);
        let tags = tags.as_deref().unwrap_or_default();
        if age >= life.min(self.longest)
            || !is_valid(&start.version)
            || !(tags.iter().all(is_valid) || self.are_unchanged(tags, &entry, now))
        {
            return None;
        }
        self.note_use();
        self.hits.add(0);
        Some(entry.with_remaining(Some(life - age)))
    }

    /// The copy of an entry while the server does not answer: stale at the latest from when its changes are
    /// not reported any more, and for failed loads only, unless it is
    /// [fresh in outages](bellwether::Lifetimes::fresh_in_outages). None if a change was reported before, or if
    /// it may not be served for so long.
    pub(super) fn find_unwatched(&self, key: &Key) -> Option<Entry> {
        let NearCopy { entry, start, tags } = self.copies.get(key)?;
        let now = self.epochs.now();
        let versions = iter::once(&start.version).chain(tags.as_deref().unwrap_or_default());
        let until = versions.map(|version| self.epochs.reported_until(version, now));
        // The earliest one. None if one of them has none.
        let until = until.min().flatten()?;
        let [age, unwatched_for] = [start.at, until].map(|at| now.saturating_sub(at));
        let age = Duration::from_nanos(age);
        if entry.lifetimes().is_fresh_in_outages() {
            let left = entry.remaining()?.checked_sub(age).filter(|left| !left.is_zero())?;
            self.note_use();
            return Some(entry.with_remaining(Some(left)));
        }
        let age = age.saturating_sub(entry.fresh_for()?);
        let stale_for = entry.stale_for().unwrap_or_default().saturating_add(age);
        let copy = entry.unwatched(stale_for.max(Duration::from_nanos(unwatched_for)))?;
        self.note_use();
        Some(copy)
    }

    /// Whether the tags of an entry are known to be unchanged, though changes were reported. Apart, so that
    /// other hits do not read the epochs.
    #[cold]
    fn are_unchanged(&self, tags: &[Version], entry: &Entry, now: u64) -> bool {
        let mut tags = iter::zip(tags, entry.epochs());
        tags.all(|(version, loaded)| self.epochs.is_tag_valid(version, loaded, now))
    }

    /// Notes the version of a key, before a lookup is sent. None if its entry must not be copied.
    pub(super) fn start_read(&self, digest: &Digest) -> Option<ReadStart> {
        let version = self.epochs.version(digest)?;
        Some(ReadStart { version, at: self.epochs.now() })
    }

    /// Copies the entry that a lookup found, if its version and those of its tags still hold.
    /// Returns whether it did.
    pub(super) fn keep(
        &self,
        start: ReadStart,
        tags: Vec<Version>,
        key: &Key,
        entry: &Entry,
    ) -> bool {
        let Some(life) = entry.remaining() else { return false };
        let mut versions = iter::once(&start.version).chain(&tags);
        if life.is_zero() || !versions.all(|version| self.epochs.holds(version)) {
            return false;
        }
        // The replaced copy is dropped here instead of under a lock.
        drop(self.copies.remove(key));
        let tags = (!tags.is_empty()).then(|| tags.into());
        self.copies.insert(key.clone(), NearCopy { entry: entry.clone(), start, tags });
        self.note_use();
        true
    }

    /// Drops all copies, to free their memory.
    ///
    /// # Cancel safety
    /// Dropping it leaves some copies.
    async fn empty(&self) {
        // One by one, so that no lock is held while a value of a user's type is dropped.
        for (count, copy) in self.copies.drain().enumerate() {
            drop(copy);
            if count % AT_ONCE == 0 {
                yield_now().await;
            }
        }
    }

    /// Probes the connection until there are no copies. A request without a reply takes the connection out of
    /// use, and that invalidates all copies.
    ///
    /// It probes twice within [`silence`], so a late reply costs no caller a lookup. An idle process sends
    /// nothing, and its first read is a lookup.
    pub(super) async fn beat(self: Arc<Self>, client: RedisClient) {
        let mut used_at = Instant::now();
        let mut next = used_at + HEARTBEAT;
        while !self.copies.is_empty() {
            sleep_until(next).await;
            next = Instant::now() + HEARTBEAT;
            if self.used.swap(false, Ordering::Relaxed) {
                used_at = Instant::now();
                // Any reply will do. The connection itself notices a missing one. A node that hangs holds up
                // the next probes for no longer than a reply may take, which is in the bound of silence.
                let probes = client.probes("probing the connection");
                join_all(probes.iter().map(|probe| client.run(probe, Some))).await;
            } else if used_at.elapsed() > self.longest {
                self.empty().await;
            }
        }
    }

    pub(super) fn stats(&self) -> NearStats {
        NearStats {
            hits: self.hits.read(0),
            entries: self.copies.len() as u64,
            bytes: self.copies.weight(),
            evictions: self.evictions.load(Ordering::Relaxed),
            disconnected: self.epochs.disconnected_for(),
        }
    }

    fn note_use(&self) {
        // Read first, because threads that only read a flag do not contend for it.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

impl ServerObserver for Near {
    fn note(&self, event: ServerEvent<'_>) {
        match event {
            // Only the name of an entry ends with the digest. A copy does not depend on the others.
            ServerEvent::Changed { name, digest } if name.ends_with(b"}") => {
                self.epochs.change(digest)
            }
            ServerEvent::TagChanged(tag) => self.epochs.change_tag(tag),
            ServerEvent::AllChanged { node } => self.epochs.change_all(node),
            ServerEvent::Connected { node, connection, sent_at, is_broken } => {
                self.epochs.connect(node, connection, sent_at, is_broken);
            }
            ServerEvent::Confirmed { node, connection, sent_at } => {
                self.epochs.confirm(node, connection, sent_at);
            }
            ServerEvent::Disconnected { node, connection } => {
                self.epochs.disconnect(node, connection);
            }
            _ => {}
        }
    }
}

/// The bytes that a copy counts.
#[derive(Clone, Copy, Debug)]
struct Weights;

impl Weighter<Key, NearCopy> for Weights {
    fn weight(&self, key: &Key, copy: &NearCopy) -> u64 {
        let key = key.byte_len();
        let value = copy.entry.value().encoded();
        let value = value.len() + decoded_len(copy.entry.codec(), value);
        let tags = copy.tags.as_ref().map_or(0, |tags| tags.len()) * TAG;
        (key + value + tags + OVERHEAD) as u64
    }
}

/// Moves evicted copies out of the lock, because the drop of a value runs a user's code.
#[derive(Clone, Debug)]
struct Evicted(
    /// How many there were.
    Arc<AtomicU64>,
);

impl Lifecycle<Key, NearCopy> for Evicted {
    type RequestState = Vec<(Key, NearCopy)>;

    fn on_evict(&self, evicted: &mut Self::RequestState, key: Key, copy: NearCopy) {
        self.0.fetch_add(1, Ordering::Relaxed);
        evicted.push((key, copy));
    }
}

/// For how long a connection may be silent while copies are served. The timeout is the maximum time
/// of a reply.
pub(super) fn silence(timeout: Duration) -> Duration {
    (2 * HEARTBEAT).saturating_add(timeout)
}

/// How often the heartbeat probes the connection while copies are read.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// The overhead of a copy in bytes: the envelope's header, the tables, the counter.
pub(super) const OVERHEAD: usize = 512;

/// The bytes of a tag of a copy: its version, and its epoch in the entry.
const TAG: usize = size_of::<Version>() + size_of::<TagEpoch>();

/// The minimum size of a shard in bytes: the largest entry that a layer stores by default has to
/// fit.
const SHARD: usize = 4 * 1024 * 1024;

/// The maximum number of shards. With these, the threads of a large machine rarely contend.
const MOST_SHARDS: usize = 64;

/// The assumed size of a copy in bytes, for initial capacities.
const TYPICAL: usize = 1024;

/// How many copies are dropped before other tasks run.
const AT_ONCE: usize = 256;

const LEAST_COUNTERS: usize = 1024;
const MOST_COUNTERS: usize = 1024 * 1024;

#[cfg(test)]
mod tests;
