//! The leader: counts generations, completes waiters, and takes its flight down when it goes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::{Flight, Flights, Listener, Offer, Phase, SeenLease, Slot, WaiterSlot, lock};
use crate::jitter::jitter;
use crate::key::Key;

/// The task's side of a flight. Dropping it tells the remaining waiters to look again.
pub(crate) struct Leader<L> {
    flights: Arc<Flights<L>>,
    key: Key,
    flight: Arc<Flight<L>>,
    listener: Option<Listener>,
}

/// Separates the waiters that had joined when a question was asked from later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation(pub(super) u64);

impl<L> Leader<L> {
    pub(super) fn new(flights: Arc<Flights<L>>, key: Key, flight: Arc<Flight<L>>) -> Self {
        Self { flights, key, flight, listener: None }
    }

    /// From now on a listener hears what the flight waits for.
    pub(crate) fn heard_by(mut self, listener: Option<Listener>) -> Self {
        self.listener = listener;
        self
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Begins a new generation of waiters. To be called right before a question is asked.
    pub(crate) fn generation(&self) -> Generation {
        let mut state = lock(&self.flight.state);
        state.generations += 1;
        Generation(state.generations)
    }

    /// Says that the flight waits for another process, whose lease has so much left.
    pub(crate) fn wait_for_lease(&self, left: Duration) {
        let mut state = lock(&self.flight.state);
        state.lease = Some(SeenLease::seen(state.lease, left));
        drop(state);
        self.enter(Phase::Waiting);
    }

    /// Says what the flight waits for, to the waiters that do not wait for everything.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = lock(&self.flight.state);
        if state.phase != phase {
            state.phase = phase;
            state.since = Instant::now();
        }
        // A question in between is about the same lease.
        if !matches!(phase, Phase::Asking | Phase::Waiting) {
            state.lease = None;
        }
        let wakers = state.take_wakers(|slot| slot.impatient);
        drop(state);
        wake(wakers);
        if let Some(listener) = &self.listener {
            listener(phase);
        }
    }

    /// Completes the waiters that joined before a generation. An answer may be older than those that
    /// joined later.
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

    /// Completes every waiter that is there.
    pub(crate) fn complete_all(&self, answer: &L)
    where
        L: Clone,
    {
        self.complete(answer, |_| true);
    }

    /// Completes those waiters that `of` picks. One that has an answer keeps it.
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
        // Where no waiter has it, it is dropped after the lock: it may be of any type.
        drop(answer);
        wake(wakers);
    }

    /// Whether a waiter is there that joined in a generation or later.
    pub(crate) fn has_joined_since(&self, generation: Generation) -> bool {
        lock(&self.flight.state).slots.iter().any(|(_, slot)| slot.joined >= generation.0)
    }

    /// From now on callers look for themselves, and join only if they find nothing that will do.
    pub(crate) fn let_callers_look(&self) {
        lock(&self.flight.state).looks_first = true;
    }

    /// The same, and it goes on without waiters.
    pub(crate) fn run_in_the_background(&self) {
        let mut state = lock(&self.flight.state);
        state.looks_first = true;
        state.in_background = true;
    }

    /// Leaves an answer to the waiters that remain when it goes. From then on there is no such
    /// flight, so a caller that asks again does not join it.
    pub(crate) fn close_with(&self, answer: L) {
        let earlier = lock(&self.flight.state).closing.replace(Arc::new(answer));
        // After the lock: it may be of any type.
        drop(earlier);
    }

    /// Offers a stale fallback to the waiters that joined before a generation, for as long as it is
    /// good.
    pub(crate) fn offer(&self, generation: Generation, answer: L, good_for: Duration) {
        let offer = Offer { generation: generation.0, answer, made: Instant::now(), good_for };
        let earlier = lock(&self.flight.state).offer.replace(offer);
        // After the lock: it may be of any type.
        drop(earlier);
    }

    /// Waits until a caller is there that has no answer and did not open the flight.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn joined(&self) {
        let is_served = |slot: &WaiterSlot<L>| slot.opener || slot.answer.is_some();
        while lock(&self.flight.state).slots.iter().all(|(_, slot)| is_served(slot)) {
            self.flight.joined.notified().await;
        }
    }

    /// Whether no waiter is there right now.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.flight.state).slots.is_empty()
    }

    /// Waits until no waiter is left, which matters to no flight in the background.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing; each call checks for itself whether a waiter is there.
    pub(crate) async fn abandoned(&self) {
        loop {
            let rung = self.flight.abandoned.notified();
            if self.is_abandoned() {
                return;
            }
            rung.await;
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
        self.flights.remove(
            &self.key.digest(),
            |slot| matches!(slot, Slot::Flight(flight) if Arc::ptr_eq(flight, &self.flight)),
        );
        self.flights.open.fetch_sub(1, Ordering::Relaxed);
        let mut state = lock(&self.flight.state);
        state.closed = true;
        let offer = state.offer.take();
        let mut wakers = state.take_wakers(|_| true);
        drop(state);
        drop(offer);
        // The first to run opens the next flight, with its own request. After a request that broke
        // its load, the next one must not be of the same sender's choosing.
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

/// To be called when no lock is held: a woken task may run at once, on this very thread.
fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
