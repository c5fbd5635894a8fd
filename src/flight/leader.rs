//! The leader: begins generations, completes waiters, and closes its flight when dropped.

use std::any::TypeId;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::task::Waker;

use tokio::task::{Id, try_id};
use tokio::time::Instant;

use super::table::OpenedFlight;
use super::waiters::{Flight, Generation, OF_OTHER_TAGS, Phase, PhaseListener, WaiterSlot};
use crate::jitter::jitter;
use crate::key::Key;
use crate::locked::locked;
use crate::trace::{CallerSpan, LoadTrace};

/// The task's side of a flight. Dropping it closes the flight, and the remaining waiters ask again.
pub(crate) struct Leader<L> {
    opened: OpenedFlight<L>,
    listener: Option<PhaseListener>,
}

impl<L> Leader<L> {
    /// The leader of a new flight, which tells its phases to a listener.
    pub(crate) fn new(mut opened: OpenedFlight<L>, listener: Option<PhaseListener>) -> Self {
        opened.over.take().inspect(|flight| flight.cancelled.notify_one());
        Self { opened, listener }
    }

    fn flight(&self) -> &Arc<Flight<L>> {
        &self.opened.flight
    }

    pub(crate) fn key(&self) -> &Key {
        &self.opened.key
    }

    /// The types of the loader, for whose callers the outcomes are.
    pub(crate) fn types(&self) -> TypeId {
        self.opened.id.types
    }

    /// Begins a new generation of waiters, right before a request to the store.
    pub(crate) fn generation(&self) -> Generation {
        let mut state = locked(&self.flight().state);
        state.generations.0 += 1;
        state.generations
    }

    /// Sets the phase. It wakes the waiters that fail fast, and calls the listener.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = locked(&self.flight().state);
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
        let mut state = locked(&self.flight().state);
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
        locked(&self.flight().state).slots.iter().any(|(_, slot)| is_late(slot))
    }

    /// Lets callers read the store themselves from now on, and the flight go on without waiters. They
    /// join only if they find nothing usable.
    pub(crate) fn run_in_the_background(&self) {
        self.flight().run_in_the_background();
    }

    /// Sets the outcome of the waiters that remain when the leader is dropped. The flight has left
    /// the table by then, so a waiter that asks again does not join it.
    pub(crate) fn close_with(&self, answer: L) {
        let earlier = locked(&self.flight().state).closing.replace(Arc::new(answer));
        // After the lock: it may be of any type.
        drop(earlier);
    }

    /// Sets a stale fallback for the waiters that joined before a generation. Lets callers read the
    /// store themselves from now on.
    pub(crate) fn set_fallback(&self, generation: Generation, answer: L) {
        let mut state = locked(&self.flight().state);
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
        while locked(&self.flight().state).slots.iter().all(|(_, slot)| is_served(slot)) {
            self.flight().joined.notified().await;
        }
    }

    /// Whether it loads without a permit.
    pub(crate) fn passes(&self) -> bool {
        locked(&self.flight().state).passes
    }

    /// Waits until a waiter has joined since the last time.
    ///
    /// # Cancel safety
    /// Dropping it before it returns loses nothing.
    pub(crate) async fn has_joined(&self) {
        self.flight().joined.notified().await;
    }

    /// Gives a sign of life to each waiter that asks for one, for as long as it is polled.
    pub(crate) fn signs_of_life(&self) -> impl Future<Output = Infallible> + use<L> {
        let flight = Arc::clone(self.flight());
        async move {
            loop {
                flight.pinged.notified().await;
                locked(&flight.state).pinged = None;
            }
        }
    }

    /// Whether there is a waiter without an outcome right now.
    pub(crate) fn is_awaited(&self) -> bool {
        locked(&self.flight().state).slots.iter().any(|(_, slot)| slot.answer.is_none())
    }

    /// Waits until the last waiter has left. For a flight in the background it never returns.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing; each call checks whether there is a waiter.
    pub(crate) async fn abandoned(&self) {
        loop {
            let notified = self.flight().abandoned.notified();
            if self.is_abandoned() {
                return;
            }
            notified.await;
        }
    }

    /// The waiters wait for this load from now on: links their spans to it, and those of later ones
    /// as they join.
    pub(crate) fn wait_for_load(&self, load: LoadTrace) {
        let mut state = locked(&self.flight().state);
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
        let mut state = locked(&self.flight().state);
        state.load_goes_on = goes_on;
        state.task = task;
        let over = self.flight().relist(&mut state);
        drop(state);
        over.inspect(|flight| flight.cancelled.notify_one());
    }

    /// Waits until the load is cancelled, because all callers have left it and its place is needed.
    ///
    /// # Cancel safety
    /// Dropping it before it returns loses nothing.
    pub(crate) async fn cancelled(&self) {
        self.flight().cancelled.notified().await;
    }

    /// How many callers have joined so far.
    pub(crate) fn callers(&self) -> u64 {
        locked(&self.flight().state).callers
    }

    fn is_abandoned(&self) -> bool {
        let state = locked(&self.flight().state);
        state.slots.is_empty() && !state.in_background
    }
}

impl<L> Drop for Leader<L> {
    fn drop(&mut self) {
        // Out of the table first: from then on no caller can join, and every waiter is told below.
        self.opened.close();
        let mut state = locked(&self.flight().state);
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
        let ended = locked(&self.0.flight().state).load.take();
        // After the lock: it may be the last handle to its span.
        drop(ended);
    }
}

/// Wakes tasks. No lock may be held: a woken task may run at once, on this very thread.
fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
