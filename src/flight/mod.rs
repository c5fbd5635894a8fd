//! Flights: one load per key per process.
//!
//! A flight is what the callers of one process that want one key have in common. The caller that
//! opens it is given the [`Leader`], which goes to the task that asks the store and loads. Each
//! caller, the opener too, holds a [`Waiter`] and waits for an outcome.
//!
//! # Generations
//! The leader begins a [generation](Leader::generation) just before it asks a question, and the
//! answer completes the waiters that had joined before. Later ones wait for the answer of a later
//! question: an answer may be older than they are.
//!
//! # Invariants
//! 1. A flight that is in the table has a leader. A leader that is dropped takes its flight out.
//! 2. A waiter joins under the table's lock, so none joins a flight that has left the table.
//! 3. A waiter is woken by an outcome. When the leader goes, it is told
//!    [`Again`](Completion::Again), or what the leader left for it. No waiter waits for ever.
//! 4. Dropping a waiter frees its place and nothing else.
//!
//! # Locks
//! A shard of the table is locked before a flight in it, never after. Both are held for a few map
//! operations, never across an `.await`, and no waiter is woken while one is held.

mod awaited;
mod leader;
mod waiter;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use awaited::Awaited;
pub(crate) use leader::{Generation, Leader};
pub(crate) use waiter::{Completion, Waiter};

use crate::key::{Digest, Key};

/// The open flights of one layer in this process. `L` is an outcome.
pub(crate) struct Flights<L> {
    shards: Box<[Mutex<Shard<L>>]>,
    lookups: AtomicU64,
    /// How many flights there are.
    open: AtomicUsize,
    bounds: FlightBounds,
}

/// How many there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightBounds {
    pub(crate) flights: usize,
    /// Waiters in one flight.
    pub(crate) waiters: usize,
}

/// Which bound is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Flights,
    Waiters,
}

/// Guards the table only: held for a map operation, never across an `.await`, and taken before a
/// flight's own lock.
type Shard<L> = HashMap<Digest, Slot<L>>;

enum Slot<L> {
    /// One caller looks for itself. The next one does not wait for it, but opens a flight here.
    Lookup(u64),
    Flight(Arc<Flight<L>>),
}

/// What a caller has in a flight.
#[derive(Debug)]
pub(crate) enum Role<L> {
    /// It opened the flight: the leader is to be put to work, the waiter to be waited on.
    Opened(Leader<L>, Waiter<L>),
    /// Another caller opened it.
    Joined(Waiter<L>),
    /// There is none.
    Refused(Full),
}

impl<L> Flights<L> {
    pub(crate) fn new(bounds: FlightBounds) -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect();
        let (lookups, open) = (AtomicU64::new(0), AtomicUsize::new(0));
        Arc::new(Self { shards, lookups, open, bounds })
    }

    /// Lets a caller look for itself if no other caller asks for this key: a single reader needs no
    /// task. Otherwise the answer is none, and joining the others keeps the questions few.
    pub(crate) fn look_up_alone(self: &Arc<Self>, key: &Key) -> Option<LoneLookup<L>> {
        let digest = key.digest();
        match self.shard(&digest).entry(digest) {
            Entry::Occupied(place) => match place.get() {
                // No caller has to wait for it.
                Slot::Flight(flight) if lock(&flight.state).looks_first => {
                    Some(LoneLookup { flights: Arc::clone(self), digest, mark: None })
                }
                _ => None,
            },
            Entry::Vacant(place) => {
                let mark = self.lookups.fetch_add(1, Ordering::Relaxed);
                place.insert(Slot::Lookup(mark));
                Some(LoneLookup { flights: Arc::clone(self), digest, mark: Some(mark) })
            }
        }
    }

    /// Joins the flight of this key, or opens one. An `impatient` waiter is also woken when it
    /// becomes known that another caller loads.
    pub(crate) fn join(self: &Arc<Self>, key: &Key, impatient: bool) -> Role<L> {
        let digest = key.digest();
        let mut shard = self.shard(&digest);
        if let Some(Slot::Flight(flight)) = shard.get(&digest) {
            return match Waiter::register(flight, impatient, false, self.bounds.waiters) {
                Some(waiter) => Role::Joined(waiter),
                None => Role::Refused(Full::Waiters),
            };
        }
        let Some(flight) = self.open(&mut shard, digest) else {
            return Role::Refused(Full::Flights);
        };
        let waiter = Waiter::register(&flight, impatient, true, self.bounds.waiters);
        drop(shard);
        let leader = Leader::new(Arc::clone(self), key.clone(), flight);
        match waiter {
            Some(waiter) => Role::Opened(leader, waiter),
            None => Role::Refused(Full::Waiters),
        }
    }

    /// Opens a flight in the background: it has no waiter yet. Nothing if there is one, or no room
    /// for it.
    pub(crate) fn open_for_nobody(self: &Arc<Self>, key: &Key) -> Option<Leader<L>> {
        let digest = key.digest();
        let mut shard = self.shard(&digest);
        if matches!(shard.get(&digest), Some(Slot::Flight(_))) {
            return None;
        }
        let flight = self.open(&mut shard, digest)?;
        drop(shard);
        let leader = Leader::new(Arc::clone(self), key.clone(), flight);
        leader.run_in_the_background();
        Some(leader)
    }

    /// Puts a new flight into its shard, if there is room for it.
    fn open(&self, shard: &mut Shard<L>, digest: Digest) -> Option<Arc<Flight<L>>> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.bounds.flights {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let flight = Arc::new(Flight::new());
        shard.insert(digest, Slot::Flight(Arc::clone(&flight)));
        Some(flight)
    }

    /// How many keys have a flight or a glance.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Takes a slot out if it still is the one that `is_ours` knows: a later one may already have
    /// its place.
    fn remove(&self, digest: &Digest, is_ours: impl Fn(&Slot<L>) -> bool) {
        let mut shard = self.shard(digest);
        if let Entry::Occupied(place) = shard.entry(*digest)
            && is_ours(place.get())
        {
            place.remove();
        }
    }

    fn shard(&self, digest: &Digest) -> MutexGuard<'_, Shard<L>> {
        lock(&self.shards[usize::from(digest.as_bytes()[0]) % SHARDS])
    }
}

impl<L> fmt::Debug for Flights<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("open", &self.len()).finish()
    }
}

/// The mark of a caller that looks for itself, gone when it is dropped.
pub(crate) struct LoneLookup<L> {
    flights: Arc<Flights<L>>,
    digest: Digest,
    /// None: a flight has its place.
    mark: Option<u64>,
}

impl<L> Drop for LoneLookup<L> {
    fn drop(&mut self) {
        if let Some(ours) = self.mark {
            self.flights
                .remove(&self.digest, |slot| matches!(slot, Slot::Lookup(mark) if *mark == ours));
        }
    }
}

impl<L> fmt::Debug for LoneLookup<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoneLookup").field(&self.digest).finish()
    }
}

/// One flight: its waiters, and their answers.
struct Flight<L> {
    /// Guards the waiters and their answers: held for a few operations on them, never across an
    /// `.await`. Taken after the table's lock, never before it.
    state: Mutex<FlightState<L>>,
    /// Rung when the last waiter has gone.
    abandoned: Notify,
    /// Rung when a waiter joins: the leader may have an answer for it.
    joined: Notify,
}

struct FlightState<L> {
    /// How many generations have begun.
    generations: u64,
    /// What the leader is doing, as far as it matters to a waiter that will not wait for it.
    phase: Phase,
    /// The leader has gone: no waiter is completed here any more.
    closed: bool,
    /// What those who still wait are given then.
    closing: Option<Arc<L>>,
    /// Callers look for themselves though it is there: there is something that they may do with.
    looks_first: bool,
    /// It goes on without waiters.
    in_background: bool,
    offer: Option<Offer<L>>,
    /// When what it waits for began.
    since: Instant,
    /// The lease of another process, while it waits for that.
    lease: Option<SeenLease>,
    slots: Slab<WaiterSlot<L>>,
}

/// What is known of a lease of another process.
#[derive(Clone, Copy, Debug)]
struct SeenLease {
    /// When it was seen first, and when it would have ended if it had not been renewed.
    since: Instant,
    ends: Instant,
    is_renewed: bool,
}

impl SeenLease {
    /// The same lease or the first, with so much left now.
    fn seen(earlier: Option<Self>, left: Duration) -> Self {
        let now = Instant::now();
        let ends = now.checked_add(left).unwrap_or(now);
        match earlier {
            Some(seen) => Self { is_renewed: ends > seen.ends + UNSURE, ..seen },
            None => Self { since: now, ends, is_renewed: false },
        }
    }
}

/// By how much the end of a lease may seem to move because answers take different times.
const UNSURE: Duration = Duration::from_millis(250);

/// A stale fallback for the waiters that joined before a generation.
struct Offer<L> {
    generation: u64,
    answer: L,
    made: Instant,
    /// How long after that it is good.
    good_for: Duration,
}

/// Where one waiter sits.
struct WaiterSlot<L> {
    /// How many generations had begun when it joined.
    joined: u64,
    impatient: bool,
    opener: bool,
    /// Its outcome. The first stays here until it is fetched. Shared, so that those that wait need
    /// no room for it.
    answer: Option<Arc<L>>,
    waker: Option<Waker>,
}

/// Hears what a flight waits for, whenever its leader says so, and while no lock is held.
pub(crate) type Listener = Arc<dyn Fn(Phase) + Send + Sync>;

/// What a flight waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// An answer of the store.
    Asking,
    /// Another process, which has the lease.
    Waiting,
    /// The loader.
    Loading,
    /// Leave to call the loader, as too many loads are running.
    Queueing,
    /// Nothing: it has an answer for each caller that joins.
    Resting,
}

impl<L> Flight<L> {
    fn new() -> Self {
        let state = FlightState {
            generations: 0,
            phase: Phase::Asking,
            closed: false,
            closing: None,
            looks_first: false,
            in_background: false,
            offer: None,
            since: Instant::now(),
            lease: None,
            slots: Slab::new(),
        };
        Self { state: Mutex::new(state), abandoned: Notify::new(), joined: Notify::new() }
    }
}

impl<L> FlightState<L> {
    /// The wakers of those slots that `of` picks.
    fn take_wakers(&mut self, of: impl Fn(&WaiterSlot<L>) -> bool) -> Vec<Waker> {
        let slots = self.slots.iter_mut().map(|(_, slot)| slot);
        slots.filter(|slot| of(slot)).filter_map(|slot| slot.waker.take()).collect()
    }
}

/// A table or a flight whose holder panicked is still whole: no user code runs under the locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enough that callers of different keys seldom meet, few enough to be looked over at once.
const SHARDS: usize = 16;
