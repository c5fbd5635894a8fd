//! The leader: begins generations, completes waiters, and closes its flight when dropped.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::task::Id;
use tokio::time::Instant;

use super::abandoned::CancelledLoad;
use super::state::{
    Flight, Generation, OF_OTHER_TAGS, Phase, PhaseListener, SeenLease, WaiterSlot, lock,
};
use super::table::Flights;
use crate::jitter::jitter;
use crate::key::Key;

/// The task's side of a flight. Dropping it closes the flight, and the remaining waiters ask again.
pub(crate) struct Leader<L> {
    flights: Arc<Flights<L>>,
    key: Key,
    flight: Arc<Flight<L>>,
    listener: Option<PhaseListener>,
}

impl<L> Leader<L> {
    pub(super) fn new(flights: Arc<Flights<L>>, key: Key, flight: Arc<Flight<L>>) -> Self {
        Self { flights, key, flight, listener: None }
    }

    /// Sets what is called with each phase of the flight.
    pub(crate) fn with_listener(mut self, listener: Option<PhaseListener>) -> Self {
        self.listener = listener;
        self
    }

    pub(super) fn flight(&self) -> &Flight<L> {
        &self.flight
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Begins a new generation of waiters, right before a request to the store.
    pub(crate) fn generation(&self) -> Generation {
        let mut state = lock(&self.flight.state);
        state.generations += 1;
        Generation(state.generations)
    }

    /// Enters the phase of waiting for another process, whose lease has `left` left.
    pub(crate) fn wait_for_lease(&self, left: Duration) {
        let mut state = lock(&self.flight.state);
        state.lease = Some(SeenLease::seen(state.lease, left));
        drop(state);
        self.enter(Phase::Waiting);
    }

    /// Sets the phase. It wakes the waiters that fail fast, and calls the listener.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = lock(&self.flight.state);
        if state.phase != phase {
            state.phase = phase;
            state.since = Instant::now();
        }
        // A request between two waits is about the same lease.
        if !matches!(phase, Phase::Asking | Phase::Waiting) {
            state.lease = None;
        }
        let wakers = state.take_wakers(|slot| slot.fails_fast);
        drop(state);
        wake(wakers);
        if let Some(listener) = &self.listener {
            listener(phase);
        }
    }

    /// Completes the waiters that joined before a generation. Later ones may have begun after an
    /// invalidation that the answer has missed.
    pub(crate) fn complete_before(&self, generation: Generation, answer: &L)
    where
        L: Clone,
    {
        self.complete(answer, |slot| slot.joined < generation.0);
    }

    /// Completes the waiters that joined in a generation or later.
    pub(crate) fn complete_late(&self, generation: Generation, answer: &L)
    where
        L: Clone,
    {
        self.complete(answer, |slot| slot.joined >= generation.0);
    }

    /// Completes every waiter but the one that opened the flight.
    pub(crate) fn complete_others(&self, answer: &L)
    where
        L: Clone,
    {
        self.complete(answer, |slot| !slot.opener);
    }

    /// Completes the waiter that opened the flight, if it is still there.
    pub(crate) fn complete_opener(&self, answer: &L)
    where
        L: Clone,
    {
        self.complete(answer, |slot| slot.opener);
    }

    /// Completes every waiter that has joined.
    pub(crate) fn complete_all(&self, answer: &L)
    where
        L: Clone,
    {
        self.complete(answer, |_| true);
    }

    /// Completes the waiters that `of` picks. A waiter that has an outcome keeps it.
    fn complete(&self, answer: &L, of: impl Fn(&WaiterSlot<L>) -> bool)
    where
        L: Clone,
    {
        let answer = Arc::new(answer.clone());
        let mut state = lock(&self.flight.state);
        let mut wakers = Vec::new();
        for (_, slot) in state.slots.iter_mut().filter(|(_, slot)| of(slot)) {
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
        let is_late =
            |slot: &WaiterSlot<L>| slot.joined >= generation.0 && slot.joined != OF_OTHER_TAGS;
        lock(&self.flight.state).slots.iter().any(|(_, slot)| is_late(slot))
    }

    /// Lets callers read the store themselves from now on. They join only if they find nothing
    /// usable.
    pub(crate) fn let_callers_look_up(&self) {
        lock(&self.flight.state).callers_look_up = true;
    }

    /// The same, and lets the flight go on without waiters.
    pub(crate) fn run_in_the_background(&self) {
        let mut state = lock(&self.flight.state);
        state.callers_look_up = true;
        state.in_background = true;
    }

    /// Sets the outcome of the waiters that remain when the leader is dropped. The flight has left
    /// the table by then, so a waiter that asks again does not join it.
    pub(crate) fn close_with(&self, answer: L) {
        let earlier = lock(&self.flight.state).closing.replace(Arc::new(answer));
        // After the lock: it may be of any type.
        drop(earlier);
    }

    /// Sets a stale fallback for the waiters that joined before a generation.
    pub(crate) fn set_fallback(&self, generation: Generation, answer: L) {
        let earlier = lock(&self.flight.state).fallback.replace((generation, answer));
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
        while lock(&self.flight.state).slots.iter().all(|(_, slot)| is_served(slot)) {
            self.flight.joined.notified().await;
        }
    }

    /// Whether there is no waiter right now.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.flight.state).slots.is_empty()
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

    /// Sets the task of the load that runs, and whether the load goes on without callers. Wakes what
    /// is cancelled for it.
    pub(super) fn set_load(&self, task: Option<Id>, goes_on: bool) {
        let flight = &self.flight;
        let mut state = lock(&flight.state);
        state.load_goes_on = goes_on;
        state.task = task;
        let over = flight.relist(&mut state);
        let is_listed = state.listed.is_some();
        drop(state);
        over.into_iter().for_each(CancelledLoad::tell);
        if is_listed {
            flight.abandoned.notify_waiters();
        }
    }

    /// Waits until the load is cancelled, because all callers have left it and its place is needed.
    ///
    /// # Cancel safety
    /// Dropping it before it returns loses nothing.
    pub(crate) async fn cancelled(&self) {
        loop {
            let left = self.flight.abandoned.notified();
            let abandoned = lock(&self.flight.state).abandoned.clone();
            match abandoned {
                Some(load) => return load.cancelled().await,
                None => left.await,
            }
        }
    }

    fn is_abandoned(&self) -> bool {
        let state = lock(&self.flight.state);
        state.slots.is_empty() && !state.in_background
    }
}

impl<L> Drop for Leader<L> {
    fn drop(&mut self) {
        // Out of the table first: from then on no caller can join, and every waiter is told below.
        self.flights.close(&self.key.digest(), &self.flight);
        let mut state = lock(&self.flight.state);
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

impl<L> fmt::Debug for Leader<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leader").field(&self.key).finish()
    }
}

/// Wakes tasks. No lock may be held: a woken task may run at once, on this very thread.
fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
