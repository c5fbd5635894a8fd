//! The waiter: a caller in a flight that waits for its outcome.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::try_id;

use super::abandoned::CancelledLoad;
use super::awaited::Awaited;
use super::state::{Flight, OF_OTHER_TAGS, Phase, WaiterSlot, lock};
use crate::tag::Tags;
use crate::trace::{CallerSpan, LoadTrace};

/// A caller in a flight. Dropping it leaves the flight.
pub(crate) struct Waiter<L> {
    flight: Arc<Flight<L>>,
    slot: usize,
    /// It opened the flight, so the load is its own.
    opener: bool,
}

/// How a caller comes to a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joining {
    /// It opens the flight.
    Opener,
    /// It had asked before the flight was opened.
    Before,
    Now,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion<L> {
    /// An outcome that is not older than this waiter.
    Outcome(L),
    /// The leader was dropped and left no outcome: read the store again, and join or open a flight.
    Again,
}

impl<L> Waiter<L> {
    /// Joins a flight, under the lock of the flight's shard. Gives the load that it waits for now, if
    /// that is traced. `None` if the flight has `most` waiters.
    pub(super) fn register(
        flight: &Arc<Flight<L>>,
        tags: &Tags,
        fails_fast: bool,
        joining: Joining,
        most: usize,
        span: &CallerSpan,
    ) -> Option<(Self, Option<LoadTrace>)> {
        let mut state = lock(&flight.state);
        if state.slots.len() >= most {
            return None;
        }
        let joined = match joining {
            _ if !tags.are_among(&flight.tags) => OF_OTHER_TAGS,
            Joining::Opener | Joining::Before => 0,
            Joining::Now => state.generations,
        };
        let opener = joining == Joining::Opener;
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
        Some((Self { flight: Arc::clone(flight), slot, opener }, load))
    }

    /// Waits for an outcome. The task that polled last is woken.
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

    /// The stale fallback of the flight. `None` if there is none that this waiter may have.
    pub(crate) fn stale_fallback(&self) -> Option<L>
    where
        L: Clone,
    {
        let state = lock(&self.flight.state);
        let joined = state.slots[self.slot].joined;
        let (_, answer) = state.fallback.as_ref().filter(|(before, _)| joined < before.0)?;
        Some(answer.clone())
    }

    /// Lets the flight go on after its last waiter has left.
    pub(crate) fn keep_running(&self) {
        lock(&self.flight.state).in_background = true;
    }

    /// What it waits for.
    pub(crate) fn awaited(&self) -> Awaited {
        let state = lock(&self.flight.state);
        match (state.phase, state.lease) {
            (Phase::Loading, _) if state.task.is_some() && state.task == try_id() => {
                Awaited::ThisLoad(state.since.elapsed())
            }
            (Phase::Loading, _) if self.opener => Awaited::OwnLoad(state.since.elapsed()),
            (Phase::Loading, _) => Awaited::Load(state.since.elapsed()),
            (Phase::Queueing, _) => Awaited::Permit,
            (_, Some(lease)) => {
                let held_for = lease.since.elapsed();
                Awaited::Lease { held_for, is_renewed: lease.is_renewed }
            }
            (_, None) => Awaited::Store,
        }
    }

    /// Whether its load waits for a permit.
    pub(crate) fn waits_for_permit(&self) -> bool {
        lock(&self.flight.state).phase == Phase::Queueing
    }

    /// Whether it waits for the load of another caller, in this process or in another one.
    pub(crate) fn waits_for_other_load(&self) -> bool {
        match lock(&self.flight.state).phase {
            Phase::Asking | Phase::CoolingDown => false,
            Phase::Waiting | Phase::Queueing => true,
            Phase::Loading => !self.opener,
        }
    }

    /// Whether the load that runs is its own.
    pub(crate) fn runs_its_own_load(&self) -> bool {
        self.opener && lock(&self.flight.state).phase == Phase::Loading
    }

    /// Whether a load runs in this process, its own or another caller's.
    pub(crate) fn waits_for_local_load(&self) -> bool {
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
        let over = self.flight.relist(&mut state);
        drop(state);
        over.into_iter().for_each(CancelledLoad::tell);
        // The answer is dropped after the lock: it may be of any type.
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
