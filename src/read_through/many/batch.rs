//! A batch: the states of its items, the requests that are collected, and when a flush is due.
//!
//! An item is undecided while it, or the flight that it opened, asks the store. After that it is
//! answered, waits for another caller's load, or is collected, to be loaded by this batch. When the
//! first item is collected, the batch notes the undecided ones. The flush is due as soon as each of
//! them has decided once. It does not wait until no item is undecided, since that might never
//! happen: an item that waits for another caller's load asks the store again from time to time.
//!
//! # Invariants
//! 1. A collected request waits for at most one store operation of each other item, and those end.
//!    Dropping a caller drops its lookup, and flights are tasks of their own.
//! 2. A collected request is answered, or gets the error that its call was lost.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tracing::Span;

use super::answers::BatchLoader;
use super::error::ItemError;
use crate::flight::Phase;
use crate::read_through::error_rules::ErrorRules;

/// The requests that are loaded together.
pub(super) struct Batch<B: BatchLoader<Req>, Req> {
    /// Locked only to clone it.
    loader: Mutex<B>,
    /// How many requests one call gets at most.
    most: usize,
    /// What the program says about the loader's errors.
    rules: ErrorRules,
    /// The span in which the batch was asked for.
    span: Span,
    /// Locked for a few operations, never across an `.await`. No code of the program runs under the
    /// lock.
    state: Mutex<BatchState<Collected<B, Req>>>,
}

/// A request to be loaded, and the channel to its caller.
pub(super) struct Collected<B: BatchLoader<Req>, Req> {
    pub(super) request: Req,
    pub(super) outcome: oneshot::Sender<ItemOutcome<B, Req>>,
}

/// The outcome of one request.
pub(super) type ItemOutcome<B, Req> = Result<<B as BatchLoader<Req>>::Answer, ItemError>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BatchState<T> {
    items: Vec<ItemState>,
    /// How many items are `Awaited`.
    awaited: usize,
    collected: Vec<T>,
    /// A flush is about to take the collected ones.
    is_flushing: bool,
}

/// The state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ItemState {
    /// Its request may be collected at any moment.
    Undecided,
    /// The same, and the flush waits for its decision.
    Awaited,
    /// It waits for the load of another caller, and may become undecided again.
    Waiting,
    /// Its request was collected, or will never be.
    Gone,
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Batch<B, Req> {
    pub(super) fn new(loader: B, most: usize, items: usize, rules: ErrorRules) -> Arc<Self> {
        let items = vec![ItemState::Undecided; items];
        let state = BatchState { items, awaited: 0, collected: Vec::new(), is_flushing: false };
        Arc::new(Self {
            loader: Mutex::new(loader),
            most,
            rules,
            span: Span::current(),
            state: Mutex::new(state),
        })
    }

    /// Notes the phase of an item's flight. Returns whether a flush is due now.
    #[must_use]
    pub(super) fn on_phase(&self, item: usize, phase: Phase) -> bool {
        self.enter(
            item,
            match phase {
                // Its request may be collected next.
                Phase::Asking | Phase::Loading => ItemState::Undecided,
                Phase::Waiting | Phase::Queueing | Phase::CoolingDown => ItemState::Waiting,
            },
        )
    }

    /// Sets the state of an item. Returns whether a flush is due now.
    #[must_use]
    pub(super) fn enter(&self, item: usize, state: ItemState) -> bool {
        self.state().enter(item, state, self.most)
    }

    /// Collects the request of an item. Returns whether a flush is due now.
    #[must_use]
    pub(super) fn collect(&self, item: usize, collected: Collected<B, Req>) -> bool {
        self.state().collect(item, collected, self.most)
    }

    /// The requests for the next calls.
    pub(super) fn take(&self) -> Vec<Collected<B, Req>> {
        self.state().take(self.most)
    }

    /// Drops the collected requests, since there will be no call. Their callers get an error.
    pub(super) fn drop_collected(&self) {
        let lost = {
            let mut state = self.state();
            state.is_flushing = false;
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

    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn rules(&self) -> &ErrorRules {
        &self.rules
    }

    fn state(&self) -> MutexGuard<'_, BatchState<Collected<B, Req>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> BatchState<T> {
    /// Returns whether a flush is due now.
    fn enter(&mut self, item: usize, state: ItemState, most: usize) -> bool {
        match (self.items[item], state) {
            (ItemState::Gone, _) | (ItemState::Awaited, ItemState::Undecided) => return false,
            (ItemState::Awaited, _) => self.awaited -= 1,
            _ => {}
        }
        self.items[item] = state;
        self.flush_is_due(most)
    }

    /// Returns whether a flush is due now.
    fn collect(&mut self, item: usize, collected: T, most: usize) -> bool {
        let is_first = self.collected.is_empty();
        self.collected.push(collected);
        if mem::replace(&mut self.items[item], ItemState::Gone) == ItemState::Awaited {
            self.awaited -= 1;
        }
        if is_first {
            self.await_undecided();
        }
        self.flush_is_due(most)
    }

    fn await_undecided(&mut self) {
        for item in self.items.iter_mut().filter(|item| **item == ItemState::Undecided) {
            *item = ItemState::Awaited;
            self.awaited += 1;
        }
    }

    fn flush_is_due(&mut self, most: usize) -> bool {
        let is_complete = self.awaited == 0 || self.collected.len() >= most;
        let is_due = is_complete && !self.collected.is_empty() && !self.is_flushing;
        self.is_flushing |= is_due;
        is_due
    }

    /// All that are collected. While items are awaited, only as many as fill whole calls.
    fn take(&mut self, most: usize) -> Vec<T> {
        self.is_flushing = false;
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

    /// The batch, which items were collected, which were loaded, and how often each item may still
    /// wait for another load.
    type Situation = (BatchState<usize>, [bool; ITEMS], [bool; ITEMS], [u8; ITEMS]);

    /// Everything that may happen next: an item changes its state, or a flush takes the collected
    /// ones.
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
        if state.is_flushing {
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
                is_flushing: false,
            };
            let mut open = vec![(state, [false; ITEMS], [false; ITEMS], [2; ITEMS])];
            let mut seen: HashSet<Situation> = open.iter().cloned().collect();
            while let Some(situation) = open.pop() {
                let (state, collected, loaded, _) = &situation;
                let awaited = state.items.iter().filter(|it| **it == ItemState::Awaited).count();
                assert_eq!(state.awaited, awaited, "{situation:?}");
                let is_stuck = !state.collected.is_empty() && !state.is_flushing;
                assert!(!is_stuck || awaited > 0, "no item is awaited: {situation:?}");
                let next = successors(&situation, most);
                assert!(!next.is_empty() || collected == loaded, "{situation:?}");
                open.extend(next.into_iter().filter(|situation| seen.insert(situation.clone())));
            }
            println!("{} states of batches of at most {most}", seen.len());
        }
    }
}
