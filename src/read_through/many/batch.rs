//! A batch: who is in it, whose request is collected, and when a call of the loader departs.
//!
//! A member is undecided while it, or the flight that it opened, asks the store. Then it has been
//! answered, waits for somebody else's load, or is collected to be loaded here. A call departs
//! when all who were undecided as the first was collected have decided once. To wait until nobody
//! is undecided any more could take for ever: who waits for somebody else's load asks now and then
//! how it stands.
//!
//! # Invariants
//! 1. Who is collected is held up by questions to the store only, one of each member, and those
//!    end: a caller that has gone takes its looks with it, and flights are tasks of their own.
//! 2. Who is collected is answered, or told that the call was lost.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::answers::BatchLoader;
use super::departure::Departure;
use super::error::BatchError;
use crate::flight::Phase;

/// The requests that are loaded together.
pub(super) struct Batch<B: BatchLoader<Req>, Req> {
    /// Held to clone it.
    loader: Mutex<B>,
    /// How many requests one call is given at most.
    most: usize,
    /// Held for a few operations, never across an `.await`. No code of the program runs under it.
    state: Mutex<State<Collected<B, Req>>>,
}

/// A request that is to be loaded, and who waits for its outcome.
pub(super) struct Collected<B: BatchLoader<Req>, Req> {
    pub(super) request: Req,
    pub(super) outcome: oneshot::Sender<Outcome<B, Req>>,
}

/// What came of one request.
pub(super) type Outcome<B, Req> =
    Result<<B as BatchLoader<Req>>::Answer, BatchError<<B as BatchLoader<Req>>::Fault>>;

#[derive(Debug)]
struct State<T> {
    stands: Vec<Stand>,
    /// How many of them are awaited.
    awaited: usize,
    collected: Vec<T>,
    /// A departure is about to take them.
    is_departing: bool,
}

/// How it stands with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// Its request may be collected at any moment.
    Undecided,
    /// The same, and the call waits for that.
    Awaited,
    /// It waits for somebody else's load, and may be undecided again.
    Waiting,
    /// Its request was collected, or never will be.
    Gone,
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Batch<B, Req> {
    pub(super) fn new(loader: B, most: usize, members: usize) -> Arc<Self> {
        let stands = vec![Stand::Undecided; members];
        let state = State { stands, awaited: 0, collected: Vec::new(), is_departing: false };
        Arc::new(Self { loader: Mutex::new(loader), most, state: Mutex::new(state) })
    }

    /// What the flight of a member waits for has changed.
    pub(super) fn hear(self: &Arc<Self>, member: usize, phase: Phase) {
        self.stand(
            member,
            match phase {
                // Its request comes next.
                Phase::Asking | Phase::Loading => Stand::Undecided,
                Phase::Waiting | Phase::Queueing | Phase::Resting => Stand::Waiting,
            },
        );
    }

    pub(super) fn stand(self: &Arc<Self>, member: usize, stand: Stand) {
        let departs = self.state().stand(member, stand, self.most);
        if departs {
            self.depart();
        }
    }

    /// Takes the request of a member, to be loaded.
    pub(super) fn collect(self: &Arc<Self>, member: usize, collected: Collected<B, Req>) {
        let departs = self.state().collect(member, collected, self.most);
        if departs {
            self.depart();
        }
    }

    /// Those with whom a call departs.
    pub(super) fn take(&self) -> Vec<Collected<B, Req>> {
        self.state().take(self.most)
    }

    /// There will be no call: those who are collected are told so.
    pub(super) fn lose(&self) {
        let lost = {
            let mut state = self.state();
            state.is_departing = false;
            mem::take(&mut state.collected)
        };
        drop(lost);
    }

    pub(super) fn loader(&self) -> B {
        self.loader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    fn depart(self: &Arc<Self>) {
        let departure = Departure::of(Arc::clone(self));
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(departure.run());
        }
    }

    fn state(&self) -> MutexGuard<'_, State<Collected<B, Req>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    /// Says whether a call departs now.
    fn stand(&mut self, member: usize, stand: Stand, most: usize) -> bool {
        match (self.stands[member], stand) {
            (Stand::Gone, _) | (Stand::Awaited, Stand::Undecided) => return false,
            (Stand::Awaited, _) => self.awaited -= 1,
            _ => {}
        }
        self.stands[member] = stand;
        self.departs(most)
    }

    /// Says whether a call departs now.
    fn collect(&mut self, member: usize, collected: T, most: usize) -> bool {
        let is_first = self.collected.is_empty();
        self.collected.push(collected);
        if mem::replace(&mut self.stands[member], Stand::Gone) == Stand::Awaited {
            self.awaited -= 1;
        }
        if is_first {
            self.await_the_undecided();
        }
        self.departs(most)
    }

    fn await_the_undecided(&mut self) {
        for stand in self.stands.iter_mut().filter(|stand| **stand == Stand::Undecided) {
            *stand = Stand::Awaited;
            self.awaited += 1;
        }
    }

    fn departs(&mut self, most: usize) -> bool {
        let is_complete = self.awaited == 0 || self.collected.len() >= most;
        let departs = is_complete && !self.collected.is_empty() && !self.is_departing;
        self.is_departing |= departs;
        departs
    }

    /// All that are collected; while others are awaited, as many as make whole calls.
    fn take(&mut self, most: usize) -> Vec<T> {
        self.is_departing = false;
        let count = match self.awaited {
            0 => self.collected.len(),
            _ => self.collected.len() / most * most,
        };
        let left = self.collected.split_off(count);
        mem::replace(&mut self.collected, left)
    }
}

impl<B: BatchLoader<Req>, Req> fmt::Debug for Batch<B, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("most", &self.most).finish_non_exhaustive()
    }
}
