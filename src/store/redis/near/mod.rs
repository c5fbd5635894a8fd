//! The near tier: copies of entries in this process, kept true by what the server reports.
//!
//! # What keeps a copy true
//! 1. The version of a key is taken before it is asked about, and the answer is kept with it. A change
//!    that is reported between the two, even before the answer arrives, leaves a copy whose version
//!    does not hold, and that counts as none.
//! 2. Versions hold as long as the connection does over which the key was asked about: copies are
//!    given out only while changes are reported. Validity is checked in [`Near::find`] only, so the
//!    order of answers, reports and disconnections does not matter, and invalidating one copy or all
//!    of them is one atomic store, which never blocks the push handler. The memory of ended copies is
//!    used for the next ones, and given back when there are none.
//! 3. A copy ends with its entry. What was left of that is counted from before it was asked about.
//! 4. A connection can be dead without a sign. So a copy is given out only if the connection has
//!    answered a request that was sent less than [`silence`] ago: one second and the timeout of an
//!    operation. The server reports a change before it answers later requests, so a change that is
//!    not yet reported when an answer arrives is younger than that request. Every answer over that
//!    connection counts, and while copies are read the [heartbeat](super::heartbeat) ensures that
//!    there are enough. Copies that are not read are not confirmed: the first read after an idle time
//!    asks the server, and its answer confirms all copies at once.
//! 5. No copy is given out for longer than `near_ttl` in any case.
//!
//! Time is that of [`Instant`]. It counts while the process is stopped, so a process that goes on
//! gives out no copy before the server has answered again. On Linux and macOS it does not count
//! while the machine is suspended: the bound is one of time awake there, and holds from the moment
//! the machine wakes.
//!
//! What this process stores is not copy: whether the push about that very write has arrived is
//! not known, and a copy made before it is dropped by it. The next lookup makes one.
//!
//! # Why `quick_cache`
//! Of what was measured, it finds a hot key fastest: 57 ns for a `get`, where a sharded LRU behind
//! mutexes takes 65 ns, moka 210 to 260 ns, foyer 245 ns and mini-moka 390 ns. It inserts fastest
//! too, brings two small crates along, and resists scans (S3-FIFO). Copies are under the [`Key`],
//! not its digest: a hit needs none then, and that saves 80 ns.

mod epochs;

use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use tokio::task::yield_now;
use tokio::time::Instant;

use self::epochs::{Epochs, Version};
use super::client::TrackingObserver;
use crate::key::{Digest, Key};
use crate::store::{Entry, Remaining};

/// Copies of entries in this process.
#[derive(Debug)]
pub(super) struct Near {
    copies: Cache<Key, NearCopy, Weights, RandomState, Evicted>,
    epochs: Epochs,
    /// For how long a copy is given out at most.
    longest: Duration,
    /// Whether a copy was made or read since somebody last asked.
    used: AtomicBool,
    /// Whether somebody makes sure that the connection is alive.
    pub(super) has_heartbeat: AtomicBool,
}

/// What was known of a key before it was asked about.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadStart {
    version: Version,
    at: Instant,
}

#[derive(Clone, Debug)]
struct NearCopy {
    /// With what was left of its life when it was asked about, or less.
    entry: Entry,
    start: ReadStart,
}

impl Near {
    /// A near tier that keeps so many bytes, gives out no copy for longer than `longest`, and none
    /// while the connection was not heard from for `silence`.
    pub(super) fn new(bytes: usize, longest: Duration, silence: Duration) -> Self {
        let options = OptionsBuilder::new()
            .shards((bytes / SHARD).clamp(1, MOST_SHARDS))
            .estimated_items_capacity(bytes / TYPICAL)
            .weight_capacity(bytes as u64)
            .build()
            .unwrap_or_else(|_| unreachable!("both capacities are set"));
        let copies = Cache::with_options(options, Weights, RandomState::new(), Evicted);
        let epochs = Epochs::new((bytes / TYPICAL).clamp(LEAST_COUNTERS, MOST_COUNTERS), silence);
        let [used, has_heartbeat] = [(); 2].map(|()| AtomicBool::new(false));
        Self { copies, epochs, longest, used, has_heartbeat }
    }

    /// The copy of an entry, with what is left of its life, if it is true.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<Entry> {
        if !self.epochs.is_connected() {
            return None;
        }
        let NearCopy { entry, start } = self.copies.get(key)?;
        let Remaining::Known(life) = entry.remaining() else {
            return None;
        };
        let now = Instant::now();
        let age = now.saturating_duration_since(start.at);
        if age >= life.min(self.longest)
            || !self.epochs.is_confirmed(now)
            || !self.epochs.holds(&start.version)
        {
            return None;
        }
        self.note_use();
        Some(entry.with_remaining(Remaining::Known(life - age)))
    }

    /// To be done before a key is asked about, if the answer is to be kept. Nothing, if it may not.
    pub(super) fn start_read(&self, digest: &Digest) -> Option<ReadStart> {
        let version = self.epochs.version(digest)?;
        Some(ReadStart { version, at: Instant::now() })
    }

    /// Keeps an answer, if nothing has happened since it was asked for. Says whether it did.
    pub(super) fn keep(&self, start: ReadStart, key: &Key, entry: &Entry) -> bool {
        let Remaining::Known(life) = entry.remaining() else {
            return false;
        };
        if life.is_zero() || !self.epochs.holds(&start.version) {
            return false;
        }
        // What it replaces is dropped here, and not under a lock.
        drop(self.copies.remove(key));
        self.copies.insert(key.clone(), NearCopy { entry: entry.clone(), start });
        self.note_use();
        true
    }

    /// An entry has changed.
    pub(super) fn change(&self, digest: &Digest) {
        self.epochs.change(digest);
    }

    /// Gives the memory of all copies back.
    ///
    /// # Cancel safety
    /// Dropping it leaves some of them.
    pub(super) async fn empty(&self) {
        // One by one: no lock is held while a value of somebody's type is dropped.
        for (count, copy) in self.copies.drain().enumerate() {
            drop(copy);
            if count % AT_ONCE == 0 {
                yield_now().await;
            }
        }
    }

    /// Whether there is no copy, true or not.
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Whether a copy was made or read since this was last asked.
    pub(super) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// After this long without use, no copy is left that would be given out.
    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    fn note_use(&self) {
        // Looked at first, since threads that only read do not wait for each other.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

/// Only the name of an entry ends with the digest; the copies of a key do not depend on the others.
impl TrackingObserver for Near {
    fn changed(&self, name: &[u8], digest: &Digest) {
        if name.ends_with(b"}") {
            self.change(digest);
        }
    }

    fn all_changed(&self) {
        self.epochs.change_all();
    }

    fn connected(&self, connection: u64, sent_at: Instant, is_broken: &dyn Fn() -> bool) {
        self.epochs.connect(connection, sent_at, is_broken);
    }

    fn confirmed(&self, connection: u64, sent_at: Instant) {
        self.epochs.confirm(connection, sent_at);
    }

    fn disconnected(&self, connection: u64) {
        self.epochs.disconnect(connection);
    }
}

/// What copies count.
#[derive(Clone, Copy, Debug)]
struct Weights;

impl Weighter<Key, NearCopy> for Weights {
    fn weight(&self, key: &Key, copy: &NearCopy) -> u64 {
        let (key, value) = (key.byte_len(), copy.entry.value().encoded().len());
        (key + 2 * value + OVERHEAD) as u64
    }
}

/// Takes what is evicted from under the lock: a value is of anybody's type, and may do anything
/// when it is dropped.
#[derive(Clone, Copy, Debug)]
struct Evicted;

impl Lifecycle<Key, NearCopy> for Evicted {
    type RequestState = Vec<(Key, NearCopy)>;

    fn on_evict(&self, evicted: &mut Self::RequestState, key: Key, copy: NearCopy) {
        evicted.push((key, copy));
    }
}

/// For how long a connection may be silent while copies are given out. The timeout is how long a
/// reply may take.
pub(super) fn silence(timeout: Duration) -> Duration {
    (2 * HEARTBEAT).saturating_add(timeout)
}

/// How often the connection is asked for a sign of life while copies are read.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(500);

/// What a copy takes beside its key and its value: the envelope's header, the tables, the counter.
pub(super) const OVERHEAD: usize = 512;

/// How large a shard is at least: the largest entry that a layer stores by default has to fit.
const SHARD: usize = 4 * 1024 * 1024;

/// As many as spare the threads of a large machine most of their waiting for each other.
const MOST_SHARDS: usize = 64;

/// What a copy is taken to count where nothing is known of it yet.
const TYPICAL: usize = 1024;

/// How many copies are dropped before others have their turn.
const AT_ONCE: usize = 256;

const LEAST_COUNTERS: usize = 1024;
const MOST_COUNTERS: usize = 1024 * 1024;

#[cfg(test)]
mod tests;
