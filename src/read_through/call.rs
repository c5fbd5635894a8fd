//! One request: where it stands, and what it does next.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use super::ask::How;
use super::core::{self, Core, Landing, Origin, Peeked};
use super::fallback::{Fallback, offered};
use super::flight_task::{FlightTask, Purpose};
use super::load::{Job, Lent};
use super::relief_task::relieve;
use super::state::{Settled, Start, State};
use super::unshared::Bypassing;
use super::waiting::Waiting;
use crate::capture::Capture;
use crate::chance::draw;
use crate::error::{CacheError, CacheErrorKind, Error, StoreError};
use crate::flight::{Follower, Full, Landed, Listener, Phase, Seat};
use crate::key::Key;
use crate::policy::Then;
use crate::quiet::warn_seldom;
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
    how: How,
    /// It has waited in vain for somebody else's load.
    relieved: bool,
    /// What its look found, to be given out instead of an error.
    fallback: Option<Box<Fallback>>,
    bypassing: Option<Bypassing>,
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
    pub(super) fn new(core: Arc<Core<C>>, key: Key, service: S, request: Req, how: How) -> Self {
        Self {
            core,
            key: key.digested(),
            job: Some(Job { service, request }),
            lent: None,
            begun: Instant::now(),
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
        match std::mem::replace(start, Start::Join) {
            Start::With(entry) => self.consider(entry),
            Start::Look if !self.how.is_forced => self.look(),
            Start::Look | Start::Join => self.join(None),
        }
    }

    fn look(&mut self) -> State<S, Req> {
        match self.core.loads.flights.glance(&self.key) {
            Some(glance) => State::Looking(self.core.store.look(self.key.clone()), glance),
            None => self.join(None),
        }
    }

    /// After the look.
    pub(super) fn looked(&mut self, answer: Result<Option<Entry>, StoreError>) -> State<S, Req> {
        match answer {
            Ok(Some(entry)) => self.consider(entry),
            Ok(None) => self.join(None),
            Err(error) => {
                warn_seldom!(%error, "taken for a miss");
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
        freshness.early.is_some() && freshness.is_due_early(entry.load_time(), left, draw())
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

    /// Once the load is slow. Nothing, if there is nothing to be had but that.
    pub(super) fn load_is_slow(&mut self, follower: &Follower<Landing>) -> Option<State<S, Req>> {
        let stale = self.make_do(follower, Stale::LoadSlow)?;
        follower.leave_it_running();
        Some(stale)
    }

    /// After its patience is over. Nothing, if by now its own load runs.
    pub(super) fn give_up(&mut self, follower: &Follower<Landing>) -> Option<State<S, Req>> {
        if let Some(stale) = self.make_do(follower, Stale::WaitRanOut) {
            return Some(stale);
        }
        let (key, wait) = (&self.key, self.core.policy.wait);
        if follower.waits_for_leave_to_load() {
            let most = self.core.policy.bounds.loads_around;
            return Some(self.fail(CacheError::too_many_loads(key, most).into()));
        }
        match wait.then() {
            Then::Fail if wait.is_fail_fast() => Some(self.fail(CacheError::contended(key).into())),
            Then::Fail => {
                Some(self.fail(CacheError::wait_timed_out(key, self.begun.elapsed()).into()))
            }
            // It has waited for such a load by now.
            Then::Load if self.relieved => {
                Some(self.fail(CacheError::wait_timed_out(key, self.begun.elapsed()).into()))
            }
            Then::Load => {
                self.job = Some(self.take_job()?);
                Some(self.join_relief())
            }
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
        let slow = self.core.policy.slow_load.and_then(|slow| Instant::now().checked_add(slow));
        if wait.is_fail_fast() {
            return State::Waiting(Waiting::failing_fast(follower, slow));
        }
        let patience = self.begun.checked_add(wait.patience());
        let by = self.how.deadline.map(|deadline| self.before(deadline, &follower));
        let until = [patience, by].into_iter().flatten().min();
        State::Waiting(Waiting::new(follower, until, slow))
    }

    /// When a wait has to end so that the answer comes by the deadline: at once, if the load that
    /// it would wait for cannot be expected to.
    fn before(&self, deadline: Instant, follower: &Follower<Landing>) -> Instant {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        if follower.waits_for_a_load_of_others()
            && follower.expects(self.core.loads.typical()) > left
        {
            return now;
        }
        deadline - (left / 10).min(MARGIN)
    }

    fn refuse(&mut self, full: Full) -> State<S, Req> {
        let (key, bounds) = (&self.key, self.core.policy.bounds);
        let error = match full {
            Full::Flights => CacheError::too_many_flights(key, bounds.flights),
            Full::Followers => CacheError::too_many_waiters(key, bounds.waiters),
        };
        self.fail(error.into())
    }

    /// Loads for itself.
    fn pass(&mut self, why: Bypass) -> State<S, Req> {
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
        let Ok(runtime) = Handle::try_current() else {
            return self.fail(CacheError::no_runtime(&self.key).into());
        };
        self.relieved = true;
        let (follower, until) = match self.core.loads.reliefs.join(&self.key, false) {
            Seat::Joined(follower) => (follower, self.how.deadline),
            Seat::Opened(leader, follower) => {
                runtime.spawn(relieve(Arc::clone(&self.core), leader, self.lend()));
                (follower, None)
            }
            Seat::Refused(full) => return self.refuse(full),
        };
        State::Waiting(Waiting::new(follower, until, None))
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

    /// Ends with an error, unless a stale answer will do.
    fn fail(&mut self, error: Error<S::Error>) -> State<S, Req> {
        let why = match error.cache().map(CacheError::kind) {
            Some(CacheErrorKind::Full) => Stale::NoRoom,
            Some(CacheErrorKind::Contended | CacheErrorKind::WaitTimedOut) => Stale::WaitRanOut,
            _ => Stale::LoadFailed,
        };
        self.instead(why).unwrap_or_else(|| State::Settled(Some((Err(error), CacheStatus::Failed))))
    }

    /// The stale answer that its flight or its look found, if it may still be given out.
    fn make_do(&mut self, follower: &Follower<Landing>, why: Stale) -> Option<State<S, Req>> {
        match offered(follower, why) {
            Some(Landing::Value(kept, origin)) => Some(self.given(kept, origin, false)),
            _ => self.instead(why),
        }
    }

    /// The stale answer that its look found, if that may still be given out instead of an error.
    fn instead(&mut self, why: Stale) -> Option<State<S, Req>> {
        let (entry, status) = self.fallback.take()?.into_entry(why)?;
        let (answer, status) = self.core.answer::<S::Response>(entry, status)?;
        Some(State::Settled(Some((Ok(answer), status))))
    }
}

/// How much earlier than a deadline a wait ends, at most: about what it takes to answer.
const MARGIN: Duration = Duration::from_millis(10);

impl<S, Req, C> fmt::Debug for Call<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("key", &self.key).finish_non_exhaustive()
    }
}
