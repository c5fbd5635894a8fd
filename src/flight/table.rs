//! The table of flights: which keys have a flight or a lone lookup in this process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::abandoned::{AbandonedLoads, CancelledLoad};
use super::state::{Flight, lock};
use crate::key::Digest;
use crate::tag::Tags;

/// The open flights of one layer in this process. `L` is an outcome.
pub(crate) struct Flights<L> {
    shards: Box<[PaddedShard<L>]>,
    /// How many flights there are.
    open: Arc<AtomicUsize>,
    abandoned_loads: Arc<AbandonedLoads>,
    pub(super) bounds: FlightBounds,
}

/// How many flights and waiters there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightBounds {
    pub(crate) flights: usize,
    /// Waiters in one flight.
    pub(crate) waiters: usize,
}

/// How many flights and waiters there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlightCounts {
    pub(crate) flights: u64,
    /// In all flights together.
    pub(crate) waiters: u64,
}

/// Which bound is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Flights,
    Waiters,
}

/// A part of the table, apart in memory from the others: processors fetch lines of 64 bytes in
/// pairs. Its lock is held for a map operation, never across an `.await`, and taken before a
/// flight's own lock.
#[repr(align(128))]
struct PaddedShard<L>(Mutex<Shard<L>>);

/// What a lock of the table guards.
pub(super) struct Shard<L> {
    pub(super) slots: HashMap<Digest, Slot<L>>,
    /// Numbers the lone lookups.
    pub(super) lookups: u64,
}

/// What the table has for a key.
pub(super) enum Slot<L> {
    /// A caller reads the store alone. The next caller does not wait for it, but opens a flight
    /// here.
    Lookup(u64),
    Flight(Arc<Flight<L>>),
}

/// A new flight, and the load whose place it takes.
type OpenedFlight<L> = (Arc<Flight<L>>, Option<CancelledLoad>);

impl<L> Flights<L> {
    pub(crate) fn new(bounds: FlightBounds, abandoned_loads: Arc<AbandonedLoads>) -> Arc<Self> {
        let shard = |_| PaddedShard(Mutex::new(Shard { slots: HashMap::new(), lookups: 0 }));
        let shards = (0..SHARDS).map(shard).collect();
        Arc::new(Self { shards, open: Arc::default(), abandoned_loads, bounds })
    }

    /// How many keys have a flight or a lone lookup.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).slots.len()).sum()
    }

    /// How many flights there are, and callers in them.
    pub(crate) fn counts(&self) -> FlightCounts {
        let mut counts = FlightCounts::default();
        for shard in &self.shards {
            for slot in lock(&shard.0).slots.values() {
                if let Slot::Flight(flight) = slot {
                    counts.flights += 1;
                    counts.waiters += lock(&flight.state).slots.len() as u64;
                }
            }
        }
        counts
    }

    /// Puts a new flight into its shard. If there are as many as there may be, it takes the place
    /// of one whose load all callers have left. `None` if there is no such load either.
    pub(super) fn open(
        &self,
        shard: &mut Shard<L>,
        digest: Digest,
        tags: &Tags,
    ) -> Option<OpenedFlight<L>> {
        let is_full = self.open.fetch_add(1, Ordering::Relaxed) >= self.bounds.flights;
        let cancelled = is_full.then(|| self.abandoned_loads.cancel_one_of(&self.open)).flatten();
        if is_full && cancelled.is_none() {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let (open, abandoned) = (Arc::clone(&self.open), Arc::clone(&self.abandoned_loads));
        let flight = Arc::new(Flight::new(open, abandoned, tags.clone(), shard.lookups));
        shard.slots.insert(digest, Slot::Flight(Arc::clone(&flight)));
        Some((flight, cancelled))
    }

    /// Removes a flight that [`open`](Self::open) gave.
    pub(super) fn close(&self, digest: &Digest, ours: &Arc<Flight<L>>) {
        self.remove(
            digest,
            |slot| matches!(slot, Slot::Flight(flight) if Arc::ptr_eq(flight, ours)),
        );
        // A load that was cancelled has given up its place.
        let abandoned = lock(&ours.state).abandoned.take();
        if !abandoned.is_some_and(|load| load.is_cancelled()) {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes a slot if `is_ours` still knows it: a later one may be there by now.
    pub(super) fn remove(&self, digest: &Digest, is_ours: impl Fn(&Slot<L>) -> bool) {
        let mut shard = self.shard(digest);
        if let Entry::Occupied(slot) = shard.slots.entry(*digest)
            && is_ours(slot.get())
        {
            slot.remove();
        }
    }

    pub(super) fn shard(&self, digest: &Digest) -> MutexGuard<'_, Shard<L>> {
        lock(&self.shards[usize::from(digest.as_bytes()[0]) % SHARDS].0)
    }
}

impl<L> fmt::Debug for Flights<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("open", &self.len()).finish()
    }
}

/// Enough that callers of different keys rarely contend for a lock, and few enough to count them
/// all.
const SHARDS: usize = 16;
