//! A batch: who is in it, whose request is collected, and when a call of the loader departs.
//!
//! An item is undecided while it, or the flight that it opened, asks the store. Then it has been
//! answered, waits for somebody else's load, or is collected to be loaded here. A call departs
//! when all who were undecided as the first was collected have decided once. To wait until nobody
//! is undecided any more could take for ever: who waits for somebody else's load asks now and then
//! how it stands.
//!
//! # Invariants
//! 1. Who is collected is held up by questions to the store only, one of each item, and those
//!    end: a caller that has gone takes its looks with it, and flights are tasks of their own.
//! 2. Who is collected is answered, or told that the call was lost.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::answers::BatchLoader;
use super::error::BatchError;
use crate::flight::Phase;

/// The requests that are loaded together.
pub(super) struct Batch<B: BatchLoader<Req>, Req> {
    /// Held to clone it.
    loader: Mutex<B>,
    /// How many requests one call is given at most.
    most: usize,
    /// Held for a few operations, never across an `.await`. No code of the program runs under it.
    state: Mutex<BatchState<Collected<B, Req>>>,
}

/// A request that is to be loaded, and who waits for its outcome.
pub(super) struct Collected<B: BatchLoader<Req>, Req> {
    pub(super) request: Req,
    pub(super) outcome: oneshot::Sender<ItemOutcome<B, Req>>,
}

/// What came of one request.
pub(super) type ItemOutcome<B, Req> =
    Result<<B as BatchLoader<Req>>::Answer, BatchError<<B as BatchLoader<Req>>::Fault>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BatchState<T> {
    items: Vec<ItemState>,
    /// How many of them are awaited.
    awaited: usize,
    collected: Vec<T>,
    /// A flush is about to take them.
    is_departing: bool,
}

/// What is known of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ItemState {
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
    pub(super) fn new(loader: B, most: usize, items: usize) -> Arc<Self> {
        let items = vec![ItemState::Undecided; items];
        let state = BatchState { items, awaited: 0, collected: Vec::new(), is_departing: false };
        Arc::new(Self { loader: Mutex::new(loader), most, state: Mutex::new(state) })
    }

    /// What the flight of an item waits for has changed. Says whether a call departs now.
    #[must_use]
    pub(super) fn hear(&self, item: usize, phase: Phase) -> bool {
        self.enter(
            item,
            match phase {
                // Its request comes next.
                Phase::Asking | Phase::Loading => ItemState::Undecided,
                Phase::Waiting | Phase::Queueing | Phase::Resting => ItemState::Waiting,
            },
        )
    }

    /// An item has another state. Says whether a call departs now.
    #[must_use]
    pub(super) fn enter(&self, item: usize, state: ItemState) -> bool {
        self.state().enter(item, state, self.most)
    }

    /// Takes the request of an item, to be loaded. Says whether a call departs now.
    #[must_use]
    pub(super) fn collect(&self, item: usize, collected: Collected<B, Req>) -> bool {
        self.state().collect(item, collected, self.most)
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

    fn state(&self) -> MutexGuard<'_, BatchState<Collected<B, Req>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> BatchState<T> {
    /// Says whether a call departs now.
    fn enter(&mut self, item: usize, state: ItemState, most: usize) -> bool {
        match (self.items[item], state) {
            (ItemState::Gone, _) | (ItemState::Awaited, ItemState::Undecided) => return false,
            (ItemState::Awaited, _) => self.awaited -= 1,
            _ => {}
        }
        self.items[item] = state;
        self.departs(most)
    }

    /// Says whether a call departs now.
    fn collect(&mut self, item: usize, collected: T, most: usize) -> bool {
        let is_first = self.collected.is_empty();
        self.collected.push(collected);
        if mem::replace(&mut self.items[item], ItemState::Gone) == ItemState::Awaited {
            self.awaited -= 1;
        }
        if is_first {
            self.await_the_undecided();
        }
        self.departs(most)
    }

    fn await_the_undecided(&mut self) {
        for item in self.items.iter_mut().filter(|item| **item == ItemState::Undecided) {
            *item = ItemState::Awaited;
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ITEMS: usize = 3;

    /// The batch, which items were collected and which of them were loaded, and how often each item
    /// may still wait for another load.
    type Situation = (BatchState<usize>, [bool; ITEMS], [bool; ITEMS], [u8; ITEMS]);

    /// All that may happen next: an item decides, or a flush takes those that are collected.
    fn successors(situation: &Situation, most: usize) -> Vec<Situation> {
        let (state, ..) = situation;
        let mut next = vec![];
        for item in (0..ITEMS).filter(|item| state.items[*item] != ItemState::Gone) {
            for to in [ItemState::Undecided, ItemState::Waiting, ItemState::Gone] {
                let (mut state, collected, loaded, mut waits) = situation.clone();
                let is_wait = to == ItemState::Waiting;
                if state.items[item] != to && (!is_wait || waits[item] > 0) {
                    waits[item] -= u8::from(is_wait);
                    state.enter(item, to, most);
                    next.push((state, collected, loaded, waits));
                }
            }
            let (mut state, mut collected, loaded, waits) = situation.clone();
            if state.items[item] != ItemState::Waiting {
                state.collect(item, item, most);
                collected[item] = true;
                next.push((state, collected, loaded, waits));
            }
        }
        if state.is_departing {
            let (mut state, collected, mut loaded, waits) = situation.clone();
            for item in state.take(most) {
                assert!(!mem::replace(&mut loaded[item], true), "{item} is loaded twice");
            }
            next.push((state, collected, loaded, waits));
        }
        next
    }

    #[test]
    fn each_item_that_is_collected_is_loaded_once_whatever_the_others_do() {
        for most in 1..=ITEMS {
            let state = BatchState {
                items: vec![ItemState::Undecided; ITEMS],
                awaited: 0,
                collected: vec![],
                is_departing: false,
            };
            let mut open = vec![(state, [false; ITEMS], [false; ITEMS], [2; ITEMS])];
            let mut seen: HashSet<Situation> = open.iter().cloned().collect();
            while let Some(situation) = open.pop() {
                let (state, collected, loaded, _) = &situation;
                let awaited = state.items.iter().filter(|it| **it == ItemState::Awaited).count();
                assert_eq!(state.awaited, awaited, "{situation:?}");
                let is_held_up = !state.collected.is_empty() && !state.is_departing;
                assert!(!is_held_up || awaited > 0, "no item is awaited: {situation:?}");
                let next = successors(&situation, most);
                assert!(!next.is_empty() || collected == loaded, "{situation:?}");
                open.extend(next.into_iter().filter(|situation| seen.insert(situation.clone())));
            }
            println!("{} states of batches of at most {most}", seen.len());
        }
    }
}
