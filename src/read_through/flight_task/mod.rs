//! The task of a flight: performs what [`step::next`] decides.

mod loading;
mod queueing;
mod scope;

use std::fmt::Display;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) use self::scope::Purpose;

use self::loading::{FlightLoad, Settling};
use self::queueing::{LoadAdmission, Queueing};
use self::scope::{Carried, FlightHold, Scope, TaskEvent, TaskState};
use super::core::Core;
use super::load::{LentJob, Loader};
use super::load_group::GroupOfItem;
use super::outcome::Outcome;
use super::remembered::OrphanGuard;
use super::step::{self, AnswerOf, LeaseHold, Share, Step, WaiterAction};
use crate::codec::Codec;
use crate::error::StoreError;
use crate::flight::{Generation, Leader, Phase};
use crate::jitter::jitter;
use crate::policy::Backoff;
use crate::stats::{LoadReason, RefreshEvent, Statistics, WakeEvent};
use crate::store::{Claim, OtherLease, Watch};
use crate::tag::Tags;
use crate::trace::{CallerSpan, WaitingSpan};

/// One flight, from the side of its task. What it learns about its key is in the protocol's state.
pub(crate) struct FlightTask<S, Req, C> {
    /// Before the leader, whose drop wakes waiters: one of them releases the lease.
    orphan: OrphanGuard,
    scope: Scope<S, Req, C>,
    watch: Watch,
    backoff: Backoff,
    /// Since when it waits without a message.
    unheard_since: Option<Instant>,
    /// How long its last request took.
    took: Duration,
    /// Set while no caller waits for the load: why it loads.
    background: Option<LoadReason>,
    /// Its last wait was ended by a pause, and is not counted yet: what the store says next tells
    /// whether a push was missed.
    has_paused: bool,
    opener: FlightOpener,
    /// The span in which its opener waits.
    waits: WaitingSpan,
    /// Set from when it may load until it has.
    admission: Option<LoadAdmission>,
    /// The store has been looked at for what the callers may have while it queues.
    has_looked: bool,
}

/// The caller that opens a flight.
pub(crate) struct FlightOpener {
    /// The span in which it waits. Only a flight in the background keeps it, until it loads or waits, since the
    /// load follows from it.
    pub(crate) span: CallerSpan,
    /// That of its caller, of which the load is a child.
    pub(crate) around: WaitingSpan,
    /// It has just read the store, and found nothing usable.
    pub(crate) has_looked_up: bool,
    /// It is an item of a batch.
    pub(crate) group_of: Option<GroupOfItem>,
}

impl<S: Loader<Req>, Req, C: Codec<S::Response>> FlightTask<S, Req, C> {
    pub(crate) fn new(
        core: Arc<Core<C>>,
        leader: Leader<Outcome>,
        job: LentJob<S, Req>,
        purpose: Purpose,
        tags: Tags,
        mut opener: FlightOpener,
    ) -> Self {
        let key = leader.key();
        // Before the first request: a change between its answer and the watch would be missed.
        let (watch, serves_stored) = (core.store.watch(key), core.policy.serves_stored());
        let claim = Claim::new(key.clone()).tagged(tags).traced(opener.span.trace_parent());
        let (waits, background) = (opener.span.while_it_waits(), purpose.background());
        if background.is_none() {
            opener.span = CallerSpan::default();
        }
        Self {
            orphan: core.loads.orphaned.guard(&claim, core.policy.lease),
            backoff: core.policy.backoff(!watch.is_silent()),
            scope: Scope { core, leader, job, claim, purpose, memory: purpose.memory() },
            watch,
            unheard_since: None,
            took: Duration::ZERO,
            background,
            has_paused: false,
            opener,
            waits,
            admission: None,
            // A refresh has read the entry that it replaces, and a forced one has no use for it.
            has_looked: purpose != Purpose::Answer || !serves_stored,
        }
    }

    /// Runs the protocol until the flight is closed; after a lookup that failed, if one has.
    ///
    /// # Cancel safety
    /// If it is dropped, as when the runtime shuts down, the remaining waiters ask again, and the
    /// next flight of the key releases the lease.
    pub(crate) async fn run(mut self, failed: Option<StoreError>) {
        let signs_of_life = self.scope.leader.signs_of_life();
        tokio::select! {
            biased;
            () = self.follow_protocol(failed) => {}
            never = signs_of_life => match never {},
        }
        self.orphan.disarm();
        if self.scope.purpose != Purpose::Uncached {
            self.scope.core.statistics.flight(self.scope.leader.callers());
        }
    }

    async fn follow_protocol(&mut self, failed: Option<StoreError>) {
        let mut state = match (self.scope.purpose, failed) {
            (Purpose::Uncached, _) => self.take(TaskEvent::WaitRanOut),
            (_, Some(error)) => self.take(self.scope.store_failed(&error, LeaseHold::NotAsked)),
            (_, None) => {
                self.gather().await;
                // Its only caller has read the store a moment ago.
                self.has_looked |= self.opener.has_looked_up && self.scope.leader.callers() == 1;
                TaskState::Acquiring
            }
        };
        loop {
            let span = self.span(&state);
            let Some(event) = span.instrument(self.perform(state)).await else { break };
            self.count(&event);
            state = self.take(event);
            let keeps_admission = match state {
                TaskState::Loading { .. } => true,
                TaskState::Acquiring => self.background.is_none(),
                _ => false,
            };
            self.admission = self.admission.take().filter(|_| keeps_admission);
        }
    }

    /// Releases what earlier flights of the key have left. Then lets the callers join that are about to
    /// run, as those of a burst are: the answer to the first request is for them then, and they cost no
    /// other one. A runtime of one thread runs them before this task anyway.
    async fn gather(&self) {
        let Scope { core, leader, .. } = &self.scope;
        for claim in core.loads.orphaned.take(leader.key()) {
            core.abandon(claim).await;
        }
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            return;
        }
        for _ in 0..MOST_YIELDS {
            let callers = leader.callers();
            yield_now().await;
            if leader.callers() == callers {
                break;
            }
        }
    }

    /// The span in which it runs: that of its opener, and around that while it loads, but none in the
    /// background. Otherwise the span of a request that has its answer would go on.
    fn span(&self, state: &TaskState) -> WaitingSpan {
        match state {
            _ if self.background.is_some() => WaitingSpan::default(),
            TaskState::Loading { .. } => self.opener.around.clone(),
            _ => self.waits.clone(),
        }
    }

    /// Performs the actions after an event, and returns the next state.
    fn take(&mut self, event: TaskEvent) -> TaskState {
        let is_fresh = matches!(event, TaskEvent::Found { .. });
        let Step { actions, state } = step::next(event, &mut self.scope.memory);
        actions.into_iter().for_each(|action| self.act(action, is_fresh));
        state
    }

    /// Performs an action. `is_fresh`: the store has given a fresh answer.
    fn act(&mut self, action: WaiterAction<Carried>, is_fresh: bool) {
        let leader = &self.scope.leader;
        match action {
            WaiterAction::Complete(to, outcome) => {
                leader.complete(|joined, opener| to.is_for(&joined, opener), outcome);
            }
            WaiterAction::SetFallback(asked, stale) => {
                leader.set_fallback(asked, stale);
                leader.complete(|joined, _| joined >= asked, Outcome::LookUp);
            }
            WaiterAction::Detach(asked) => {
                leader.run_in_the_background();
                leader.complete(|joined, _| joined >= asked, Outcome::LookUp);
                // With an answer for every caller, the load is for none.
                if is_fresh || self.background.is_none() {
                    let stale = LoadReason::Revalidation;
                    self.background = Some(if is_fresh { LoadReason::Early } else { stale });
                    self.opener.span = self.waits.get();
                }
            }
            WaiterAction::Release => leader.complete(|_, _| true, Outcome::PrivateKey),
            WaiterAction::ReleaseAtClose => leader.close_with(Outcome::PrivateOnce),
        }
    }

    /// Performs a state until the event that ends it. `None` for the last state.
    async fn perform(&mut self, state: TaskState) -> Option<TaskEvent> {
        let scope = &self.scope;
        Some(match state {
            TaskState::Acquiring => self.acquire().await,
            TaskState::LookingUp { late } => scope.look_up(late).await,
            TaskState::Waiting { asked, other: (it, left) } => self.wait(asked, &it, left).await,
            TaskState::Loading { hold, meanwhile } => {
                let cause = (self.load_reason(&hold), self.trigger());
                let admission = self.admission.take();
                let (scope, queueing) = (&self.scope, self.queueing());
                let load = FlightLoad { scope, hold: &hold, queueing };
                match load.run(admission, cause, meanwhile).await {
                    Some(answer) => TaskEvent::LoadEnded { hold, answer },
                    None => TaskEvent::NotLoaded { hold },
                }
            }
            TaskState::Committing { lease, draft, began, outcome } => {
                Settling(scope).commit(lease, draft, began, outcome).await
            }
            TaskState::Releasing { lease, record } => Settling(scope).release(lease, record).await,
            TaskState::CoolingDown { failure, until, hold } => {
                match self.cool_down(until, failure.is_none()).await {
                    true => TaskEvent::JoinedCooldown { failure, until, hold },
                    false => TaskEvent::CooldownEnded { hold },
                }
            }
            TaskState::Closed => return None,
        })
    }

    /// Asks for the entry or the lease, once it may load: a flight in the queue has no lease, and costs the
    /// store nothing.
    async fn acquire(&mut self) -> TaskEvent {
        if self.admission.is_none() {
            self.admission = self.queueing().at_once();
        }
        if self.admission.is_none() && !mem::replace(&mut self.has_looked, true) {
            return self.scope.look_before_the_queue().await;
        }
        if self.admission.is_none() {
            self.admission = self.queueing().wait().await;
        }
        if self.admission.is_none() {
            return TaskEvent::Abandoned;
        }
        let asked_at = Instant::now();
        let event = self.scope.acquire().await;
        self.took = asked_at.elapsed();
        event
    }

    fn queueing(&self) -> Queueing<'_> {
        let Scope { core, leader, memory, .. } = &self.scope;
        let (bound, group_of) = (core.loads.bound.as_ref(), self.opener.group_of.as_ref());
        Queueing { leader, bound, group_of, has_waited: memory.waited }
    }

    /// Waits for a message, for a change of the key, for a delay, or until the last waiter leaves:
    /// then there is no reason to wait for the load of another process. A message is a change, and may
    /// have the value. It answers this flight if it is about the lease that the last request found: see
    /// [`Told`](step::Event::Told).
    async fn wait(&mut self, asked: Generation, other: &OtherLease, left: Duration) -> TaskEvent {
        if self.background.is_some() {
            self.opener.span = CallerSpan::default();
        }
        self.scope.memory.waited = true;
        let Scope { core, leader, .. } = &self.scope;
        leader.enter(Phase::Waiting);
        let waited = self.unheard_since.get_or_insert_with(Instant::now).elapsed();
        // Not the same thing at once from a store that is busy.
        let delay = self.backoff.next(jitter(), left, waited.max(self.took * BUSY));
        // By its next request the other process may have stored its answer.
        self.has_looked = false;
        let statistics = &core.statistics;
        tokio::select! {
            // In this order: a task that runs late finds both, and the push came first.
            biased;
            entry = self.watch.changed() => {
                statistics.wake(WakeEvent::Push);
                // It may have been the end of the connection for messages.
                self.unheard_since = None;
                if let Some(entry) = entry.filter(|entry| other.has_stored(entry)) {
                    return self.scope.told(asked, &entry);
                }
            }
            () = leader.abandoned() => {
                statistics.wake(WakeEvent::Abandoned);
                return TaskEvent::Abandoned;
            }
            () = sleep(delay) => self.has_paused = true,
        }
        TaskEvent::Waited
    }

    /// Waits for a change of the key or for the end of a cooldown; or for a waiter that has no
    /// answer, which is `true`.
    async fn cool_down(&mut self, until: Instant, with_stale: bool) -> bool {
        let leader = &self.scope.leader;
        leader.enter(Phase::CoolingDown);
        tokio::select! {
            biased;
            _ = self.watch.changed() => false,
            () = sleep_until(until) => false,
            () = leader.joined(with_stale) => true,
        }
    }

    /// Counts an event of the protocol.
    fn count(&mut self, event: &TaskEvent) {
        self.count_pause(event);
        let TaskEvent::LoadEnded { answer, .. } = event else { return };
        self.scope.compare_shadow(answer);
        if self.background.is_none() {
            return;
        }
        let Scope { core, leader, .. } = &self.scope;
        let has_failed = has_failed(answer);
        let event = if has_failed { RefreshEvent::Failed } else { RefreshEvent::Succeeded };
        core.statistics.refresh(event);
        if has_failed {
            let why = ["a refresh in the background failed", ""];
            let (key, error) = (leader.key(), error(&answer.outcome));
            core.statistics.warn(Statistics::NOW_AND_THEN, why, Some(key), Some(error));
        }
    }

    /// Counts a wait that a pause ended, when the store has said what became of the load.
    fn count_pause(&mut self, event: &TaskEvent) {
        let is_of_the_wait = matches!(event, TaskEvent::Waited);
        if is_of_the_wait || !mem::take(&mut self.has_paused) {
            return;
        }
        let goes_on = matches!(
            event,
            TaskEvent::Busy { .. } | TaskEvent::Granted { .. } | TaskEvent::StoreFailed { .. }
        );
        let watch = &self.watch;
        let is_reported = !watch.is_silent() || watch.is_interrupted();
        let wake = match !goes_on && is_reported {
            // It came just after the pause.
            true if watch.has_changed() => WakeEvent::Push,
            true => WakeEvent::MissedPush,
            false => WakeEvent::Pause,
        };
        self.scope.core.statistics.wake(wake);
    }

    /// Why it loads.
    fn load_reason(&self, hold: &FlightHold) -> LoadReason {
        match (hold, self.background, self.scope.purpose) {
            (_, _, Purpose::Uncached) => LoadReason::WaitRanOut,
            (LeaseHold::Nothing, ..) if !self.scope.core.policy.serves_stored() => {
                LoadReason::Disabled
            }
            (LeaseHold::Nothing, ..) => LoadReason::Private,
            (LeaseHold::NotAsked | LeaseHold::Unacknowledged, ..) => LoadReason::StoreFailed,
            (LeaseHold::Lease(lease), ..) if !lease.is_shared() => LoadReason::StoreFailed,
            (LeaseHold::Lease(_), Some(background), _) => background,
            (LeaseHold::Lease(_), None, Purpose::ForceRefresh) => LoadReason::Forced,
            (LeaseHold::Lease(_), None, _) => LoadReason::Miss,
        }
    }

    /// What a load in the background follows from; or what follows from another load, unless that is its child.
    fn trigger(&mut self) -> CallerSpan {
        match self.background {
            Some(_) => mem::take(&mut self.opener.span),
            None => self.waits.get().other_than(&self.opener.around),
        }
    }
}

/// Whether a load has failed. A value counts as a failure, too, if the classifier takes it for one: then it is for
/// the opener alone until a second load confirms it, and for all callers after that.
fn has_failed(answer: &AnswerOf<Carried>) -> bool {
    let is_value = matches!(answer.outcome, Outcome::Value(..));
    !is_value || matches!(answer.share, Share::Opener | Share::All)
}

/// What a failed load says of itself.
fn error(outcome: &Outcome) -> &dyn Display {
    match outcome {
        Outcome::LoadFailed(error) => error,
        Outcome::Failed(error) => error,
        _ => &"the answer counts as a failure",
    }
}

/// A request that took long counts as a wait so many times as long. So the pause after it is four times as
/// long, and all waiters together take a fifth of what a store can do.
const BUSY: u32 = 16;

/// How often a flight lets others run before its first request, while more callers join.
const MOST_YIELDS: u32 = 32;
