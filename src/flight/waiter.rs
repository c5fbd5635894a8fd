//! The waiter: a caller in a flight that waits for its outcome.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::try_id;

use super::state::{Flight, Generation, Phase, WaiterSlot};
use crate::locked::locked;
use crate::trace::{CallerSpan, LoadTrace};

/// A caller in a flight. Dropping it leaves the flight.
pub(crate) struct Waiter<L> {
    flight: Arc<Flight<L>>,
    slot: usize,
    /// It opened the flight, so the load is its own.
    pub(crate) opener: bool,
}

impl<L> Waiter<L> {
    /// Joins a flight, under the lock of the flight's shard: in this generation, or else in the one
    /// that has begun last. Gives the load that it waits for now, if that is traced. `None` if the
    /// flight has `most` waiters.
    pub(super) fn register(
        flight: Arc<Flight<L>>,
        joined: Option<Generation>,
        opener: bool,
        fails_fast: bool,
        most: usize,
        span: &CallerSpan,
    ) -> Option<(Self, Option<LoadTrace>)> {
        let mut state = locked(&flight.state);
        if state.slots.len() >= most {
            return None;
        }
        let joined = joined.unwrap_or(state.generations);
        let span = span.clone();
        let slot = WaiterSlot { joined, fails_fast, opener, answer: None, waker: None, span };
        let slot = state.slots.insert(slot);
        state.callers += 1;
        // With a waiter, it only comes off the list.
        let none = flight.relist(&mut state);
        debug_assert!(none.is_none(), "no load is cancelled for it");
        let load = state.load.clone();
        drop(state);
        flight.joined.notify_one();
        Some((Self { flight, slot, opener }, load))
    }

    /// Lets the flight go on after its last waiter has left.
    pub(crate) fn keep_running(&self) {
        locked(&self.flight.state).in_background = true;
    }

    /// What it waits for, and how long that has lasted: as text for error messages.
    pub(crate) fn awaited(&self) -> String {
        let state = locked(&self.flight.state);
        let ran_for = state.since.elapsed();
        match state.phase {
            Phase::Loading if state.task.is_some() && state.task == try_id() => {
                format!("the load that asks is its own: it has run for {ran_for:?}")
            }
            Phase::Loading if self.opener => format!("its load has run for {ran_for:?}"),
            Phase::Loading => format!("a load in this process has run for {ran_for:?}"),
            Phase::Queueing => "as many loads without a lease are running as may run".to_owned(),
            // Of another process, or of another cache or type in this one.
            Phase::Waiting => "another load, here or in another process, has the lease".to_owned(),
            Phase::Asking | Phase::CoolingDown => "the store has not answered".to_owned(),
        }
    }

    /// What its flight is doing.
    pub(crate) fn phase(&self) -> Phase {
        locked(&self.flight.state).phase
    }

    /// Whether it waits for the load of another caller, in this process or in another one.
    pub(crate) fn waits_for_other_load(&self) -> bool {
        match self.phase() {
            Phase::Asking | Phase::CoolingDown => false,
            Phase::Waiting | Phase::Queueing => true,
            Phase::Loading => !self.opener,
        }
    }
}

impl<L: Clone> Waiter<L> {
    /// Waits for an outcome, which is not older than this waiter. `None` if the leader was dropped and
    /// left none: then it reads the store again, and joins or opens a flight. The task that polled
    /// last is woken.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<L>> {
        let mut state = locked(&self.flight.state);
        let closed = state.closed;
        let closing = state.closing.clone().filter(|_| closed);
        let slot = &mut state.slots[self.slot];
        if let Some(answer) = slot.answer.take().or(closing) {
            drop(state);
            return Poll::Ready(Some(Arc::unwrap_or_clone(answer)));
        }
        if closed {
            return Poll::Ready(None);
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => slot.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// The stale fallback of the flight. `None` if there is none that this waiter may have.
    pub(crate) fn stale_fallback(&self) -> Option<L> {
        let state = locked(&self.flight.state);
        let joined = state.slots[self.slot].joined;
        let (_, answer) = state.fallback.as_ref().filter(|(before, _)| joined < *before)?;
        Some(answer.clone())
    }
}

impl<L> Drop for Waiter<L> {
    fn drop(&mut self) {
        let mut state = locked(&self.flight.state);
        let left = state.slots.remove(self.slot);
        let abandoned = state.slots.is_empty();
        let over = self.flight.relist(&mut state);
        drop(state);
        over.inspect(|flight| flight.cancelled.notify_one());
        // The answer is dropped after the lock: it may be of any type.
        drop(left);
        if abandoned {
            self.flight.abandoned.notify_waiters();
        }
    }
}
