//! The waiter: a caller's place in a flight, and the wait for an outcome.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Awaited, Flight, Phase, WaiterSlot, lock};

/// A caller's place in a flight. Dropping it frees the place.
pub(crate) struct Waiter<L> {
    flight: Arc<Flight<L>>,
    slot: usize,
    /// Whether it opened the flight, so that the load is its own.
    opener: bool,
}

/// What a wait came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion<L> {
    /// The answer of a question that was asked after this waiter joined.
    Outcome(L),
    /// The leader has gone and left no answer: look again.
    Again,
}

impl<L> Waiter<L> {
    /// Joins a flight. To be called under the lock of the flight's shard.
    pub(super) fn register(
        flight: &Arc<Flight<L>>,
        impatient: bool,
        opener: bool,
        most: usize,
    ) -> Option<Self> {
        let mut state = lock(&flight.state);
        if state.slots.len() >= most {
            return None;
        }
        let slot =
            WaiterSlot { joined: state.generations, impatient, opener, answer: None, waker: None };
        let slot = state.slots.insert(slot);
        drop(state);
        flight.joined.notify_one();
        Some(Self { flight: Arc::clone(flight), slot, opener })
    }

    /// Waits for an outcome.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Completion<L>>
    where
        L: Clone,
    {
        let mut state = lock(&self.flight.state);
        let closed = state.closed;
        let closing = state.closing.clone().filter(|_| closed);
        let slot = &mut state.slots[self.slot];
        if let Some(answer) = slot.answer.take().or(closing) {
            drop(state);
            return Poll::Ready(Completion::Outcome(Arc::unwrap_or_clone(answer)));
        }
        if closed {
            return Poll::Ready(Completion::Again);
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => slot.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// What it may have if it will not wait for better, and how old that is.
    pub(crate) fn offered(&self) -> Option<(L, Duration)>
    where
        L: Clone,
    {
        let state = lock(&self.flight.state);
        let joined = state.slots[self.slot].joined;
        let offer = state.offer.as_ref().filter(|offer| joined < offer.generation)?;
        let age = offer.made.elapsed();
        (age < offer.good_for).then(|| (offer.answer.clone(), age))
    }

    /// From now on the flight goes on without waiters.
    pub(crate) fn leave_it_running(&self) {
        lock(&self.flight.state).in_background = true;
    }

    /// How much longer what it waits for is expected to take, if it takes so long in all.
    pub(crate) fn expects(&self, in_all: Duration) -> Duration {
        let state = lock(&self.flight.state);
        let since = state.lease.map_or(state.since, |lease| lease.since);
        in_all.saturating_sub(since.elapsed())
    }

    /// What it waits for.
    pub(crate) fn awaited(&self) -> Awaited {
        let state = lock(&self.flight.state);
        match (state.phase, state.lease) {
            (Phase::Loading, _) if self.opener => Awaited::OwnLoad(state.since.elapsed()),
            (Phase::Loading, _) => Awaited::Load(state.since.elapsed()),
            (Phase::Queueing, _) => Awaited::Leave,
            (_, Some(lease)) => {
                let (held_for, is_renewed) = (lease.since.elapsed(), lease.is_renewed);
                Awaited::Lease { held_for, is_renewed }
            }
            (_, None) => Awaited::Store,
        }
    }

    /// Whether it waits for a load to be allowed.
    pub(crate) fn waits_for_leave_to_load(&self) -> bool {
        lock(&self.flight.state).phase == Phase::Queueing
    }

    /// Whether it waits for the load of another caller, here or in another process.
    pub(crate) fn waits_for_a_load_of_others(&self) -> bool {
        match lock(&self.flight.state).phase {
            Phase::Asking | Phase::Resting => false,
            Phase::Waiting | Phase::Queueing => true,
            Phase::Loading => !self.opener,
        }
    }

    /// Whether the load that runs is its own.
    pub(crate) fn runs_its_own_load(&self) -> bool {
        self.opener && lock(&self.flight.state).phase == Phase::Loading
    }

    /// Whether a load runs in this process, its own or another caller's.
    pub(crate) fn waits_for_a_load_here(&self) -> bool {
        lock(&self.flight.state).phase == Phase::Loading
    }

    pub(crate) fn is_opener(&self) -> bool {
        self.opener
    }
}

impl<L> Drop for Waiter<L> {
    fn drop(&mut self) {
        let mut state = lock(&self.flight.state);
        let left = state.slots.remove(self.slot);
        let abandoned = state.slots.is_empty();
        drop(state);
        // Its answer is dropped here, after the lock: it may be of any type.
        drop(left);
        if abandoned {
            self.flight.abandoned.notify_waiters();
        }
    }
}

impl<L> fmt::Debug for Waiter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("opener", &self.opener).finish_non_exhaustive()
    }
}
