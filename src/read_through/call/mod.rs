//! One request: where it stands, and what it does next.

mod giving_up;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use super::ask::RequestOptions;
use super::core::{self, Core, Landing, Origin, Peeked};
use super::fallback::Fallback;
use super::flight_task::{FlightTask, Purpose};
use super::load::{Job, Lent};
use super::private_keys::BypassPermit;
use super::relief_task::relieve;
use super::state::{Looking, Settled, Start, State};
use super::waiting::Waiting;
use crate::capture::Capture;
use crate::error::{CacheError, Error, StoreError};
use crate::flight::{Landed, Listener, Phase, Seat};
use crate::jitter::jitter;
use crate::key::Key;
use crate::log_throttle::warn_throttled;
use crate::status::{Bypass, CacheStatus, Place, Stale};
use crate::store::{Accept, Entry};

/// What a request needs until it is answered.
pub(super) struct Call<S, Req, C> {
    core: Arc<Core<C>>,
    key: Key,
    /// What to load with, until it is lent to the task of a flight.
    job: Option<Job<S, Req>>,
    lent: Option<Lent<S, Req>>,
    /// When it was first polled: what it waits is counted from then.
    begun: Instant,
    /// From when on its patience is counted.
    patient_from: Instant,
    /// Its deadline is earlier than the caller's: when it is answered at the latest.
    how: RequestOptions,
    /// It has waited in vain for somebody else's load.
    relieved: bool,
    /// What its look found, to be given out instead of an error.
    fallback: Option<Box<Fallback>>,
    bypassing: Option<BypassPermit>,
    /// Hears what its flights wait for.
    listener: Option<Listener>,
}

impl<S, Req, C> Call<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
    C: Capture<S::Response>,
{
    pub(super) fn new(
        core: Arc<Core<C>>,
        key: Key,
        service: S,
        request: Req,
        how: RequestOptions,
    ) -> Self {
        let now = Instant::now();
        Self {
            core,
            key: key.digested(),
            job: Some(Job { service, request }),
            lent: None,
            begun: now,
            patient_from: now,
            how,
            relieved: false,
            fallback: None,
            bypassing: None,
            listener: None,
        }
    }

    pub(super) fn set_listener(&mut self, listener: Listener) {
        self.listener = Some(listener);
    }

    /// The first thing to do: look alone if nobody else is about this key, else join them.
    pub(super) fn start(&mut self, start: &mut Start) -> State<S, Req> {
        self.begun = Instant::now();
        self.patient_from = self.begun;
        match std::mem::replace(start, Start::Join) {
            Start::With(entry) => self.consider(entry),
            Start::Look if !self.how.is_forced => self.look(),
            Start::Look | Start::Join => self.join(None),
        }
    }

    fn look(&mut self) -> State<S, Req> {
        if self.is_late() {
            return self.out_of_time(None);
        }
        match self.core.loads.flights.glance(&self.key) {
            Some(glance) => {
                let patience = self.core.policy.patience_for_look();
                let until = patience.map(|patience| self.patient_from + patience);
                State::Looking(Looking::new(self.core.store.look(self.key.clone()), glance, until))
            }
            None => self.join(None),
        }
    }

    /// After the look.
    pub(super) fn looked(&mut self, answer: Result<Option<Entry>, StoreError>) -> State<S, Req> {
        match answer {
            Ok(Some(entry)) => self.consider(entry),
            Ok(None) => self.join(None),
            Err(error) => {
                warn_throttled!(%error, "taken for a miss");
                self.join(Some(error))
            }
        }
    }

    /// An entry was found: gives it out if it will do, and sees to it that it is loaded anew if it
    /// is time for that.
    fn consider(&mut self, entry: Entry) -> State<S, Req> {
        let (status, refresh) = match entry.fresh_for() {
            _ if entry.as_marker().is_some() => return self.join(None),
            _ if entry.serves_while_revalidating() => {
                (core::stale(&entry, Stale::Revalidating), Some(Accept::Fresh))
            }
            _ if !entry.is_fresh() => {
                self.fallback = Fallback::of(entry).map(Box::new);
                return self.join(None);
            }
            Some(left) if self.is_due_early(&entry, left) => {
                (core::hit(&entry), Some(Accept::Other { than: entry.fence() }))
            }
            _ => (core::hit(&entry), None),
        };
        let Some(answer) = self.core.answer::<S::Response>(entry, status) else {
            return self.join(None);
        };
        if let Some(accept) = refresh {
            self.refresh(accept);
        }
        State::Settled(Some((Ok(answer.0), answer.1)))
    }

    fn is_due_early(&self, entry: &Entry, left: Duration) -> bool {
        let freshness = &self.core.policy.freshness;
        freshness.early.is_some() && freshness.is_due_early(entry.load_time(), left, jitter())
    }

    /// Loads anew in the background what this request was answered with, unless somebody in this
    /// process does already.
    fn refresh(&mut self, accept: Accept) {
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(leader) = self.core.loads.flights.open_for_nobody(&self.key) {
            let (core, job) = (Arc::clone(&self.core), Lent::new(self.job.take()));
            let leader = leader.heard_by(self.listener.clone());
            let task = FlightTask::new(core, leader, job, Purpose::Refresh(accept));
            runtime.spawn(task.run());
        }
    }

    /// After a landing.
    pub(super) fn landed(&mut self, landed: Landed<Landing>, opener: bool) -> State<S, Req> {
        match landed {
            Landed::Answer(Landing::Value(kept, origin)) => self.given(kept, origin, opener),
            Landed::Answer(Landing::LoadFailed(error)) => match error.downcast() {
                Ok(error) => self.fail(Error::Load(error)),
                Err(_) => self.fail(CacheError::other_type(&self.key).into()),
            },
            Landed::Answer(Landing::FailedValue(kept)) => {
                // Who opens a flight that rests on an earlier failure has not loaded.
                let led = opener && self.lent.as_ref().is_some_and(|lent| !lent.is_there());
                self.instead(Stale::LoadFailed)
                    .unwrap_or_else(|| self.given(kept, Origin::Loaded { stored: false }, led))
            }
            Landed::Answer(Landing::Own) if std::mem::take(&mut self.how.asks_again) => {
                // What it waited for was another's: that does not shorten the wait for its own.
                self.patient_from = Instant::now();
                self.again(|call| call.join(None))
            }
            Landed::Answer(Landing::Private | Landing::Own) => self.pass(Bypass::NotKept),
            Landed::Answer(Landing::Look) => self.again(Self::look),
            Landed::Answer(Landing::Failed(error)) => self.fail(error.into()),
            // Whoever opens a flight is always answered by it, unless its task was dropped. One
            // that is dropped as soon as it is spawned would be opened again for ever.
            Landed::Again if opener => self.fail(CacheError::load_lost(&self.key).into()),
            Landed::Again => self.again(|call| call.join(None)),
        }
    }

    /// Looks again: whoever worked for its flight has gone, or there is something that may do.
    fn again(&mut self, ask: impl FnOnce(&mut Self) -> State<S, Req>) -> State<S, Req> {
        if self.relieved {
            return self.join_relief();
        }
        if self.how.is_forced {
            return self.join(None);
        }
        match self.core.peek::<S::Response>(&self.key) {
            Peeked::Hit(answer, fresh_for) => State::Hit(Some(answer), fresh_for),
            Peeked::Entry(entry) => self.consider(entry),
            Peeked::Miss => self.join(None),
            Peeked::Unknown => ask(self),
        }
    }

    fn join(&mut self, store_failed: Option<StoreError>) -> State<S, Req> {
        if self.is_late() {
            return self.out_of_time(None);
        }
        self.bypassing = self.core.bypass(&self.key, self.how).filter(|_| store_failed.is_none());
        if self.bypassing.is_some() {
            return self.pass(Bypass::NotKept);
        }
        let Ok(runtime) = Handle::try_current() else {
            return self.fail(CacheError::no_runtime(&self.key).into());
        };
        let wait = self.core.policy.wait;
        let (flights, purpose) = match self.how.is_forced {
            true => (&self.core.loads.forced, Purpose::AnswerAnew),
            false => (&self.core.loads.flights, Purpose::Answer),
        };
        let follower = match flights.join(&self.key, wait.is_fail_fast()) {
            Seat::Joined(follower) => {
                if let Some(listener) = &self.listener {
                    listener(Phase::Waiting);
                }
                follower
            }
            Seat::Opened(leader, follower) => {
                let leader = leader.heard_by(self.listener.clone());
                let task = FlightTask::new(Arc::clone(&self.core), leader, self.lend(), purpose);
                match store_failed {
                    Some(error) => runtime.spawn(task.run_after(error)),
                    None => runtime.spawn(task.run()),
                };
                follower
            }
            Seat::Refused(full) => return self.refuse(full),
        };
        if self.is_hopeless(&follower) {
            return self.out_of_time(Some(&follower));
        }
        let slow = self.core.policy.slow_load.and_then(|slow| Instant::now().checked_add(slow));
        if wait.is_fail_fast() {
            return State::Waiting(Waiting::failing_fast(follower, slow));
        }
        let until = self.patient_from.checked_add(self.core.policy.patience());
        State::Waiting(Waiting::new(follower, until, slow))
    }

    /// Loads for itself.
    fn pass(&mut self, why: Bypass) -> State<S, Req> {
        if self.is_late() {
            return self.out_of_time(None);
        }
        if self.how.bypasses_by_itself {
            let error = CacheError::contended(&self.key);
            return State::Settled(Some((Err(error.into()), CacheStatus::Bypass(why))));
        }
        match self.take_job() {
            Some(Job { service, request }) => {
                State::Passing(Box::pin(service.oneshot(request)), why)
            }
            None => self.fail(CacheError::load_lost(&self.key).into()),
        }
    }

    /// After it has loaded for itself.
    pub(super) fn passed(
        &self,
        answer: Result<S::Response, S::Error>,
        why: Bypass,
    ) -> Settled<S::Response, S::Error> {
        self.core.answer_of_bypass(&self.key, answer, CacheStatus::Bypass(why))
    }

    fn take_job(&mut self) -> Option<Job<S, Req>> {
        self.job.take().or_else(|| self.lent.as_ref()?.take())
    }

    fn join_relief(&mut self) -> State<S, Req> {
        if self.is_late() {
            return self.out_of_time(None);
        }
        let Ok(runtime) = Handle::try_current() else {
            return self.fail(CacheError::no_runtime(&self.key).into());
        };
        self.relieved = true;
        let follower = match self.core.loads.reliefs.join(&self.key, false) {
            Seat::Joined(follower) => follower,
            Seat::Opened(leader, follower) => {
                runtime.spawn(relieve(Arc::clone(&self.core), leader, self.lend()));
                follower
            }
            Seat::Refused(full) => return self.refuse(full),
        };
        State::Waiting(Waiting::new(follower, None, None))
    }

    /// Puts the job where a task can take it, and where it can be taken back.
    fn lend(&mut self) -> Lent<S, Req> {
        let lent = Lent::new(self.job.take());
        self.lent = Some(lent.clone());
        lent
    }

    fn given(
        &mut self,
        kept: Arc<dyn Any + Send + Sync>,
        origin: Origin,
        opener: bool,
    ) -> State<S, Req> {
        match kept.downcast::<C::Kept>() {
            Ok(kept) => self.settle(&kept, self.status(origin, opener)),
            Err(_) => self.fail(CacheError::other_type(&self.key).into()),
        }
    }

    fn status(&self, origin: Origin, opener: bool) -> CacheStatus {
        let waited = self.begun.elapsed();
        match origin {
            Origin::Kept(status) => status,
            Origin::Elsewhere => CacheStatus::Collapsed { place: Place::Elsewhere, waited },
            Origin::Loaded { stored } if opener => CacheStatus::Led { stored },
            Origin::Around(why) if opener => CacheStatus::Bypass(why),
            Origin::Loaded { .. } | Origin::Around(_) => {
                CacheStatus::Collapsed { place: Place::Here, waited }
            }
        }
    }

    fn settle(&self, kept: &C::Kept, status: CacheStatus) -> State<S, Req> {
        State::Settled(Some((Ok(self.core.capture.restore(kept, &status)), status)))
    }
}

impl<S, Req, C> fmt::Debug for Call<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("key", &self.key).finish_non_exhaustive()
    }
}
