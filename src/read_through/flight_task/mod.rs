//! The task of a flight: performs what [`step::next`] decides.

mod accounting;
mod asking;
mod loading;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};
use tower::Service;
use tracing::{Instrument, Span};

use super::core::Core;
use super::fallback::StaleFallback;
use super::job::LentJob;
use super::orphaned::OrphanGuard;
use super::outcome::Outcome;
use super::step::{self, LeaseHold, Memory, Payload, Step, To, WaiterAction};
use crate::codec::Codec;
use crate::error::{BoxError, StoreError};
use crate::flight::{Generation, Leader, Phase};
use crate::jitter::jitter;
use crate::policy::Backoff;
use crate::stats::{LoadReason, WakeEvent};
use crate::store::{Accept, Claim, Draft, Failure, Lease, OtherLease, Watch};
use crate::tag::Tags;
use crate::trace::CallerSpan;

/// One flight, from the side of its task. What it learns about its key is in the protocol's state.
pub(crate) struct FlightTask<S, Req, C> {
    /// Before the leader, whose drop wakes waiters: one of them releases the lease.
    orphan: OrphanGuard,
    core: Arc<Core<C>>,
    leader: Leader<Outcome>,
    job: LentJob<S, Req>,
    claim: Claim,
    watch: Watch,
    backoff: Backoff,
    purpose: Purpose,
    /// Set while no caller waits for the load: why it loads.
    background: Option<LoadReason>,
    /// Its last wait was ended by a pause, and is not counted yet: what the store says next tells
    /// whether a push was missed.
    has_paused: bool,
    /// The span of the caller that opened the flight. A flight in the background keeps it until it
    /// loads or waits, since the load follows from it.
    opener: CallerSpan,
}

/// What the protocol carries in a running flight.
struct Carried;

impl Payload for Carried {
    type Outcome = Outcome;
    type Generation = Generation;
    type Accept = Accept;
    type Lease = GrantedLease;
    type Draft = PreparedDraft;
    type Failure = Failure;
    type Fallback = AskedFallback;
    type Other = OtherLease;
    type Span = Duration;
    type Moment = Instant;
}

type TaskState = step::State<Carried>;
type TaskEvent = step::Event<Carried>;
type FlightMemory = Memory<Accept, AskedFallback>;
type FlightHold = LeaseHold<GrantedLease>;

/// A lease, and what the store said when it granted it.
struct GrantedLease {
    lease: Lease,
    /// When it was granted.
    at: Instant,
    /// How many loads in a row had failed before.
    failures: u32,
    /// The store has a value that a marker would replace, or a failure that a marker would end.
    replaces: bool,
}

/// What a commit stores, and whether that is the value itself.
struct PreparedDraft {
    draft: Draft,
    is_kept: bool,
}

/// A stale fallback, and the generation of the request that found it. Later waiters must not get it.
type AskedFallback = (Generation, StaleFallback);

/// What a flight is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// To answer its waiters.
    Answer,
    /// To replace the stored entry and answer its waiters with the new one: a forced refresh.
    ForceRefresh,
    /// To replace an entry in the background: no caller waits for it.
    Refresh(Accept),
}

impl Purpose {
    fn memory(self) -> FlightMemory {
        let accept = match self {
            Self::Answer => Accept::Fresh,
            Self::ForceRefresh => Accept::Nothing,
            Self::Refresh(accept) => accept,
        };
        Memory { accept, waited: false, fallback: None }
    }

    /// Why it loads, if it is for no caller.
    fn background(self) -> Option<LoadReason> {
        match self {
            Self::Answer | Self::ForceRefresh => None,
            Self::Refresh(Accept::Fresh) => Some(LoadReason::Revalidation),
            Self::Refresh(_) => Some(LoadReason::Early),
        }
    }

    fn is_forced(self) -> bool {
        matches!(self, Self::ForceRefresh)
    }
}

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    C: Codec<S::Response>,
{
    pub(crate) fn new(
        core: Arc<Core<C>>,
        leader: Leader<Outcome>,
        job: LentJob<S, Req>,
        purpose: Purpose,
        tags: Tags,
        opener: CallerSpan,
    ) -> Self {
        let key = leader.key();
        // Before the first request: a change between its answer and the watch would be missed.
        let watch = core.store.watch(key);
        let backoff = core.policy.backoff(!watch.is_silent());
        let claim = Claim::new(key.clone()).tagged(tags).traced(opener.trace_parent());
        let background = purpose.background();
        let has_paused = false;
        let orphan = core.loads.orphaned.guard(&claim, core.policy.lease);
        Self {
            orphan,
            core,
            leader,
            job,
            claim,
            watch,
            backoff,
            purpose,
            background,
            has_paused,
            opener,
        }
    }

    /// Runs the protocol until the flight is closed.
    ///
    /// # Cancel safety
    /// If it is dropped, as when the runtime shuts down, the remaining waiters ask again, and the
    /// next flight of the key releases the lease.
    pub(crate) async fn run(self) {
        let memory = self.purpose.memory();
        for claim in self.core.loads.orphaned.take(self.leader.key()) {
            self.abandon(claim).await;
        }
        self.gather().await;
        self.work(TaskState::Acquiring { memory }).await;
    }

    /// Lets the callers join that are about to run, as those of a burst are: the answer to the first
    /// request is for them then, and they cost no other one. A runtime of one thread runs them before
    /// this task anyway.
    async fn gather(&self) {
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            return;
        }
        for _ in 0..MOST_YIELDS {
            let callers = self.leader.callers();
            yield_now().await;
            if self.leader.callers() == callers {
                break;
            }
        }
    }

    /// The same, after a lookup that failed.
    pub(crate) async fn run_after(self, error: StoreError) {
        let failed = self.store_failed(self.purpose.memory(), &error, LeaseHold::StoreDown);
        let begin = self.take(step::next(failed));
        self.work(begin).await;
    }

    async fn work(mut self, begin: TaskState) {
        let mut state = begin;
        loop {
            let span = self.span();
            let Some(event) = self.perform(state).instrument(span).await else { break };
            self.count(&event);
            state = self.take(step::next(event));
        }
        self.orphan.disarm();
        self.core.statistics.flight(self.leader.callers());
    }

    /// The span in which it runs: that of its opener, but none in the background. Otherwise the span
    /// of a request that has its answer would go on.
    fn span(&self) -> Span {
        if self.background.is_some() { Span::none() } else { self.opener.span() }
    }

    /// Performs the actions of a step, and returns the next state.
    fn take(&self, step: Step<Carried>) -> TaskState {
        let Step { actions, state } = step;
        actions.into_iter().for_each(|action| self.act(action));
        state
    }

    fn act(&self, action: WaiterAction<Carried>) {
        match action {
            WaiterAction::Complete(To::Before(generation), outcome) => {
                self.leader.complete_before(generation, &outcome);
            }
            WaiterAction::Complete(To::All, outcome) => self.leader.complete_all(&outcome),
            WaiterAction::Complete(To::Opener, outcome) => self.leader.complete_opener(&outcome),
            WaiterAction::SetFallback(asked, stale) => {
                self.leader.set_fallback(asked, stale);
                self.leader.let_callers_look_up();
                self.leader.complete_late(asked, &Outcome::LookUp);
            }
            WaiterAction::Detach(asked) => {
                self.leader.run_in_the_background();
                self.leader.complete_late(asked, &Outcome::LookUp);
            }
            WaiterAction::Release => self.leader.complete_all(&Outcome::PrivateKey),
            WaiterAction::ReleaseAtClose => self.leader.close_with(Outcome::PrivateOnce),
        }
    }

    /// Performs a state until the event that ends it. `None` for the last state.
    async fn perform(&mut self, state: TaskState) -> Option<TaskEvent> {
        Some(match state {
            TaskState::Acquiring { memory } => self.acquire(memory).await,
            TaskState::LookingUp { late, memory } => self.look_up(late, memory).await,
            TaskState::Waiting { asked, other, left, memory } => {
                self.wait(asked, &other, left, memory).await
            }
            TaskState::Loading { hold, meanwhile, memory } => {
                self.load(hold, meanwhile, memory).await
            }
            TaskState::Committing { lease, draft, began, outcome, memory } => {
                self.commit(lease, draft, began, outcome, memory).await
            }
            TaskState::Marking { lease, marker } => self.mark(lease, marker).await,
            TaskState::Reporting { lease, failure } => self.report(lease, failure).await,
            TaskState::Releasing { lease } => self.release(lease).await,
            TaskState::CoolingDown { failure, until, hold } => {
                match self.cool_down(until, false).await {
                    CooldownEnd::Joined => TaskEvent::JoinedCooldown { failure, until, hold },
                    CooldownEnd::Over => TaskEvent::CooldownEnded { hold },
                }
            }
            TaskState::CoolingDownStale { until, memory } => {
                match self.cool_down(until, true).await {
                    CooldownEnd::Joined => TaskEvent::JoinedCooldownStale { memory },
                    CooldownEnd::Over => TaskEvent::CooldownEnded { hold: LeaseHold::Nothing },
                }
            }
            TaskState::Closed => return None,
        })
    }

    /// Waits for a message, for a change of the key, for a delay, or until the last waiter leaves:
    /// then there is no reason to wait for the load of another process. A message is a change, and may
    /// have the value. It answers this flight if it is about the lease that the last request found: see
    /// [`Told`](step::Event::Told).
    async fn wait(
        &mut self,
        asked: Generation,
        other: &OtherLease,
        left: Duration,
        memory: FlightMemory,
    ) -> TaskEvent {
        if self.background.is_some() {
            self.opener = CallerSpan::default();
        }
        self.leader.wait_for_lease(left);
        let delay = self.backoff.next(jitter(), left);
        let memory = Memory { waited: true, ..memory };
        let statistics = &self.core.statistics;
        tokio::select! {
            // In this order: a task that runs late finds both, and the push came first.
            biased;
            entry = self.watch.changed() => {
                statistics.wake(WakeEvent::Push);
                if let Some(entry) = entry.filter(|entry| other.has_stored(entry)) {
                    return self.told(asked, &entry, memory);
                }
            }
            () = self.leader.abandoned() => {
                statistics.wake(WakeEvent::Abandoned);
                return TaskEvent::Abandoned;
            }
            () = sleep(delay) => self.has_paused = true,
        }
        TaskEvent::Waited { memory }
    }

    /// Waits for a change of the key, for the end of a cooldown, or for a waiter that has no
    /// answer.
    async fn cool_down(&mut self, until: Instant, with_stale: bool) -> CooldownEnd {
        self.leader.enter(Phase::CoolingDown);
        tokio::select! {
            _ = self.watch.changed() => CooldownEnd::Over,
            () = sleep_until(until) => CooldownEnd::Over,
            () = self.leader.joined(with_stale) => CooldownEnd::Joined,
        }
    }
}

/// Why a wait in a cooldown has ended.
enum CooldownEnd {
    /// A waiter has joined.
    Joined,
    /// The time is over, or the key has changed.
    Over,
}

/// How often a flight lets others run before its first request, while more callers join.
const MOST_YIELDS: u32 = 32;

/// After this time at most, a flight in a cooldown asks the store again, in case it missed a
/// change.
const LONGEST_COOLDOWN: Duration = Duration::from_secs(1);
