//! The task of a flight: does what [`step::next`] says.

mod asking;
mod loading;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tower::Service;

use super::core::{Core, Landing};
use super::load::{Keeping, Lent};
use super::step::{self, Event, Leased, On, Standing, Step};
use crate::capture::Capture;
use crate::error::{CacheError, StoreError};
use crate::flight::{Leader, Line, Phase};
use crate::jitter::jitter;
use crate::policy::{Backoff, WhenStoreFails};
use crate::store::{Accept, Claim, Entry, Failure, Lease, Value, Watch};

/// One flight, seen from the one that works for it.
pub(crate) struct FlightTask<S, Req, C> {
    core: Arc<Core<C>>,
    leader: Leader<Landing>,
    job: Lent<S, Req>,
    claim: Claim,
    watch: Watch,
    pauses: Backoff,
    accept: Accept,
    lease: Option<Lease>,
    /// A question was sent that grants or ends a lease, and its answer was not heard.
    unheard: bool,
    leased_at: Instant,
    lease_left: Duration,
    waited: bool,
    store_failed: bool,
    /// Nobody here will have what is kept.
    anew: bool,
    /// What was found is due to be loaded anew, though it is fresh.
    due: Option<Accept>,
    /// Drawn before the store was asked last.
    asked: Line,
    /// Drawn before the load began.
    loading: Line,
    load_time: Duration,
    /// What is there and was not good enough, as the store answered last.
    stand_in: Option<StandIn>,
    /// Something is there that a marker would replace, or a failure that it would end.
    replaces: bool,
    /// How many times in a row the load had failed before.
    failures: u32,
    /// How the load of this flight failed.
    failed: Option<Failure>,
    /// Its load is a probe: what every other caller is given meanwhile.
    probing: Option<Landing>,
    /// What is landed on whoever comes while it rests.
    resting: Option<Landing>,
    rest_until: Instant,
    value: Option<Value>,
    keeping: Keeping,
    answer: Option<Landing>,
}

/// An entry that may be given out if no better is to be had.
struct StandIn {
    entry: Entry,
    /// Drawn before the question that found it: it is for nobody who came later.
    asked: Line,
    found_at: Instant,
}

/// What a flight is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Callers wait for it.
    Answer,
    /// They will not have what is kept.
    AnswerAnew,
    /// Callers have a stale answer, or will have one soon: nobody waits for it.
    Refresh(Accept),
}

impl Purpose {
    fn accept(self) -> Accept {
        match self {
            Self::Answer => Accept::Fresh,
            Self::AnswerAnew => Accept::Nothing,
            Self::Refresh(accept) => accept,
        }
    }
}

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Capture<S::Response>,
{
    pub(crate) fn new(
        core: Arc<Core<C>>,
        leader: Leader<Landing>,
        job: Lent<S, Req>,
        purpose: Purpose,
    ) -> Self {
        let key = leader.key();
        // Before the first question: a change between its answer and the watch would be missed.
        let watch = core.store.watch(key);
        let pauses = core.policy.pauses(!watch.is_silent());
        let claim = Claim::new(key.clone());
        let (line, now) = (leader.line(), Instant::now());
        Self {
            core,
            leader,
            job,
            claim,
            watch,
            pauses,
            accept: purpose.accept(),
            lease: None,
            unheard: false,
            leased_at: now,
            lease_left: Duration::ZERO,
            waited: false,
            store_failed: false,
            anew: matches!(purpose, Purpose::AnswerAnew),
            due: None,
            asked: line,
            loading: line,
            load_time: Duration::ZERO,
            stand_in: None,
            replaces: false,
            failures: 0,
            failed: None,
            probing: None,
            resting: None,
            rest_until: now,
            value: None,
            keeping: Keeping::Share,
            answer: None,
        }
    }

    /// Works until the flight is closed.
    ///
    /// # Cancel safety
    /// If it is dropped, as when the runtime shuts down, whoever waits is told to look again, and a
    /// lease that was taken lapses.
    pub(crate) async fn run(mut self) {
        self.work(Event::Opened { store_failed: false }).await;
    }

    /// The same, after a look that failed.
    pub(crate) async fn run_after(mut self, error: StoreError) {
        let event = match self.note_failure_of_the_store(&error) {
            Event::Failing => Event::Failing,
            _ => Event::Opened { store_failed: true },
        };
        self.work(event).await;
    }

    async fn work(&mut self, opened: Event) {
        let mut event = opened;
        loop {
            event = match step::next(event, self.standing()) {
                Step::Acquire => self.acquire().await,
                Step::Look => self.look().await,
                Step::Wait => self.wait().await,
                Step::Load => self.load().await,
                Step::Commit => self.commit().await,
                Step::Release => self.release().await,
                Step::Fail => self.fail().await,
                Step::Land(on) => self.land(on),
                Step::Disperse => self.disperse(),
                Step::Rest => self.rest().await,
                Step::Close => return,
            };
        }
    }

    fn standing(&self) -> Standing {
        Standing {
            leased: match self.lease {
                Some(_) => Leased::Yes,
                None if self.unheard => Leased::Perhaps,
                None => Leased::No,
            },
            can_load: self.job.is_there(),
            store_failed: self.store_failed,
            may_go_around: self.core.policy.when_store_fails == WhenStoreFails::Load,
            load_failed: self.failed.is_some(),
            is_private: matches!(self.keeping, Keeping::Private),
        }
    }

    /// The store has failed. It may be known all the same that the load would.
    fn note_failure_of_the_store(&mut self, error: &StoreError) -> Event {
        self.store_failed = true;
        if let Some(event) = self.rest_on_what_failed_here() {
            return event;
        }
        let error = CacheError::store(self.leader.key(), error);
        self.answer = Some(Landing::Failed(error));
        Event::AskFailed
    }

    /// From now on, whoever comes is given a failure.
    fn rest_on(&mut self, failure: Landing, left: Duration) -> Event {
        self.rest_until = Instant::now() + left.min(LONGEST_REST);
        self.resting = Some(failure);
        Event::Failing
    }

    /// Waits for a change, for a pause, or until nobody waits any more: a load of somebody else's
    /// is not worth waiting for then.
    async fn wait(&mut self) -> Event {
        self.leader.wait_for_lease(self.lease_left);
        self.waited = true;
        let pause = self.pauses.next(jitter(), self.lease_left);
        tokio::select! {
            () = self.watch.changed() => Event::Waited,
            () = sleep(pause) => Event::Waited,
            () = self.leader.deserted() => Event::Deserted,
        }
    }

    /// Lets nobody try again for a while: who comes is given the failure.
    async fn rest(&mut self) -> Event {
        self.leader.enter(Phase::Resting);
        loop {
            if let Some(failure) = &self.resting {
                self.leader.land_on_all(failure);
            }
            if self.anew {
                // Who comes later will have it loaded.
                return Event::Rested;
            }
            tokio::select! {
                () = self.watch.changed() => return Event::Rested,
                () = sleep_until(self.rest_until) => return Event::Rested,
                () = self.leader.joined() => {}
            }
            if self.resting.is_none() {
                return Event::Joined;
            }
        }
    }

    fn land(&mut self, on: On) -> Event {
        let answer = self.answer.take();
        let line = match on {
            On::Asked => self.asked,
            On::BeforeLoad => self.loading,
            On::All => self.leader.line(),
            On::Requester => {
                answer.into_iter().for_each(|answer| self.leader.land_on_opener(answer));
                return Event::Landed { others: true };
            }
            On::Opener => {
                answer.into_iter().for_each(|answer| self.leader.land_on_opener(answer));
                self.leader.part_with(Landing::Own);
                return Event::Landed { others: false };
            }
        };
        let Some(answer) = answer else {
            return Event::Landed { others: true };
        };
        let others = self.leader.land(line, &answer);
        match self.due.take() {
            Some(accept) => {
                self.accept = accept;
                self.go_on_in_the_background();
                Event::Due
            }
            None => Event::Landed { others },
        }
    }

    /// Nobody has to wait for what it does from here on.
    fn go_on_in_the_background(&self) {
        self.leader.run_in_the_background();
        self.leader.land_on_late(self.asked, &Landing::Look);
    }

    /// Gives its answer to the caller whose load it was, and sends everybody else to the loader.
    fn disperse(&mut self) -> Event {
        if let Some(answer) = self.answer.take() {
            self.leader.land_on_opener(answer);
        }
        self.leader.land_on_all(&Landing::Private);
        Event::Dispersed
    }
}

/// How long a flight rests at most before the store is asked again: a change of which it was not
/// told is noticed then.
const LONGEST_REST: Duration = Duration::from_secs(1);
