//! The table of flights: which keys have a flight or a lone lookup in this process, and how callers
//! get their part in one: they look up alone, join, or open one.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::waiters::{
    AbandonedLoads, Flight, FlightState, Generation, OF_OTHER_TAGS, Phase, Waiter,
};
use crate::key::{Digest, Key};
use crate::locked::locked;
use crate::tag::Tags;
use crate::trace::CallerSpan;

/// The open flights of one layer in this process. `L` is an outcome.
pub(crate) struct Flights<L> {
    shards: Box<[PaddedShard<L>]>,
    /// How many flights there are.
    open: Arc<AtomicUsize>,
    abandoned: Arc<AbandonedLoads<L>>,
    /// How many flights there may be at once, and how many waiters in one.
    bounds: (usize, usize),
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
struct Shard<L> {
    /// Few at a time, so comparing digests costs less than hashing one.
    slots: BTreeMap<FlightId, Slot<L>>,
    /// Numbers the lone lookups.
    lookups: u64,
}

/// What a flight is for: a key, and the types of the loader, since an outcome can be shared only with
/// callers of its types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlightId {
    key: Digest,
    pub(super) types: TypeId,
}

/// What the table has for a key.
enum Slot<L> {
    /// A caller reads the store alone. The next caller does not wait for it, but opens a flight
    /// here.
    Lookup(u64),
    Flight(Arc<Flight<L>>),
}

impl<L> Slot<L> {
    fn is(&self, flight: &Arc<Flight<L>>) -> bool {
        matches!(self, Self::Flight(ours) if Arc::ptr_eq(ours, flight))
    }
}

/// A flight in its table, for the leader that it gets at once.
pub(crate) struct OpenedFlight<L> {
    flights: Arc<Flights<L>>,
    pub(super) key: Key,
    pub(super) id: FlightId,
    pub(super) flight: Arc<Flight<L>>,
    /// The flight whose place it takes: its load is cancelled after all locks.
    pub(super) over: Option<Arc<Flight<L>>>,
}

impl<L> Flights<L> {
    pub(crate) fn new(bounds: (usize, usize), abandoned: Arc<AbandonedLoads<L>>) -> Arc<Self> {
        let shard = |_| PaddedShard(Mutex::new(Shard { slots: BTreeMap::new(), lookups: 0 }));
        let shards = (0..SHARDS).map(shard).collect();
        Arc::new(Self { shards, open: Arc::default(), abandoned, bounds })
    }

    /// How many keys have a flight or a lone lookup.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| locked(&shard.0).slots.len()).sum()
    }

    /// How many flights there are, waiters in all of them together, and loads that are queued.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let mut counts = [0; 3];
        for shard in &self.shards {
            for slot in locked(&shard.0).slots.values() {
                if let Slot::Flight(flight) = slot {
                    let state = locked(&flight.state);
                    let is_queued = u64::from(state.phase == Phase::Queueing);
                    let of_flight = [1, state.slots.len() as u64, is_queued];
                    counts.iter_mut().zip(of_flight).for_each(|(sum, one)| *sum += one);
                }
            }
        }
        counts
    }

    /// Lets a caller read the store itself, without a task, if no other caller asks for this key.
    /// `None` if another one does: then the caller joins, so that a burst is one request.
    pub(crate) fn look_up(self: &Arc<Self>, key: &Key, types: TypeId) -> Option<LonePermit<L>> {
        let id = FlightId { key: key.digest(), types };
        let mut shard = self.shard(id);
        let Shard { slots, lookups } = &mut *shard;
        let number = match slots.entry(id) {
            Entry::Occupied(slot) => match slot.get() {
                // No caller has to wait for it.
                Slot::Flight(flight) if locked(&flight.state).callers_look_up() => None,
                _ => return None,
            },
            Entry::Vacant(slot) => {
                *lookups += 1;
                slot.insert(Slot::Lookup(*lookups));
                Some(*lookups)
            }
        };
        Some(LonePermit { flights: Arc::clone(self), id, number })
    }

    /// Joins the flight of this key, or opens one for requests with these tags: then the caller
    /// spawns a task with its leader. A waiter that `fails_fast` is also woken when the phase of the
    /// flight changes. The span of a waiter is linked to the load that it waits for.
    ///
    /// A caller that has looked up alone gives the [number](LonePermit::number) of that. It has asked
    /// before a flight that was opened since, so each answer of that flight is for it.
    pub(crate) fn join(
        self: &Arc<Self>,
        (key, types): (&Key, TypeId),
        tags: &Tags,
        looked_up: Option<u64>,
        fails_fast: bool,
        span: &CallerSpan,
    ) -> Result<(Waiter<L>, Option<OpenedFlight<L>>), Full> {
        let id = FlightId { key: key.digest(), types };
        let mut shard = self.shard(id);
        let (flight, opened) = match shard.slots.get(&id) {
            Some(Slot::Flight(flight)) => (Arc::clone(flight), None),
            _ => {
                let opened = self.open(&mut shard, key, id, tags).ok_or(Full::Flights)?;
                (Arc::clone(&opened.flight), Some(opened))
            }
        };
        let opener = opened.is_some();
        let is_first = looked_up.is_some_and(|lookup| lookup <= flight.opened_after);
        let joined = match opener || is_first {
            _ if !tags.are_among(&flight.tags) => Some(OF_OTHER_TAGS),
            first => first.then(Generation::default),
        };
        // A new flight has room for one.
        let most = self.bounds.1;
        let waiter = Waiter::register(flight, joined, opener, fails_fast, most, span);
        drop(shard);
        let (waiter, load) = waiter.ok_or(Full::Waiters)?;
        load.inspect(|load| load.link(span));
        Ok((waiter, opened))
    }

    /// Opens a flight in the background, without a waiter. `None` if the key has a flight, or if
    /// there are as many flights as there may be.
    pub(crate) fn open_in_background(
        self: &Arc<Self>,
        (key, types): (&Key, TypeId),
        tags: &Tags,
    ) -> Option<OpenedFlight<L>> {
        let id = FlightId { key: key.digest(), types };
        let mut shard = self.shard(id);
        if matches!(shard.slots.get(&id), Some(Slot::Flight(_))) {
            return None;
        }
        let opened = self.open(&mut shard, key, id, tags)?;
        opened.flight.run_in_the_background();
        Some(opened)
    }

    /// Puts a new flight into its shard. If there are as many as there may be, it takes the place
    /// of one whose load all callers have left. `None` if there is no such load either.
    fn open(
        self: &Arc<Self>,
        shard: &mut Shard<L>,
        key: &Key,
        id: FlightId,
        tags: &Tags,
    ) -> Option<OpenedFlight<L>> {
        let is_full = self.open.fetch_add(1, Ordering::Relaxed) >= self.bounds.0;
        let over = is_full.then(|| self.abandoned.take_one_of(&self.open)).flatten();
        if is_full && over.is_none() {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let flight = Arc::new(Flight {
            state: Mutex::new(FlightState::new()),
            abandoned: Notify::new(),
            joined: Notify::new(),
            cancelled: Notify::new(),
            pinged: Notify::new(),
            runtime: Handle::try_current().ok().map(|runtime| runtime.id()),
            abandoned_loads: Arc::clone(&self.abandoned),
            open: Arc::clone(&self.open),
            tags: tags.clone(),
            opened_after: shard.lookups,
        });
        shard.slots.insert(id, Slot::Flight(Arc::clone(&flight)));
        Some(OpenedFlight { flights: Arc::clone(self), key: key.clone(), id, flight, over })
    }

    /// Removes the flight of a waiter from the table, since its task shows no sign of life: later callers
    /// open another one, which competes with it for the lease. Its waiters stay.
    pub(crate) fn give_up(&self, (key, types): (&Key, TypeId), waiter: &Waiter<L>) {
        let id = FlightId { key: key.digest(), types };
        self.remove(id, |slot| slot.is(&waiter.flight));
    }

    /// Removes a slot if `is_ours` still knows it: a later one may be there by now.
    fn remove(&self, id: FlightId, is_ours: impl Fn(&Slot<L>) -> bool) {
        let mut shard = self.shard(id);
        if shard.slots.get(&id).is_some_and(is_ours) {
            shard.slots.remove(&id);
        }
    }

    fn shard(&self, id: FlightId) -> MutexGuard<'_, Shard<L>> {
        locked(&self.shards[usize::from(id.key.as_bytes()[0]) % SHARDS].0)
    }
}

impl<L> OpenedFlight<L> {
    /// Removes it from its table: no caller can join it any more.
    pub(super) fn close(&self) {
        self.flights.remove(self.id, |slot| slot.is(&self.flight));
        self.flight.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A caller that reads the store alone. Dropping it frees its slot in the table.
pub(crate) struct LonePermit<L> {
    flights: Arc<Flights<L>>,
    id: FlightId,
    /// Its number. `None`: a flight has the slot.
    pub(crate) number: Option<u64>,
}

impl<L> Drop for LonePermit<L> {
    fn drop(&mut self) {
        if let Some(ours) = self.number {
            self.flights.remove(self.id, |slot| matches!(slot, Slot::Lookup(it) if *it == ours));
        }
    }
}

/// Enough that callers of different keys rarely contend for a lock, and few enough to count them
/// all.
const SHARDS: usize = 16;
