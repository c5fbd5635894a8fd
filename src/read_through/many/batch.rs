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

use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tracing::{Instrument, Span};

use super::answers::BatchResponse;
use super::error::{each, lost};
use crate::box_future::BoxFuture;
use crate::error::{BoxError, CacheErrorKind, Error};
use crate::flight::{Phase, PhaseListener};
use crate::locked::locked;
use crate::read_through::load::in_load;
use crate::read_through::load_group::{GroupOfItem, LoadGroup};

/// The requests that are loaded together.
pub(super) struct Batch<Req, T, E> {
    load: Box<LoadItems<Req, T, E>>,
    /// The span in which the batch was asked for.
    span: Span,
    /// Locked for a few operations, never across an `.await`. No code of the program runs under the
    /// lock.
    state: Mutex<BatchState<Collected<Req, T, E>>>,
    /// Locked to give an item its group, never across an `.await`. Taken before the lock of the state.
    group: Mutex<OpenGroup>,
}

/// The group of the next call, while items may still enter it.
#[derive(Default)]
struct OpenGroup {
    number: usize,
    items: usize,
    /// `None`: the next item begins one.
    group: Option<Arc<LoadGroup>>,
}

/// How many requests one call gets at most: the longest `IN (..)` list that every common database
/// accepts. Further requests go into further calls, which run at the same time.
const MOST: usize = 1_000;

/// A call of the loader: gives an outcome for each request.
type LoadItems<Req, T, E> =
    dyn Fn(Vec<Req>) -> BoxFuture<'static, Vec<Result<T, Error<E>>>> + Send + Sync;

/// A request to be loaded, and the channel to its caller.
type Collected<Req, T, E> = (Req, oneshot::Sender<Result<T, Error<E>>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BatchState<T> {
    items: Vec<ItemState>,
    /// The last group of each item.
    groups: Vec<usize>,
    /// How many items are `Awaited`.
    awaited: usize,
    collected: Vec<T>,
    /// A flush is about to take the collected ones.
    is_flushing: bool,
}

/// The state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ItemState {
    /// Its request may be collected at any moment.
    Undecided,
    /// The same, and the flush waits for its decision.
    Awaited,
    /// It waits for the load of another caller, and may become undecided again.
    Waiting,
    /// It waits for a permit, with its group.
    Queueing,
    /// Its request was collected, or will never be.
    Gone,
}

impl<Req: Send + 'static, T: Send + 'static, E: 'static> Batch<Req, T, E> {
    pub(super) fn new<F, L, A>(load: F, items: usize) -> Arc<Self>
    where
        Req: Clone,
        F: FnOnce(Vec<Req>) -> L + Clone + Send + 'static,
        L: Future<Output = Result<A, E>> + Send + 'static,
        A: BatchResponse<Req, E, Answer = T>,
        E: Into<BoxError> + Send + Sync,
    {
        let items = vec![ItemState::Undecided; items];
        let groups = vec![0; items.len()];
        let state =
            BatchState { items, groups, awaited: 0, collected: Vec::new(), is_flushing: false };
        // Locked only to clone it.
        let load = Mutex::new(load);
        let load = move |requests: Vec<Req>| {
            let load = locked(&load).clone();
            let asked = requests.len();
            let loading = async move { Ok(load(requests.clone()).await?.in_order(&requests)) };
            let loaded = AssertUnwindSafe(in_load(loading)).catch_unwind();
            loaded.map(move |loaded| each(loaded, asked)).boxed()
        };
        let state = Mutex::new(state);
        let group = Mutex::default();
        Arc::new(Self { load: Box::new(load), span: Span::current(), state, group })
    }

    /// The group with which an item gets its permit. It takes no more items than go into one call.
    fn group_of(self: &Arc<Self>, item: usize) -> Arc<LoadGroup> {
        let open = &mut *locked(&self.group);
        let is_in = locked(&self.state).groups[item] == open.number;
        if open.items >= MOST && !is_in {
            open.group = None;
        }
        let number = if open.group.is_some() { open.number } else { open.number + 1 };
        let batch = Arc::downgrade(self);
        let group = open.group.get_or_insert_with(|| {
            (open.number, open.items) = (number, 0);
            LoadGroup::new(move || {
                let admit = |batch: Arc<Self>| locked(&batch.state).admit(number);
                batch.upgrade().into_iter().for_each(admit);
            })
        });
        let earlier = mem::replace(&mut locked(&self.state).groups[item], number);
        open.items += usize::from(earlier != number);
        Arc::clone(group)
    }

    /// Notes the state of an item.
    fn enter(self: &Arc<Self>, item: usize, state: ItemState) {
        let is_due = locked(&self.state).enter(item, state, MOST);
        self.flush_if(is_due);
    }

    /// Starts a flush if one is due. Without a runtime, the call is lost.
    fn flush_if(self: &Arc<Self>, is_due: bool) {
        match Handle::try_current() {
            _ if !is_due => {}
            Ok(runtime) => {
                runtime.spawn(Arc::clone(self).flush().instrument(self.span.clone()));
            }
            Err(_) => {
                let lost = locked(&self.state).take(1);
                drop(lost);
            }
        }
    }

    /// Takes the collected requests. If none is left, a group that has its permit takes no more items: they
    /// are for another call.
    fn take(&self) -> Vec<Collected<Req, T, E>> {
        let mut open = locked(&self.group);
        let mut state = locked(&self.state);
        let taken = state.take(MOST);
        let is_over =
            |group: &Arc<LoadGroup>| group.permit().is_some() && state.collected.is_empty();
        open.group = open.group.take().filter(|group| !is_over(group));
        taken
    }

    /// Takes the collected requests and calls the loader for them. It yields once, so that requests that
    /// are collected at the same moment go into the same call. If its runtime goes down before that, the
    /// requests are dropped with the last of their items.
    async fn flush(self: Arc<Self>) {
        yield_now().await;
        let mut taken = self.take();
        // No call for callers that have left.
        taken.retain(|(_, caller)| !caller.is_closed());
        while !taken.is_empty() {
            let rest = taken.split_off(taken.len().min(MOST));
            let (requests, callers): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
            tokio::spawn(answer(callers, (self.load)(requests)).in_current_span());
            taken = rest;
        }
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

    /// A group has its permit: its items go on, and into the call for which others are collected.
    fn admit(&mut self, group: usize) {
        let items = self.items.iter_mut().zip(&self.groups);
        let queueing = items.filter(|(item, of)| **item == ItemState::Queueing && **of == group);
        queueing.for_each(|(item, _)| *item = ItemState::Undecided);
        if !self.collected.is_empty() {
            self.await_undecided();
        }
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

/// One call of the loader: until it ends, or until its last caller has left.
async fn answer<T>(mut callers: Vec<oneshot::Sender<T>>, loading: BoxFuture<'static, Vec<T>>) {
    let all_gone = async {
        for caller in &mut callers {
            caller.closed().await;
        }
    };
    let outcomes = tokio::select! {
        biased;
        outcomes = loading => outcomes,
        () = all_gone => return,
    };
    for (caller, outcome) in callers.into_iter().zip(outcomes) {
        _ = caller.send(outcome);
    }
}

/// One request of a batch, shared by the clones of its loader. Dropping it tells the batch that no
/// request will come from here.
pub(super) struct ItemSlot<Req: Send + 'static, T: Send + 'static, E: 'static> {
    batch: Arc<Batch<Req, T, E>>,
    number: usize,
}

impl<Req: Send + 'static, T: Send + 'static, E: 'static> ItemSlot<Req, T, E> {
    pub(super) fn new(batch: &Arc<Batch<Req, T, E>>, number: usize) -> Arc<Self> {
        Arc::new(Self { batch: Arc::clone(batch), number })
    }

    /// Tells the batch the phases of this item's flight.
    pub(super) fn listener(&self) -> PhaseListener {
        // Holds no slot: dropping the last one means that no request will come from this item.
        let (batch, number) = (Arc::clone(&self.batch), self.number);
        Arc::new(move |phase| {
            let state = match phase {
                // Its request may be collected next.
                Phase::Asking | Phase::Loading => ItemState::Undecided,
                Phase::Waiting | Phase::CoolingDown => ItemState::Waiting,
                Phase::Queueing => ItemState::Queueing,
            };
            batch.enter(number, state);
        })
    }

    /// Gives this item its group.
    pub(super) fn group_of(&self) -> GroupOfItem {
        let (batch, number) = (Arc::clone(&self.batch), self.number);
        Arc::new(move || batch.group_of(number))
    }

    /// Loads the answer: collects the request for the next flush.
    pub(super) fn ask(&self, request: Req) -> BoxFuture<'static, Result<T, Error<E>>> {
        let (caller, answered) = oneshot::channel();
        let is_due = locked(&self.batch.state).collect(self.number, (request, caller), MOST);
        self.batch.flush_if(is_due);
        async move {
            match answered.await {
                Ok(Err(Error::Cache(it))) if it.kind() == CacheErrorKind::LoaderPanicked => {
                    resume_unwind(Box::new("the batch panicked"))
                }
                Ok(outcome) => outcome,
                Err(_) => Err(lost().into()),
            }
        }
        .boxed()
    }
}

impl<Req: Send + 'static, T: Send + 'static, E: 'static> Drop for ItemSlot<Req, T, E> {
    fn drop(&mut self) {
        self.batch.enter(self.number, ItemState::Gone);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::convert::Infallible;

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
                groups: vec![0; ITEMS],
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

    /// On this kind of runtime, the task that was spawned last runs first.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_flush_yields_so_that_a_request_of_the_same_moment_joins_its_call() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&calls);
        let load = move |requests: Vec<u64>| {
            noted.lock().unwrap().push(requests.clone());
            async move { Ok::<Vec<Result<_, Infallible>>, _>(requests.into_iter().map(Ok).collect()) }
        };
        let batch = Batch::new(load, 2);
        let items = [0, 1].map(|number| ItemSlot::new(&batch, number));
        (0..2).for_each(|number| batch.enter(number, ItemState::Waiting));
        let both = tokio::spawn(async move {
            items.map(|item| tokio::spawn(async move { item.ask(7).await.ok() }))
        });
        for answered in both.await.unwrap() {
            assert_eq!(answered.await.unwrap(), Some(7));
        }
        assert_eq!(*calls.lock().unwrap(), [[7, 7]]);
    }
}
