//! The table of flights: which keys have a flight or a lone lookup in this process, and how callers
//! get their part in one: they look up alone, join, or open one. The one that opens it gets its leader, which
//! begins generations, completes waiters, and closes the flight when dropped.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{Id, try_id};
use tokio::time::Instant;

use super::waiters::{
    AbandonedLoads, Flight, FlightState, Generation, OF_OTHER_TAGS, Phase, PhaseListener, Waiter,
    WaiterSlot,
};
use crate::jitter::jitter;
use crate::key::{Digest, Key};
use crate::locked::locked;
use crate::tag::Tags;
use crate::trace::{CallerSpan, LoadTrace};

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
struct FlightId {
    key: Digest,
    types: TypeId,
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
    ) -> Result<(Waiter<L>, Option<Leader<L>>), Full> {
        let id = FlightId { key: key.digest(), types };
        let mut shard = self.shard(id);
        let (flight, opened) = match shard.slots.get(&id) {
            Some(Slot::Flight(flight)) => (Arc::clone(flight), None),
            _ => {
                let opened = self.open(&mut shard, key, id, tags).ok_or(Full::Flights)?;
                (Arc::clone(&opened.0.flight), Some(opened))
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
        Ok((waiter, opened.map(cancelling)))
    }

    /// Opens a flight in the background, without a waiter. `None` if the key has a flight, or if
    /// there are as many flights as there may be.
    pub(crate) fn open_in_background(
        self: &Arc<Self>,
        (key, types): (&Key, TypeId),
        tags: &Tags,
    ) -> Option<Leader<L>> {
        let id = FlightId { key: key.digest(), types };
        let mut shard = self.shard(id);
        if matches!(shard.slots.get(&id), Some(Slot::Flight(_))) {
            return None;
        }
        let opened = self.open(&mut shard, key, id, tags)?;
        opened.0.flight.run_in_the_background();
        drop(shard);
        Some(cancelling(opened))
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
        let (flights, key) = (Arc::clone(self), key.clone());
        Some((Leader { flights, key, id, flight, listener: None }, over))
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

/// A new flight, and the one whose place it takes: its load is cancelled after all locks.
type OpenedFlight<L> = (Leader<L>, Option<Arc<Flight<L>>>);

fn cancelling<L>((leader, over): OpenedFlight<L>) -> Leader<L> {
    over.inspect(|flight| flight.cancelled.notify_one());
    leader
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

/// The task's side of a flight. Dropping it closes the flight, and the remaining waiters ask again.
pub(crate) struct Leader<L> {
    flights: Arc<Flights<L>>,
    key: Key,
    id: FlightId,
    flight: Arc<Flight<L>>,
    /// Called with each phase of the flight.
    pub(crate) listener: Option<PhaseListener>,
}

impl<L> Leader<L> {
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// The types of the loader, for whose callers the outcomes are.
    pub(crate) fn types(&self) -> TypeId {
        self.id.types
    }

    /// Begins a new generation of waiters, right before a request to the store.
    pub(crate) fn generation(&self) -> Generation {
        let mut state = locked(&self.flight.state);
        state.generations.0 += 1;
        state.generations
    }

    /// Sets the phase. It wakes the waiters that fail fast, and calls the listener.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = locked(&self.flight.state);
        if state.phase != phase {
            state.phase = phase;
            state.since = Instant::now();
        }
        let wakers = state.take_wakers(|slot| slot.fails_fast);
        drop(state);
        wake(wakers);
        if let Some(listener) = &self.listener {
            listener(phase);
        }
    }

    /// Completes the waiters that `of` picks, by the generation in which each has joined and whether
    /// it opened the flight. A waiter that has an outcome keeps it.
    pub(crate) fn complete(&self, of: impl Fn(Generation, bool) -> bool, answer: L) {
        let answer = Arc::new(answer);
        let mut state = locked(&self.flight.state);
        let mut wakers = Vec::new();
        for (_, slot) in state.slots.iter_mut().filter(|(_, it)| of(it.joined, it.opener)) {
            slot.answer.get_or_insert_with(|| Arc::clone(&answer));
            wakers.extend(slot.waker.take());
        }
        drop(state);
        // Without a waiter for it, the answer is dropped after the lock: it may be of any type.
        drop(answer);
        wake(wakers);
    }

    /// Whether there is a waiter that joined in a generation or later, and has no other tags.
    pub(crate) fn has_joined_since(&self, generation: Generation) -> bool {
        let is_late = |it: &WaiterSlot<L>| it.joined >= generation && it.joined != OF_OTHER_TAGS;
        locked(&self.flight.state).slots.iter().any(|(_, slot)| is_late(slot))
    }

    /// Lets callers read the store themselves from now on, and the flight go on without waiters. They
    /// join only if they find nothing usable.
    pub(crate) fn run_in_the_background(&self) {
        self.flight.run_in_the_background();
    }

    /// Sets the outcome of the waiters that remain when the leader is dropped. The flight has left
    /// the table by then, so a waiter that asks again does not join it.
    pub(crate) fn close_with(&self, answer: L) {
        let earlier = locked(&self.flight.state).closing.replace(Arc::new(answer));
        // After the lock: it may be of any type.
        drop(earlier);
    }

    /// Sets a stale fallback for the waiters that joined before a generation. Lets callers read the
    /// store themselves from now on.
    pub(crate) fn set_fallback(&self, generation: Generation, answer: L) {
        let mut state = locked(&self.flight.state);
        state.has_stale = true;
        let earlier = state.fallback.replace((generation, answer));
        drop(state);
        // After the lock: it may be of any type.
        drop(earlier);
    }

    /// Waits until there is a waiter that has no outcome and did not open the flight. With a stale
    /// answer in hand, it has to have no other tags, since that answer is not for those.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn joined(&self, with_stale: bool) {
        let is_served = |slot: &WaiterSlot<L>| {
            let has_none = with_stale && slot.joined == OF_OTHER_TAGS;
            slot.opener || slot.answer.is_some() || has_none
        };
        while locked(&self.flight.state).slots.iter().all(|(_, slot)| is_served(slot)) {
            self.flight.joined.notified().await;
        }
    }

    /// Whether it loads without a permit.
    pub(crate) fn passes(&self) -> bool {
        locked(&self.flight.state).passes
    }

    /// Waits until a waiter has joined since the last time.
    ///
    /// # Cancel safety
    /// Dropping it before it returns loses nothing.
    pub(crate) async fn has_joined(&self) {
        self.flight.joined.notified().await;
    }

    /// Gives a sign of life to each waiter that asks for one, for as long as it is polled.
    pub(crate) fn signs_of_life(&self) -> impl Future<Output = Infallible> + use<L> {
        let flight = Arc::clone(&self.flight);
        async move {
            loop {
                flight.pinged.notified().await;
                locked(&flight.state).pinged = None;
            }
        }
    }

    /// Whether there is a waiter without an outcome right now.
    pub(crate) fn is_awaited(&self) -> bool {
        locked(&self.flight.state).slots.iter().any(|(_, slot)| slot.answer.is_none())
    }

    /// Waits until the last waiter has left. For a flight in the background it never returns.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing; each call checks whether there is a waiter.
    pub(crate) async fn abandoned(&self) {
        loop {
            let notified = self.flight.abandoned.notified();
            if self.is_abandoned() {
                return;
            }
            notified.await;
        }
    }

    /// The waiters wait for this load from now on: links their spans to it, and those of later ones
    /// as they join.
    pub(crate) fn wait_for_load(&self, load: LoadTrace) {
        let mut state = locked(&self.flight.state);
        if state.load.as_ref().is_some_and(|known| known.is_same(&load)) {
            return;
        }
        let earlier = state.load.replace(load.clone());
        let waits = state.slots.iter().map(|(_, slot)| slot).filter(|slot| {
            let is_its_own = slot.opener && !load.is_for_the_opener();
            slot.answer.is_none() && !is_its_own && !slot.span.is_none()
        });
        let waiters: Vec<CallerSpan> = waits.map(|slot| slot.span.clone()).collect();
        drop(state);
        // After the lock: these run code of the subscriber.
        drop(earlier);
        waiters.iter().for_each(|waiter| load.link(waiter));
    }

    /// A load of this process runs, until the returned value is dropped. If it goes on without
    /// waiters, it counts as abandoned then.
    pub(crate) fn announce_load(&self, load: CallerSpan, goes_on: bool) -> AnnouncedLoad<'_, L> {
        self.set_load(try_id(), goes_on);
        if !load.is_none() {
            self.wait_for_load(LoadTrace::Local(load));
        }
        AnnouncedLoad(self)
    }

    /// Sets the task of the load that runs, and whether the load goes on without callers. Wakes what
    /// is cancelled for it.
    fn set_load(&self, task: Option<Id>, goes_on: bool) {
        let mut state = locked(&self.flight.state);
        state.load_goes_on = goes_on;
        state.task = task;
        let over = self.flight.relist(&mut state);
        drop(state);
        over.inspect(|flight| flight.cancelled.notify_one());
    }

    /// Waits until the load is cancelled, because all callers have left it and its place is needed.
    ///
    /// # Cancel safety
    /// Dropping it before it returns loses nothing.
    pub(crate) async fn cancelled(&self) {
        self.flight.cancelled.notified().await;
    }

    /// How many callers have joined so far.
    pub(crate) fn callers(&self) -> u64 {
        locked(&self.flight.state).callers
    }

    fn is_abandoned(&self) -> bool {
        let state = locked(&self.flight.state);
        state.slots.is_empty() && !state.in_background
    }
}

impl<L> Drop for Leader<L> {
    fn drop(&mut self) {
        // Out of the table first: from then on no caller can join, and every waiter is told below.
        self.flights.remove(self.id, |slot| slot.is(&self.flight));
        self.flight.open.fetch_sub(1, Ordering::Relaxed);
        let mut state = locked(&self.flight.state);
        state.closed = true;
        let left = (state.fallback.take(), state.load.take());
        let mut wakers = state.take_wakers(|_| true);
        drop(state);
        drop(left);
        // The waiter that runs first opens the next flight, with its own request. It is picked at
        // random: a sender whose request broke this load must not be able to choose the next one
        // too.
        if wakers.len() > 1 {
            let first = (wakers.len() as f64 * jitter()) as usize % wakers.len();
            wakers.rotate_left(first);
        }
        wake(wakers);
    }
}

/// A load that runs. Dropping it ends its span, unless the loader keeps that.
pub(crate) struct AnnouncedLoad<'a, L>(&'a Leader<L>);

impl<L> Drop for AnnouncedLoad<'_, L> {
    fn drop(&mut self) {
        self.0.set_load(None, false);
        let ended = locked(&self.0.flight.state).load.take();
        // After the lock: it may be the last handle to its span.
        drop(ended);
    }
}

/// Wakes tasks. No lock may be held: a woken task may run at once, on this very thread.
fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

/// Enough that callers of different keys rarely contend for a lock, and few enough to count them
/// all.
const SHARDS: usize = 16;
