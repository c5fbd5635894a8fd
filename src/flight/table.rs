//! The table of flights: which keys have a flight or a lone lookup in this process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::state::{Flight, lock};
use crate::key::Digest;

/// The open flights of one layer in this process. `L` is an outcome.
pub(crate) struct Flights<L> {
    shards: Box<[Mutex<Shard<L>>]>,
    /// Numbers the lone lookups.
    lookups: AtomicU64,
    /// How many flights there are.
    open: AtomicUsize,
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

/// A part of the table. Its lock is held for a map operation, never across an `.await`, and taken
/// before a flight's own lock.
pub(super) type Shard<L> = HashMap<Digest, Slot<L>>;

/// What the table has for a key.
pub(super) enum Slot<L> {
    /// A caller reads the store alone. The next caller does not wait for it, but opens a flight
    /// here.
    Lookup(u64),
    Flight(Arc<Flight<L>>),
}

impl<L> Flights<L> {
    pub(crate) fn new(bounds: FlightBounds) -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect();
        let lookups = AtomicU64::new(0);
        Arc::new(Self { shards, lookups, open: AtomicUsize::new(0), bounds })
    }

    /// How many keys have a flight or a lone lookup.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// How many flights there are, and callers in them.
    pub(crate) fn counts(&self) -> FlightCounts {
        let mut counts = FlightCounts::default();
        for shard in &self.shards {
            for slot in lock(shard).values() {
                if let Slot::Flight(flight) = slot {
                    counts.flights += 1;
                    counts.waiters += lock(&flight.state).slots.len() as u64;
                }
            }
        }
        counts
    }

    /// Puts a new flight into its shard. `None` if there are as many as there may be.
    pub(super) fn open(&self, shard: &mut Shard<L>, digest: Digest) -> Option<Arc<Flight<L>>> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.bounds.flights {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let flight = Arc::new(Flight::new());
        shard.insert(digest, Slot::Flight(Arc::clone(&flight)));
        Some(flight)
    }

    /// Removes a flight that [`open`](Self::open) gave.
    pub(super) fn close(&self, digest: &Digest, ours: &Arc<Flight<L>>) {
        self.remove(
            digest,
            |slot| matches!(slot, Slot::Flight(flight) if Arc::ptr_eq(flight, ours)),
        );
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// A new number for a lone lookup.
    pub(super) fn lookup_id(&self) -> u64 {
        self.lookups.fetch_add(1, Ordering::Relaxed)
    }

    /// Removes a slot if `is_ours` still knows it: a later one may be there by now.
    pub(super) fn remove(&self, digest: &Digest, is_ours: impl Fn(&Slot<L>) -> bool) {
        let mut shard = self.shard(digest);
        if let Entry::Occupied(slot) = shard.entry(*digest)
            && is_ours(slot.get())
        {
            slot.remove();
        }
    }

    pub(super) fn shard(&self, digest: &Digest) -> MutexGuard<'_, Shard<L>> {
        lock(&self.shards[usize::from(digest.as_bytes()[0]) % SHARDS])
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
