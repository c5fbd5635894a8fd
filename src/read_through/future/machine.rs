//! The state machine of a request: what each state waits for, and which state follows.
//!
//! ```text
//!  Begun ──usable entry─────────────────────────► Answered (and replaced in the background)
//!    ├─unknown──► LookingUp ──usable entry──────► Answered
//!    │               └─none─┐
//!    └─none─────────────────► Waiting ──outcome─► Answered
//!                              ├─private────────► Loading ──► Answered
//!                              ├─ask again──────► LookingUp, Waiting
//!                              ├─load is slow───► Answered with a stale fallback, or on waiting
//!                              └─wait ran out───► Answered with a stale fallback or an error,
//!                                                 or Waiting for an uncached load
//! ```
//!
//! `PendingRequest::advance` polls a state to its end. The functions below it choose the next state,
//! in the same order.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::Service;
use tracing::Instrument;

use super::alone_load::AloneLoad;
use super::request_span::RequestSpan;
use super::state::{Start, State};
use super::timer::{Elapsed, Timer};
use crate::codec::Codec;
use crate::error::{BoxError, CacheError, CacheErrorKind, Error, StoreError};
use crate::flight::{
    Awaited, Completion, Flights, Full, Leader, Phase, PhaseListener, Role, Waiter,
};
use crate::jitter::jitter;
use crate::key::Key;
use crate::policy::AfterWait;
use crate::read_through::core::{self, Core, Peeked};
use crate::read_through::fallback::StaleFallback;
use crate::read_through::flight_task::{FlightTask, Purpose};
use crate::read_through::job::{Job, LentJob};
use crate::read_through::lookup::RequestOptions;
use crate::read_through::not_found::NotFound;
use crate::read_through::outcome::{Outcome, ValueOrigin};
use crate::read_through::private_keys::BypassPermit;
use crate::read_through::results::stale_reason;
use crate::read_through::uncached_load::load_uncached;
use crate::shared_error::SharedError;
use crate::stats::LimitEvent;
use crate::status::{BypassReason, CacheStatus, LoadLocation, StaleReason};
use crate::store::{Accept, Entry};
use crate::tag::Tags;
use crate::trace::CallerSpan;

/// A request that has no answer yet: what it carries from state to state.
pub(super) struct PendingRequest<S, Req, C> {
    pub(super) core: Arc<Core<C>>,
    key: Key,
    tags: Tags,
    /// The loader and the request, until they are lent to the task of a flight.
    job: Option<Job<S, Req>>,
    lent: Option<LentJob<S, Req>>,
    /// When it was first polled. Its status and its errors count the wait from here.
    pub(super) begun: Instant,
    /// From when its wait counts against the policy.
    waiting_since: Instant,
    /// Its deadline is a little before the caller's, so that the answer is there in time.
    timer: Timer,
    pub(super) options: RequestOptions,
    /// Its wait for another load ran out, and it waits for an uncached load.
    is_uncached: bool,
    /// The stale entry that its lookup found, to be served instead of an error.
    fallback: Option<Box<StaleFallback>>,
    /// Held while it loads individually, for a key with private answers.
    bypassing: Option<BypassPermit>,
    /// Called with each phase of its flight.
    listener: Option<PhaseListener>,
    /// It has asked the store, or joined a flight that does; and the number of its lone lookup.
    pub(super) has_asked: bool,
    looked_up: Option<u64>,
    pub(super) is_counted: bool,
    /// The span in which it waits, from when it has asked.
    pub(super) span: RequestSpan,
}

impl<S, Req, C> PendingRequest<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    pub(super) fn new(
        core: Arc<Core<C>>,
        key: Key,
        tags: Tags,
        job: Job<S, Req>,
        options: RequestOptions,
    ) -> Self {
        let now = Instant::now();
        Self {
            core,
            key: key.digested(),
            tags,
            job: Some(job),
            lent: None,
            begun: now,
            waiting_since: now,
            timer: Timer::new(options.deadline),
            options,
            is_uncached: false,
            fallback: None,
            bypassing: None,
            listener: None,
            has_asked: false,
            looked_up: None,
            is_counted: false,
            span: RequestSpan::default(),
        }
    }

    pub(super) fn set_listener(&mut self, listener: PhaseListener) {
        self.listener = Some(listener);
    }

    /// Polls a state until it has ended, or until the time for it has passed.
    pub(super) fn advance(
        &mut self,
        state: &mut State<S, Req>,
        cx: &mut Context<'_>,
    ) -> Poll<State<S, Req>> {
        match state {
            State::Begun(start) => {
                let start = mem::replace(start, Start::Join);
                return Poll::Ready(self.start(start));
            }
            State::LookingUp { answer, .. } => {
                if let Poll::Ready(found) = answer.poll_unpin(cx) {
                    return Poll::Ready(self.looked_up(found));
                }
            }
            State::Waiting(waiter, fails_fast) => {
                if let Poll::Ready(completion) = waiter.poll(cx) {
                    return Poll::Ready(self.waited(completion, waiter.is_opener()));
                }
                if *fails_fast && waiter.waits_for_other_load() {
                    *fails_fast = false;
                    if let Some(next) = self.give_up(waiter) {
                        return Poll::Ready(next);
                    }
                }
            }
            State::Loading(load, why) => {
                if let Poll::Ready(answer) = load.as_mut().poll(cx) {
                    return Poll::Ready(self.loaded(answer, *why));
                }
            }
            State::Keyless(..) | State::Hit(..) | State::Answered(_) => {
                unreachable!("it is answered, or has no key")
            }
        }
        loop {
            let elapsed = ready!(self.timer.poll(cx));
            if let Some(next) = self.elapsed(elapsed, state) {
                return Poll::Ready(next);
            }
        }
    }

    /// `Begun`: looks up alone if no other caller asks for this key, or else joins.
    fn start(&mut self, start: Start) -> State<S, Req> {
        self.begun = Instant::now();
        self.waiting_since = self.begun;
        match start {
            Start::Entry(entry) => self.consider(entry),
            Start::LookUp if !self.options.is_forced => self.look_up(),
            Start::LookUp | Start::Join => self.join(None),
        }
    }

    fn look_up(&mut self) -> State<S, Req> {
        self.asks();
        if self.timer.is_late() {
            return self.out_of_time();
        }
        match self.core.loads.flights.look_up_alone(&self.key) {
            Some(lookup) => {
                self.looked_up = lookup.number();
                let max_wait = self.core.policy.max_lookup_wait();
                self.timer.wait_until(max_wait.map(|most| self.waiting_since + most), None);
                let answer = self.core.store.lookup_tagged(self.key.clone(), self.tags.clone());
                State::LookingUp { answer, _alone: lookup }
            }
            None => self.join(None),
        }
    }

    /// It has no answer yet, and asks for one.
    fn asks(&mut self) {
        if !mem::replace(&mut self.has_asked, true) {
            self.span = RequestSpan::begin(&self.core.statistics, &self.key);
        }
    }

    /// `LookingUp` has ended.
    fn looked_up(&mut self, found: Result<Option<Entry>, StoreError>) -> State<S, Req> {
        match found {
            Ok(Some(entry)) => self.consider(entry),
            Ok(None) => self.join(None),
            Err(error) => {
                self.core.statistics.store_failed("the lookup counts as a miss", &error);
                self.join(Some(error))
            }
        }
    }

    /// Serves an entry that was found, if it is usable, and starts a refresh if one is due.
    /// Otherwise joins.
    fn consider(&mut self, entry: Entry) -> State<S, Req> {
        let (status, refresh) = match entry.fresh_for() {
            _ if entry.as_marker().is_some() => return self.join(None),
            _ if entry.serves_while_revalidating() => {
                (core::stale(&entry, StaleReason::Revalidating), Some(Accept::Fresh))
            }
            _ if !entry.is_fresh() => {
                self.fallback = Some(Box::new(StaleFallback::found(entry)));
                return self.join(None);
            }
            Some(left) if self.is_due_early(&entry, left) => {
                (core::hit(&entry), Some(Accept::Other { than: entry.fence() }))
            }
            _ => (core::hit(&entry), None),
        };
        let Some(answer) = self.core.answer(&self.key, entry, status) else {
            return self.join(None);
        };
        if let Some(accept) = refresh {
            self.refresh(accept);
        }
        State::Answered(Some(answer))
    }

    fn is_due_early(&self, entry: &Entry, left: Duration) -> bool {
        let freshness = &self.core.policy.freshness;
        freshness.early.is_some() && freshness.is_due_early(entry.load_time(), left, jitter())
    }

    /// Refreshes the entry that answered this request, in the background. Does nothing if a flight
    /// of this key runs in this process.
    fn refresh(&mut self, accept: Accept) {
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(leader) = self.core.loads.flights.open_in_background(&self.key, &self.tags) {
            let job = LentJob::new(self.job.take());
            runtime.spawn(self.task(leader, job, Purpose::Refresh(accept)).run());
        }
    }

    /// Opens or joins the flight of its key.
    fn join(&mut self, store_failed: Option<StoreError>) -> State<S, Req> {
        self.asks();
        self.bypassing =
            self.core.bypass(&self.key, &self.options).filter(|_| store_failed.is_none());
        if self.bypassing.is_some() {
            return self.load(BypassReason::NotKept);
        }
        let (flights, purpose) = match self.options.is_forced {
            true => (&self.core.loads.forced, Purpose::ForceRefresh),
            false => (&self.core.loads.flights, Purpose::Answer),
        };
        let flights = Arc::clone(flights);
        let policy = &self.core.policy;
        let slow = policy.slow_load.and_then(|slow| Instant::now().checked_add(slow));
        let limit = match policy.wait.is_fail_fast() {
            true => None,
            false => self.waiting_since.checked_add(policy.max_wait()),
        };
        self.timer.wait_until(limit, slow);
        self.wait_in(&flights, &self.tags.clone(), |it, runtime, leader, job| {
            let task = it.task(leader, job, purpose);
            match store_failed {
                Some(error) => runtime.spawn(task.run_after(error)),
                None => runtime.spawn(task.run()),
            };
        })
    }

    /// Opens or joins the uncached load of its key.
    fn join_uncached(&mut self) -> State<S, Req> {
        self.is_uncached = true;
        self.timer.wait_until(None, None);
        let uncached = Arc::clone(&self.core.loads.uncached);
        // Only callers that had asked before its load began get its answer, whatever their tags.
        self.wait_in(&uncached, &Tags::none(), |it, runtime, leader, job| {
            let load = load_uncached(Arc::clone(&it.core), leader, job);
            runtime.spawn(load.in_current_span());
        })
    }

    /// Joins the flight of its key among these, or opens one and starts its task.
    fn wait_in(
        &mut self,
        flights: &Arc<Flights<Outcome>>,
        tags: &Tags,
        start: impl FnOnce(&Self, &Handle, Leader<Outcome>, LentJob<S, Req>),
    ) -> State<S, Req> {
        if self.timer.is_late() {
            return self.out_of_time();
        }
        let Ok(runtime) = Handle::try_current() else {
            return self.fail(CacheError::no_runtime(&self.key).into());
        };
        let fails_fast = self.core.policy.wait.is_fail_fast() && !self.is_uncached;
        let span = self.span.caller();
        let waiter = match flights.join(&self.key, tags, self.looked_up, fails_fast, span) {
            Role::Joined(waiter) => {
                self.listener.iter().for_each(|listener| listener(Phase::Waiting));
                waiter
            }
            Role::Opened(leader, waiter) => {
                // Either takes the job: the task to load, or this request to load itself.
                let job = LentJob::new(self.job.take());
                self.lent = Some(job.clone());
                start(self, &runtime, leader, job);
                waiter
            }
            Role::Refused(full) => return self.refuse(full),
        };
        State::Waiting(waiter, fails_fast)
    }

    fn task(
        &self,
        leader: Leader<Outcome>,
        job: LentJob<S, Req>,
        purpose: Purpose,
    ) -> FlightTask<S, Req, C> {
        let leader = leader.with_listener(self.listener.clone());
        let opener = match self.has_asked {
            true => self.span.caller().clone(),
            false => CallerSpan::current(),
        };
        FlightTask::new(Arc::clone(&self.core), leader, job, purpose, self.tags.clone(), opener)
    }

    fn refuse(&mut self, full: Full) -> State<S, Req> {
        let key = &self.key;
        let bounds = self.core.policy.bounds;
        let (error, limit) = match full {
            Full::Flights => {
                (CacheError::too_many_flights(key, bounds.flights), LimitEvent::Flights)
            }
            Full::Waiters => {
                (CacheError::too_many_waiters(key, bounds.waiters), LimitEvent::Waiters)
            }
        };
        self.core.statistics.refuse(limit);
        self.fail(error.into())
    }

    /// `Waiting` has ended.
    fn waited(&mut self, completion: Completion<Outcome>, opener: bool) -> State<S, Req> {
        let outcome = match completion {
            Completion::Outcome(outcome) => outcome,
            // A flight always answers its opener, unless its task was dropped. A runtime that drops
            // tasks as soon as they are spawned would make it open flights for ever.
            Completion::Again if opener => {
                return self.fail(CacheError::load_lost(&self.key).into());
            }
            Completion::Again => return self.again(|it| it.join(None)),
        };
        match outcome {
            Outcome::Value(kept, origin) => self.answer_with(kept, origin, opener),
            Outcome::Stale(fallback) => {
                self.fallback = Some(Box::new(fallback));
                self.fail(CacheError::load_lost(&self.key).into())
            }
            Outcome::LoadFailed(error) => self.fail(Error::Load(SharedError::erased(error))),
            Outcome::FailedValue(kept) => {
                // In a cooldown the flight has an earlier failure, and its opener has not loaded.
                let led = opener && self.lent.as_ref().is_some_and(|lent| !lent.is_there());
                self.serve_stale(None, StaleReason::LoadFailed).unwrap_or_else(|| {
                    self.answer_with(kept, ValueOrigin::Loaded { stored: false }, led)
                })
            }
            Outcome::PrivateOnce if mem::take(&mut self.options.retries_private) => {
                // The wait for a private answer of another caller does not count.
                self.waiting_since = Instant::now();
                self.again(|it| it.join(None))
            }
            Outcome::PrivateKey | Outcome::PrivateOnce => self.load(BypassReason::NotKept),
            Outcome::LookUp => self.again(Self::look_up),
            Outcome::Failed(error) => {
                if error.kind() == CacheErrorKind::Full {
                    self.core.statistics.refuse(LimitEvent::UncachedLoads);
                }
                self.fail(error.into())
            }
        }
    }

    /// Asks again, because the task of its flight was dropped or the store may have a usable
    /// answer.
    fn again(&mut self, ask: impl FnOnce(&mut Self) -> State<S, Req>) -> State<S, Req> {
        if self.is_uncached {
            return self.join_uncached();
        }
        if self.options.is_forced {
            return self.join(None);
        }
        match self.core.peek::<S::Response>(&self.key, &self.tags) {
            Peeked::Hit(answer, fresh_for) => State::Hit(Some(answer), fresh_for),
            Peeked::Entry(entry) => self.consider(entry),
            Peeked::Miss => self.join(None),
            Peeked::Unknown => ask(self),
        }
    }

    fn answer_with(
        &mut self,
        kept: Arc<dyn Any + Send + Sync>,
        origin: ValueOrigin,
        opener: bool,
    ) -> State<S, Req> {
        let status = self.status(origin, opener);
        if let Some(not_found) = kept.downcast_ref::<NotFound>() {
            return State::Answered(Some((Err(not_found.to_error(&self.key)), status)));
        }
        match kept.downcast::<C::Kept>() {
            Ok(kept) => {
                State::Answered(Some((Ok(self.core.codec.restore(&kept, &status)), status)))
            }
            // Only if the flight were one of another type, and those are kept apart.
            Err(_) => self.fail(CacheError::load_lost(&self.key).into()),
        }
    }

    fn status(&self, origin: ValueOrigin, opener: bool) -> CacheStatus {
        let waited = self.begun.elapsed();
        match origin {
            ValueOrigin::Stored(status) => status,
            ValueOrigin::Remote => CacheStatus::Collapsed { place: LoadLocation::Remote, waited },
            ValueOrigin::Loaded { stored } if opener => CacheStatus::Led { stored },
            ValueOrigin::Uncached(why) if opener => CacheStatus::Bypass(why),
            ValueOrigin::Loaded { .. } | ValueOrigin::Uncached(_) => {
                CacheStatus::Collapsed { place: LoadLocation::Local, waited }
            }
        }
    }

    /// Loads individually, without the cache.
    fn load(&mut self, why: BypassReason) -> State<S, Req> {
        if self.timer.is_late() {
            return self.out_of_time();
        }
        if self.options.returns_bypass {
            let error = CacheError::contended(&self.key);
            return State::Answered(Some((Err(error.into()), CacheStatus::Bypass(why))));
        }
        self.timer.wait_until(None, None);
        match self.take_job() {
            Some(Job { service, request }) => {
                let statistics = &self.core.statistics;
                let load = AloneLoad::new(service, request, Some(&self.key), statistics);
                State::Loading(Box::pin(load), why)
            }
            None => self.fail(CacheError::load_lost(&self.key).into()),
        }
    }

    fn take_job(&mut self) -> Option<Job<S, Req>> {
        self.job.take().or_else(|| self.lent.as_ref()?.take())
    }

    /// `Loading` has ended.
    fn loaded(
        &self,
        answer: Result<Result<S::Response, S::Error>, CacheError>,
        why: BypassReason,
    ) -> State<S, Req> {
        let status = CacheStatus::Bypass(why);
        State::Answered(Some(match answer {
            Ok(answer) => self.core.bypass_answer(&self.key, answer, status),
            Err(panicked) => (Err(panicked.into()), status),
        }))
    }

    /// What follows when a moment has come. `None` if it goes on as before. A flight goes on without
    /// this caller, and keeps its request if the request was lent to it.
    fn elapsed(&mut self, elapsed: Elapsed, state: &mut State<S, Req>) -> Option<State<S, Req>> {
        let late = CacheErrorKind::DeadlineExceeded;
        match (elapsed, &mut *state) {
            (Elapsed::Slow, State::Waiting(waiter, _)) => {
                let stale = self.serve_stale(Some(waiter), StaleReason::LoadSlow)?;
                waiter.keep_running();
                Some(stale)
            }
            (Elapsed::Wait, State::Waiting(waiter, _)) if waiter.runs_its_own_load() => None,
            (Elapsed::Wait, State::Waiting(waiter, _)) => self.give_up(waiter),
            (Elapsed::Deadline, State::Waiting(waiter, _)) => self
                .serve_stale(Some(waiter), StaleReason::WaitRanOut)
                .or_else(|| Some(self.time_out(late, waiter.awaited()))),
            (_, State::LookingUp { .. }) => {
                finish_alone(mem::replace(state, State::Begun(Start::Join)));
                Some(match (elapsed, self.core.policy.wait.then()) {
                    (Elapsed::Deadline, _) => self.out_of_time(),
                    (_, AfterWait::Fail) => {
                        self.time_out(CacheErrorKind::WaitTimedOut, Awaited::Store)
                    }
                    (_, AfterWait::Load) => self.join_uncached(),
                })
            }
            (Elapsed::Deadline, _) => Some(self.out_of_time()),
            _ => None,
        }
    }

    /// When its wait has run out. `None` if a load runs by now and the wait is for that load's end.
    fn give_up(&mut self, waiter: &Waiter<Outcome>) -> Option<State<S, Req>> {
        if let Some(stale) = self.serve_stale(Some(waiter), StaleReason::WaitRanOut) {
            return Some(stale);
        }
        let key = &self.key;
        let wait = self.core.policy.wait;
        if wait.is_for_load() && waiter.waits_for_local_load() {
            return None;
        }
        if waiter.waits_for_permit() {
            self.core.statistics.refuse(LimitEvent::UncachedLoads);
            let most = self.core.policy.bounds.uncached_loads;
            return Some(self.fail(CacheError::too_many_loads(key, most).into()));
        }
        match wait.then() {
            AfterWait::Fail if wait.is_fail_fast() => {
                Some(self.fail(CacheError::contended(key).into()))
            }
            AfterWait::Fail => Some(self.time_out(CacheErrorKind::WaitTimedOut, waiter.awaited())),
            AfterWait::Load => {
                self.job = Some(self.take_job()?);
                Some(self.join_uncached())
            }
        }
    }

    /// At its deadline, without a flight.
    fn out_of_time(&mut self) -> State<S, Req> {
        self.time_out(CacheErrorKind::DeadlineExceeded, Awaited::Store)
    }

    fn time_out(&mut self, kind: CacheErrorKind, awaited: Awaited) -> State<S, Req> {
        let limit = match kind {
            CacheErrorKind::DeadlineExceeded => "by the deadline, after",
            _ => "after a wait of",
        };
        let (key, waited) = (&self.key, self.begun.elapsed());
        let message = format!("`{key}` was not there {limit} {waited:?}: {awaited}");
        self.fail(CacheError::new(kind, message).into())
    }

    /// Ends with the stale entry that its lookup found, or with an error if there is none.
    fn fail(&mut self, error: Error<S::Error>) -> State<S, Req> {
        self.serve_stale(None, stale_reason(&error))
            .unwrap_or_else(|| State::Answered(Some((Err(error), CacheStatus::Failed))))
    }

    /// The stale fallback of its flight or of its own lookup, if it may still be served.
    fn serve_stale(
        &mut self,
        waiter: Option<&Waiter<Outcome>>,
        why: StaleReason,
    ) -> Option<State<S, Req>> {
        let now = Instant::now();
        let of_flight = match waiter.and_then(Waiter::stale_fallback) {
            Some(Outcome::Stale(fallback)) => fallback.serve(why, now),
            _ => None,
        };
        let own = || self.fallback.take()?.serve(why, now);
        let (entry, status) = of_flight.or_else(own)?;
        Some(State::Answered(Some(self.core.answer(&self.key, entry, status)?)))
    }
}

/// Finishes a lookup in a task, without its caller. The breaker of the store learns from it that the
/// store does not answer. Otherwise callers with short waits would keep asking in vain.
fn finish_alone<S: Service<Req>, Req>(lookup: State<S, Req>) {
    if let (State::LookingUp { answer, .. }, Ok(runtime)) = (lookup, Handle::try_current()) {
        runtime.spawn(answer.map(drop));
    }
}

impl<S, Req, C> fmt::Debug for PendingRequest<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRequest").field("key", &self.key).finish_non_exhaustive()
    }
}
