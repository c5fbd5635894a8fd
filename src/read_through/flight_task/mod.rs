//! The task of a flight: does what [`step::next`] says.

mod asking;
mod loading;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tower::Service;

use super::core::Core;
use super::load::Lent;
use super::outcome::Outcome;
use super::step::{self, Hold, Memory, Payload, Step, Tell, To};
use crate::codec::Codec;
use crate::error::StoreError;
use crate::flight::{Generation, Leader, Phase};
use crate::jitter::jitter;
use crate::policy::Backoff;
use crate::store::{Accept, Claim, Draft, Entry, Failure, Lease, Watch};

/// One flight, seen from its task. What it knows of its key is in its state, not here.
pub(crate) struct FlightTask<S, Req, C> {
    core: Arc<Core<C>>,
    leader: Leader<Outcome>,
    job: Lent<S, Req>,
    claim: Claim,
    watch: Watch,
    pauses: Backoff,
    purpose: Purpose,
}

/// What the protocol carries here.
struct Carried;

impl Payload for Carried {
    type Outcome = Outcome;
    type Generation = Generation;
    type Accept = Accept;
    type Lease = GrantedLease;
    type Draft = PreparedDraft;
    type Failure = Failure;
    type Fallback = StaleFallback;
    type Span = Duration;
    type Moment = Instant;
}

type State = step::State<Carried>;
type Event = step::Event<Carried>;
type FlightMemory = Memory<Accept, StaleFallback>;
type FlightHold = Hold<GrantedLease>;

/// A lease, and what was learned with it.
struct GrantedLease {
    lease: Lease,
    at: Instant,
    /// How many times in a row the load had failed before.
    failures: u32,
    /// Something is there that a marker would replace, or a failure that it would end.
    replaces: bool,
}

/// What a commit stores, and whether that keeps the value.
struct PreparedDraft {
    draft: Draft,
    is_kept: bool,
}

/// An entry that may be given out if no better is to be had.
struct StaleFallback {
    entry: Entry,
    /// Of the question that found it: it is not for waiters that joined later.
    asked: Generation,
    found_at: Instant,
}

/// What a flight is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Callers wait for it.
    Answer,
    /// They want what is kept to be replaced: a forced refresh.
    AnswerAnew,
    /// Callers have a stale answer, or will have one soon: none waits for it.
    Refresh(Accept),
}

impl Purpose {
    fn memory(self) -> FlightMemory {
        let accept = match self {
            Self::Answer => Accept::Fresh,
            Self::AnswerAnew => Accept::Nothing,
            Self::Refresh(accept) => accept,
        };
        Memory { accept, waited: false, fallback: None }
    }

    fn is_forced(self) -> bool {
        matches!(self, Self::AnswerAnew)
    }
}

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Codec<S::Response>,
{
    pub(crate) fn new(
        core: Arc<Core<C>>,
        leader: Leader<Outcome>,
        job: Lent<S, Req>,
        purpose: Purpose,
    ) -> Self {
        let key = leader.key();
        // Before the first question: a change between its answer and the watch would be missed.
        let watch = core.store.watch(key);
        let pauses = core.policy.pauses(!watch.is_silent());
        let claim = Claim::new(key.clone());
        Self { core, leader, job, claim, watch, pauses, purpose }
    }

    /// Works until the flight is closed.
    ///
    /// # Cancel safety
    /// If it is dropped, as when the runtime shuts down, the remaining waiters are told to look
    /// again, and a lease that was taken lapses.
    pub(crate) async fn run(self) {
        let memory = self.purpose.memory();
        self.work(State::Acquiring { memory }).await;
    }

    /// The same, after a look that failed.
    pub(crate) async fn run_after(self, error: StoreError) {
        let failed = self.store_failed(self.purpose.memory(), &error, Hold::StoreDown);
        let begin = self.take(step::next(failed));
        self.work(begin).await;
    }

    async fn work(mut self, begin: State) {
        let mut state = begin;
        while let Some(event) = self.perform(state).await {
            state = self.take(step::next(event));
        }
    }

    /// Tells the waiters what they are to be told.
    fn take(&self, step: Step<Carried>) -> State {
        let Step { tell, state } = step;
        tell.into_iter().for_each(|tell| self.tell(tell));
        state
    }

    fn tell(&self, tell: Tell<Carried>) {
        match tell {
            Tell::Complete(To::Before(generation), outcome) => {
                self.leader.complete_before(generation, &outcome);
            }
            Tell::Complete(To::All, outcome) => self.leader.complete_all(&outcome),
            Tell::Complete(To::Opener, outcome) => self.leader.complete_opener(&outcome),
            Tell::Offer(asked, stale, good_for) => {
                self.leader.offer(asked, stale, good_for);
                self.leader.let_callers_look();
                self.leader.complete_late(asked, &Outcome::Look);
            }
            Tell::Detach(asked) => {
                self.leader.run_in_the_background();
                self.leader.complete_late(asked, &Outcome::Look);
            }
            Tell::Release => self.leader.complete_all(&Outcome::Private),
            Tell::ReleaseAtClose => self.leader.close_with(Outcome::Own),
        }
    }

    /// What comes of a state. Nothing comes of the last.
    async fn perform(&mut self, state: State) -> Option<Event> {
        Some(match state {
            State::Acquiring { memory } => self.acquire(memory).await,
            State::LookingUp { late, memory } => self.look_up(late, memory).await,
            State::Waiting { left, memory } => self.wait(left, memory).await,
            State::Loading { hold, meanwhile, memory } => self.load(hold, meanwhile, memory).await,
            State::Committing { lease, draft, began, outcome, memory } => {
                self.commit(lease, draft, began, outcome, memory).await
            }
            State::Marking { lease, marker } => self.mark(lease, marker).await,
            State::Reporting { lease, failure } => self.report(lease, failure).await,
            State::Releasing { lease } => self.release(lease).await,
            State::Resting { failure, until, hold } => match self.rest(until).await {
                Rested::Joined => Event::JoinedFailing { failure, until, hold },
                Rested::Over => Event::Rested { hold },
            },
            State::Sparing { until, memory } => match self.rest(until).await {
                Rested::Joined => Event::JoinedSpared { memory },
                Rested::Over => Event::Rested { hold: Hold::Nothing },
            },
            State::Closed => return None,
        })
    }

    /// Waits for a change, for a pause, or until no waiter is left: a load of another process is not
    /// worth waiting for then.
    async fn wait(&mut self, left: Duration, memory: FlightMemory) -> Event {
        self.leader.wait_for_lease(left);
        let pause = self.pauses.next(jitter(), left);
        let memory = Memory { waited: true, ..memory };
        tokio::select! {
            () = self.watch.changed() => Event::Waited { memory },
            () = sleep(pause) => Event::Waited { memory },
            () = self.leader.abandoned() => Event::Abandoned,
        }
    }

    /// Waits for a change, for the end of a failure's window, or for a waiter that has no answer.
    async fn rest(&mut self, until: Instant) -> Rested {
        self.leader.enter(Phase::Resting);
        tokio::select! {
            () = self.watch.changed() => Rested::Over,
            () = sleep_until(until) => Rested::Over,
            () = self.leader.joined() => Rested::Joined,
        }
    }
}

/// Why a rest has ended.
enum Rested {
    Joined,
    Over,
}

/// How long a flight rests at most before the store is asked again: a change of which it was not
/// told is noticed then.
const LONGEST_REST: Duration = Duration::from_secs(1);
