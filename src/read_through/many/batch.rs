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
use std::sync::{Arc, Mutex, Weak};

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tracing::{Instrument, Span};

use super::answers::BatchResponse;
use super::error::ItemError;
use crate::box_future::BoxFuture;
use crate::error::BoxError;
use crate::flight::{Phase, PhaseListener};
use crate::locked::locked;
use crate::read_through::error_rules::ErrorRules;
use crate::read_through::load::in_load;
use crate::read_through::load_group::LoadGroup;

/// The requests that are loaded together.
pub(super) struct Batch<Req, T> {
    load: Box<LoadItems<Req, T>>,
    /// The span in which the batch was asked for.
    span: Span,
    /// Locked for a few operations, never across an `.await`. No code of the program runs under the
    /// lock.
    state: Mutex<BatchState<Collected<Req, T>>>,
    /// In which items get the permit of the next call.
    pub(super) group: Arc<LoadGroup>,
}

/// A call of the loader: gives an outcome for each request.
type LoadItems<Req, T> =
    dyn Fn(Vec<Req>) -> BoxFuture<'static, Vec<Result<T, ItemError>>> + Send + Sync;

/// A request to be loaded, and the channel to its caller.
type Collected<Req, T> = (Req, oneshot::Sender<Result<T, ItemError>>);

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

impl<Req: Send + 'static, T: Send + 'static> Batch<Req, T> {
    pub(super) fn new<F, L, A, E>(load: F, items: usize, rules: ErrorRules) -> Arc<Self>
    where
        Req: Clone,
        F: FnOnce(Vec<Req>) -> L + Clone + Send + 'static,
        L: Future<Output = Result<A, E>> + Send + 'static,
        A: BatchResponse<Req, E, Answer = T>,
        E: Into<BoxError> + Send + Sync + 'static,
    {
        let items = vec![ItemState::Undecided; items];
        let state = BatchState { items, awaited: 0, collected: Vec::new(), is_flushing: false };
        // Locked only to clone it.
        let load = Mutex::new(load);
        let load = move |requests: Vec<Req>| {
            let load = locked(&load).clone();
            let (asked, rules) = (requests.len(), rules.clone());
            let loading = async move { Ok(load(requests.clone()).await?.in_order(&requests)) };
            let loaded = AssertUnwindSafe(in_load(loading)).catch_unwind();
            loaded.map(move |loaded| ItemError::each(loaded, asked, &rules)).boxed()
        };
        let state = Mutex::new(state);
        Arc::new_cyclic(|batch: &Weak<Self>| {
            let batch = Weak::clone(batch);
            let admit = |batch: Arc<Self>| locked(&batch.state).admit();
            let group = LoadGroup::new(move || batch.upgrade().into_iter().for_each(admit));
            Self { load: Box::new(load), span: Span::current(), state, group }
        })
    }

    /// Notes the state of an item.
    fn enter(self: &Arc<Self>, item: usize, state: ItemState) {
        let is_due = locked(&self.state).enter(item, state);
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
                let lost = locked(&self.state).take();
                drop(lost);
            }
        }
    }

    /// Takes the collected requests and calls the loader for them. It yields once, so that requests that
    /// are collected at the same moment go into the same call. If its runtime goes down before that, the
    /// requests are dropped with the last of their items.
    async fn flush(self: Arc<Self>) {
        yield_now().await;
        let mut taken = locked(&self.state).take();
        if taken.is_empty() {
            return;
        }
        self.group.close();
        // No call for callers that have left.
        taken.retain(|(_, caller)| !caller.is_closed());
        if !taken.is_empty() {
            let (requests, callers): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
            answer(callers, (self.load)(requests)).await;
        }
    }
}

impl<T> BatchState<T> {
    /// Returns whether a flush is due now.
    fn enter(&mut self, item: usize, state: ItemState) -> bool {
        match (self.items[item], state) {
            (ItemState::Gone, _) | (ItemState::Awaited, ItemState::Undecided) => return false,
            (ItemState::Awaited, _) => self.awaited -= 1,
            _ => {}
        }
        self.items[item] = state;
        self.flush_is_due()
    }

    /// The group has its permit: its items go on, and into the call for which others are collected.
    fn admit(&mut self) {
        let queueing = self.items.iter_mut().filter(|item| **item == ItemState::Queueing);
        queueing.for_each(|item| *item = ItemState::Undecided);
        if !self.collected.is_empty() {
            self.await_undecided();
        }
    }

    /// Returns whether a flush is due now.
    fn collect(&mut self, item: usize, collected: T) -> bool {
        let is_first = self.collected.is_empty();
        self.collected.push(collected);
        if mem::replace(&mut self.items[item], ItemState::Gone) == ItemState::Awaited {
            self.awaited -= 1;
        }
        if is_first {
            self.await_undecided();
        }
        self.flush_is_due()
    }

    fn await_undecided(&mut self) {
        for item in self.items.iter_mut().filter(|item| **item == ItemState::Undecided) {
            *item = ItemState::Awaited;
            self.awaited += 1;
        }
    }

    fn flush_is_due(&mut self) -> bool {
        let is_due = self.awaited == 0 && !self.collected.is_empty() && !self.is_flushing;
        self.is_flushing |= is_due;
        is_due
    }

    /// All that are collected, unless items are awaited again.
    fn take(&mut self) -> Vec<T> {
        self.is_flushing = false;
        if self.awaited == 0 { mem::take(&mut self.collected) } else { Vec::new() }
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
pub(super) struct ItemSlot<Req: Send + 'static, T: Send + 'static> {
    batch: Arc<Batch<Req, T>>,
    number: usize,
}

impl<Req: Send + 'static, T: Send + 'static> ItemSlot<Req, T> {
    pub(super) fn new(batch: &Arc<Batch<Req, T>>, number: usize) -> Arc<Self> {
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

    /// Loads the answer: collects the request for the next flush.
    pub(super) fn ask(&self, request: Req) -> BoxFuture<'static, Result<T, ItemError>> {
        let (caller, answered) = oneshot::channel();
        let is_due = locked(&self.batch.state).collect(self.number, (request, caller));
        self.batch.flush_if(is_due);
        async move {
            match answered.await {
                Ok(Err(error)) if error.is_panic() => resume_unwind(Box::new("the batch panicked")),
                Ok(outcome) => outcome,
                Err(_) => Err(ItemError::lost()),
            }
        }
        .boxed()
    }
}

impl<Req: Send + 'static, T: Send + 'static> Drop for ItemSlot<Req, T> {
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
    fn successors(situation: &Situation) -> Vec<Situation> {
        let (state, ..) = situation;
        let mut next = vec![];
        for item in (0..ITEMS).filter(|item| state.items[*item] != ItemState::Gone) {
            for to in [ItemState::Undecided, ItemState::Waiting, ItemState::Gone] {
                let (mut state, collected, loaded, mut waits) = situation.clone();
                let is_wait = to == ItemState::Waiting;
                if state.items[item] != to && (!is_wait || waits[item] > 0) {
                    waits[item] -= u8::from(is_wait);
                    state.enter(item, to);
                    next.push((state, collected, loaded, waits));
                }
            }
            let (mut state, mut collected, loaded, waits) = situation.clone();
            if state.items[item] != ItemState::Waiting {
                state.collect(item, item);
                collected[item] = true;
                next.push((state, collected, loaded, waits));
            }
        }
        if state.is_flushing {
            let (mut state, collected, mut loaded, waits) = situation.clone();
            for item in state.take() {
                assert!(!mem::replace(&mut loaded[item], true), "{item} is loaded twice");
            }
            next.push((state, collected, loaded, waits));
        }
        next
    }

    #[test]
    fn each_item_that_is_collected_is_loaded_once_whatever_the_others_do() {
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
            let next = successors(&situation);
            assert!(!next.is_empty() || collected == loaded, "{situation:?}");
            open.extend(next.into_iter().filter(|situation| seen.insert(situation.clone())));
        }
        println!("{} states of batches", seen.len());
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
        let batch = Batch::new(load, 2, ErrorRules::default());
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
