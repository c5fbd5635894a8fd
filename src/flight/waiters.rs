//! One flight: its waiters, their answers, and what its leader says of itself.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{mem, ptr};

use slab::Slab;
use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::task::{Id, try_id};
use tokio::time::Instant;

use crate::locked::locked;
use crate::tag::Tags;
use crate::trace::{CallerSpan, LoadTrace};

/// One flight: its waiters, and their answers. `L` is an outcome.
pub(super) struct Flight<L> {
    /// Guards the waiters and their answers: held for a few operations on them, never across an
    /// `.await`. Taken after the table's lock, never before it.
    pub(super) state: Mutex<FlightState<L>>,
    /// Notified when the last waiter leaves.
    pub(super) abandoned: Notify,
    /// Notified when a waiter joins: the leader may have an answer for it.
    pub(super) joined: Notify,
    /// Notified when its load is cancelled, because all callers have left it and its place is needed.
    pub(super) cancelled: Notify,
    /// Notified when a waiter asks its task for a sign of life.
    pub(super) pinged: Notify,
    /// The runtime of its task.
    pub(super) runtime: Option<runtime::Id>,
    pub(super) abandoned_loads: Arc<AbandonedLoads<L>>,
    /// How many flights its table has.
    pub(super) open: Arc<AtomicUsize>,
    /// What its requests to the store name.
    pub(super) tags: Tags,
    /// The last lone lookup of its shard that began before it was opened.
    pub(super) opened_after: u64,
}

/// What the lock of a flight guards.
pub(super) struct FlightState<L> {
    /// How many generations have begun.
    pub(super) generations: Generation,
    /// What the leader is doing. Waiters that fail fast need it.
    pub(super) phase: Phase,
    /// The leader was dropped: it completes no waiter any more.
    pub(super) closed: bool,
    /// The outcome for the waiters that remain when the flight closes.
    pub(super) closing: Option<Arc<L>>,
    /// Callers read the store themselves before they join: it has a stale answer.
    pub(super) has_stale: bool,
    /// The flight goes on without waiters.
    pub(super) in_background: bool,
    /// A load of this process runs, and goes on when all callers have left it.
    pub(super) load_goes_on: bool,
    /// The task of the load that runs.
    pub(super) task: Option<Id>,
    /// That load was listed as abandoned.
    pub(super) is_listed: bool,
    /// What the waiters that joined before a generation may have instead of waiting longer.
    pub(super) fallback: Option<(Generation, L)>,
    /// When the phase began.
    pub(super) since: Instant,
    /// When a waiter has asked its task for a sign of life, until the task gives one.
    pub(super) pinged: Option<Instant>,
    /// It loads without a permit: a load that may hold one waits for it.
    pub(super) passes: bool,
    /// The load that the waiters wait for, if it is traced.
    pub(super) load: Option<LoadTrace>,
    /// How many callers have joined so far.
    pub(super) callers: u64,
    pub(super) slots: Slab<WaiterSlot<L>>,
}

/// Separates the waiters that had joined before a request to the store from later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation(pub(super) u64);

/// What a flight knows of one waiter.
pub(super) struct WaiterSlot<L> {
    /// How many generations had begun when it joined. [`OF_OTHER_TAGS`] if its request has a tag
    /// that the flight has not: the flight misses invalidations of that tag, so no answer is for it.
    pub(super) joined: Generation,
    /// It is also woken when the phase changes.
    pub(super) fails_fast: bool,
    /// It opened the flight.
    pub(super) opener: bool,
    /// Its outcome, until the waiter fetches it. The first one counts. In an `Arc`, so that a
    /// waiter without an outcome needs no room for one.
    pub(super) answer: Option<Arc<L>>,
    pub(super) waker: Option<Waker>,
    /// The span in which it waits.
    pub(super) span: CallerSpan,
}

/// No generation: such a waiter asks again when the flight has ended.
pub(super) const OF_OTHER_TAGS: Generation = Generation(u64::MAX);

/// Called with each phase of a flight, while no lock is held.
pub(crate) type PhaseListener = Arc<dyn Fn(Phase) + Send + Sync>;

/// What a flight waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// An answer of the store.
    Asking,
    /// Another process, which has the lease.
    Waiting,
    /// The loader.
    Loading,
    /// A permit to load, because as many loads are under way as may be.
    Queueing,
    /// The end of a cooldown. It has an answer for each caller that joins.
    CoolingDown,
}

impl<L> Flight<L> {
    /// Lets callers look up, and the flight go on without waiters.
    pub(super) fn run_in_the_background(&self) {
        let mut state = locked(&self.state);
        state.has_stale = true;
        state.in_background = true;
    }

    /// Lists the load of this flight as abandoned, or takes it off the list, if that has changed.
    /// Gives the flight whose load is to be cancelled for it. No lock may be held then: it wakes a task.
    pub(super) fn relist(self: &Arc<Self>, state: &mut FlightState<L>) -> Option<Arc<Self>> {
        let is_abandoned = state.load_goes_on && state.slots.is_empty() && !state.in_background;
        match (mem::replace(&mut state.is_listed, is_abandoned), is_abandoned) {
            (false, true) => self.abandoned_loads.add(self),
            (true, false) => {
                self.abandoned_loads.remove(self);
                None
            }
            _ => None,
        }
    }
}

/// The flights of one layer whose loads all callers have left, oldest first. So many go on, and the
/// oldest is cancelled when there is one more, or when its place is needed.
pub(crate) struct AbandonedLoads<L> {
    most: usize,
    /// Held for an operation on the list, never across an `.await`. Taken last: after the lock of a
    /// shard or a flight.
    listed: Mutex<VecDeque<Arc<Flight<L>>>>,
}

impl<L> AbandonedLoads<L> {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, listed: Mutex::default() })
    }

    /// Lists a flight. Gives the oldest if there are too many.
    fn add(&self, flight: &Arc<Flight<L>>) -> Option<Arc<Flight<L>>> {
        let mut listed = locked(&self.listed);
        listed.push_back(Arc::clone(flight));
        (listed.len() > self.most).then(|| listed.pop_front()).flatten()
    }

    fn remove(&self, flight: &Flight<L>) {
        locked(&self.listed).retain(|listed| !ptr::eq(&**listed, flight));
    }

    /// Takes the oldest flight of the table with these flights off the list.
    pub(super) fn take_one_of(&self, open: &Arc<AtomicUsize>) -> Option<Arc<Flight<L>>> {
        let mut listed = locked(&self.listed);
        let oldest = listed.iter().position(|flight| Arc::ptr_eq(&flight.open, open))?;
        listed.remove(oldest)
    }
}

impl<L> FlightState<L> {
    pub(super) fn new() -> Self {
        Self {
            generations: Generation::default(),
            phase: Phase::Asking,
            closed: false,
            closing: None,
            has_stale: false,
            in_background: false,
            load_goes_on: false,
            task: None,
            is_listed: false,
            fallback: None,
            since: Instant::now(),
            pinged: None,
            passes: false,
            load: None,
            callers: 0,
            slots: Slab::new(),
        }
    }

    /// Callers read the store themselves before they join: it may have a usable answer. While the flight
    /// queues, another process may load.
    pub(super) fn callers_look_up(&self) -> bool {
        self.has_stale || self.phase == Phase::Queueing
    }

    /// The wakers of the slots that `of` picks.
    pub(super) fn take_wakers(&mut self, of: impl Fn(&WaiterSlot<L>) -> bool) -> Vec<Waker> {
        let slots = self.slots.iter_mut().map(|(_, slot)| slot);
        slots.filter(|slot| of(slot)).filter_map(|slot| slot.waker.take()).collect()
    }
}

/// A caller in a flight. Dropping it leaves the flight.
pub(crate) struct Waiter<L> {
    pub(super) flight: Arc<Flight<L>>,
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

    /// Lets the flight load without a permit. Otherwise the load that waits here could hold the permit for
    /// which the flight queues.
    pub(crate) fn let_pass(&self) {
        locked(&self.flight.state).passes = true;
        self.flight.joined.notify_one();
    }

    /// Asks the task of the flight for a sign of life, if it runs in another runtime: that may not be
    /// driven. Returns whether the task has left a waiter without one for this long.
    pub(crate) fn asks_in_vain(&self, patience: Duration) -> bool {
        let ours = Handle::try_current().ok().map(|runtime| runtime.id());
        if ours == self.flight.runtime {
            return false;
        }
        let since = *locked(&self.flight.state).pinged.get_or_insert_with(Instant::now);
        self.flight.pinged.notify_one();
        since.elapsed() >= patience
    }

    /// Whether the caller is the load that it waits for.
    pub(crate) fn is_own_load(&self) -> bool {
        let state = locked(&self.flight.state);
        state.phase == Phase::Loading && state.task.is_some() && state.task == try_id()
    }

    /// What it waits for, and how long that has lasted: as text for error messages.
    pub(crate) fn awaited(&self) -> String {
        let state = locked(&self.flight.state);
        let ran_for = state.since.elapsed();
        match state.phase {
            Phase::Loading if self.opener => format!("its load has run for {ran_for:?}"),
            Phase::Loading => format!("a load in this process has run for {ran_for:?}"),
            Phase::Queueing => "as many loads are under way as may be".to_owned(),
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

    /// Waits for an outcome, which is not older than this waiter. `None` if the leader was dropped and
    /// left none: then it reads the store again, and joins or opens a flight. The task that polled
    /// last is woken.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Arc<L>>> {
        let mut state = locked(&self.flight.state);
        let closed = state.closed;
        let closing = state.closing.clone().filter(|_| closed);
        let slot = &mut state.slots[self.slot];
        let answer = slot.answer.take().or(closing);
        if answer.is_some() || closed {
            return Poll::Ready(answer);
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => slot.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl<L: Clone> Waiter<L> {
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
