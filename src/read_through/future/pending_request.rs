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

use std::any::{Any, TypeId};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::spawn;
use tokio::time::{Instant, Sleep};

use super::state::{
    AnswerWithStatus, Elapsed, RequestSpan, State, Timer, failure, finish_alone, has_runtime,
};
use crate::codec::Codec;
use crate::error::{CacheError, CacheErrorKind, Error, SharedError, StoreError};
use crate::flight::{Flights, Full, Leader, Phase, PhaseListener, Waiter};
use crate::key::Key;
use crate::loads::Loads;
use crate::locked::locked;
use crate::policy::AfterWait;
use crate::read_through::core::{self, Core, Peeked};
use crate::read_through::flight_task::{FlightOpener, FlightTask, Purpose};
use crate::read_through::key_request::RequestOptions;
use crate::read_through::load::{Job, LentJob, Loader, is_in_load, load_alone};
use crate::read_through::load_group::GroupOfItem;
use crate::read_through::outcome::{NotFound, Outcome, StaleFallback, stale_reason};
use crate::read_through::remembered::BypassPermit;
use crate::stats::{LimitEvent, RequestEvent};
use crate::status::{BypassReason, CacheStatus, LoadLocation, StaleReason};
use crate::store::{Accept, Entry};
use crate::tag::Tags;
use crate::trace::CallerSpan;

/// A request that has no answer yet: what it carries from state to state.
pub(super) struct PendingRequest<S, Req, C> {
    core: Arc<Core<C>>,
    key: Key,
    /// The types of the loader: it shares outcomes with requests of the same ones.
    types: TypeId,
    tags: Tags,
    /// The loader and the request, until it loads, or lends them to the task of a flight that it opens.
    job: Option<Job<S, Req>>,
    lent: Option<LentJob<S, Req>>,
    /// When it was first polled. Its status and its errors count the wait from here.
    begun: Instant,
    /// From when its wait counts against the policy.
    waiting_since: Instant,
    /// Its deadline is a little before the caller's, so that the answer is there in time.
    timer: Timer,
    options: RequestOptions,
    /// Its wait for another load ran out, and it waits for an uncached load.
    is_uncached: bool,
    /// The stale entry that its lookup found, to be served instead of an error.
    fallback: Option<Box<StaleFallback>>,
    /// Held while it loads individually, for a key with private answers.
    bypassing: Option<BypassPermit>,
    /// Called with each phase of its flight.
    pub(super) listener: Option<PhaseListener>,
    /// It is an item of a batch.
    pub(super) group_of: Option<GroupOfItem>,
    /// It was made inside a load.
    is_nested: bool,
    /// It has asked the store, or joined a flight that does; and the number of its lone lookup.
    has_asked: bool,
    looked_up: Option<u64>,
    is_counted: bool,
    /// The span in which it waits, from when it has asked.
    pub(super) span: RequestSpan,
}

impl<S: Loader<Req>, Req: Send + 'static, C: Codec<S::Response>> PendingRequest<S, Req, C> {
    pub(super) fn new(
        core: Arc<Core<C>>,
        key: Key,
        types: TypeId,
        tags: Tags,
        job: Job<S, Req>,
        options: RequestOptions,
    ) -> Self {
        let now = Instant::now();
        Self {
            core,
            key: key.digested(),
            types,
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
            group_of: None,
            is_nested: is_in_load(),
            has_asked: false,
            looked_up: None,
            is_counted: false,
            span: RequestSpan::default(),
        }
    }

    /// Polls a state until it has ended, or until the time for it has passed.
    pub(super) fn advance(
        &mut self,
        state: &mut State<S, Req>,
        mut sleep: Pin<&mut Option<Sleep>>,
        cx: &mut Context<'_>,
    ) -> Poll<State<S, Req>> {
        match state {
            State::Begun(peeked) => {
                self.begun = Instant::now();
                self.waiting_since = self.begun;
                let peeked = mem::replace(peeked, Peeked::Miss);
                return Poll::Ready(self.peeked(peeked, Self::look_up));
            }
            State::LookingUp { answer, .. } => {
                if let Poll::Ready(found) = answer.poll_unpin(cx) {
                    return Poll::Ready(self.looked_up(found));
                }
            }
            State::Waiting(waiter, fails_fast) => {
                if let Poll::Ready(outcome) = waiter.poll(cx) {
                    return Poll::Ready(self.waited(outcome, waiter.opener));
                }
                if *fails_fast && waiter.waits_for_other_load() {
                    *fails_fast = false;
                    if let Some(next) = self.give_up(waiter) {
                        return Poll::Ready(next);
                    }
                }
            }
            State::Loading(load) => {
                if let Poll::Ready(answer) = load.as_mut().poll(cx) {
                    let answer = self.core.bypass_answer(&self.key, answer);
                    return Poll::Ready(State::Answered(Some(answer)));
                }
            }
            State::Answered(_) => panic!("polled after it was ready"),
        }
        loop {
            let elapsed = ready!(self.timer.poll(sleep.as_mut(), cx));
            if let Some(next) = self.elapsed(elapsed, state) {
                return Poll::Ready(next);
            }
        }
    }

    /// Looks up alone if no other caller asks for this key, or else joins.
    fn look_up(&mut self) -> State<S, Req> {
        self.asks();
        if self.timer.is_late() {
            return self.out_of_time();
        }
        match self.core.loads.flights.look_up(&self.key, self.types) {
            Some(lookup) => {
                self.looked_up = lookup.number;
                let max_wait = self.core.policy.max_lookup_wait();
                self.timer.wait_until(max_wait.map(|most| self.waiting_since + most), None);
                let answer = self.core.store.lookup(self.key.clone(), self.tags.clone());
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
            Ok(Some(entry)) => self.consider(self.core.audits(&entry), entry),
            Ok(None) => self.join(None),
            Err(error) => {
                self.core.statistics.store_failed("the lookup counts as a miss", &error);
                self.join(Some(error))
            }
        }
    }

    /// Serves an entry that was found, if it is usable, and starts a refresh if one is due.
    /// Otherwise joins.
    fn consider(&mut self, is_audited: bool, entry: Entry) -> State<S, Req> {
        let is_revalidated = entry.serves_while_revalidating();
        if entry.as_marker().is_some() {
            return self.join(None);
        } else if !entry.is_fresh() && !is_revalidated {
            self.fallback = Some(Box::new(StaleFallback::found(entry)));
            return self.join(None);
        }
        let (status, refresh) = match is_revalidated {
            true => (core::stale(&entry, StaleReason::Revalidating), Some((Accept::Fresh, false))),
            false => (core::hit(&entry), self.core.refresh_due(&entry, is_audited)),
        };
        let Some(answer) = self.core.answer(&self.key, entry, status) else {
            return self.join(None);
        };
        if let Some(refresh) = refresh {
            self.refresh(refresh);
        }
        State::Answered(Some(answer))
    }

    /// Refreshes the entry that answered this request, in the background. Does nothing if a flight
    /// of this key runs in this process.
    fn refresh(&mut self, (accept, is_audit): (Accept, bool)) {
        let Ok(runtime) = Handle::try_current() else { return };
        let flights = &self.core.loads.flights;
        if let Some(leader) = flights.open_in_background((&self.key, self.types), &self.tags) {
            runtime.spawn(self.task(leader, Purpose::Refresh(accept, is_audit)).run(None));
        }
    }

    /// Opens or joins the flight of its key.
    fn join(&mut self, store_failed: Option<StoreError>) -> State<S, Req> {
        self.asks();
        self.bypassing =
            self.core.bypass(&self.key, &self.options).filter(|_| store_failed.is_none());
        if self.bypassing.is_some() {
            return self.load();
        }
        let policy = &self.core.policy;
        let slow = policy.slow_load.and_then(|slow| Instant::now().checked_add(slow));
        let limit = match policy.wait.is_fail_fast() {
            true => None,
            false => self.waiting_since.checked_add(policy.max_wait()),
        };
        self.timer.wait_until(limit, slow);
        self.timer.doubt_at(self.waiting_since + policy.lease / 2);
        let forced = self.options.is_forced;
        self.wait(if forced { Purpose::ForceRefresh } else { Purpose::Answer }, store_failed)
    }

    /// Opens or joins the uncached load of its key.
    fn join_uncached(&mut self) -> State<S, Req> {
        self.is_uncached = true;
        self.timer.wait_until(None, None);
        self.wait(Purpose::Uncached, None)
    }

    /// Joins the flight of its key for this purpose, or opens one and starts its task.
    fn wait(&mut self, purpose: Purpose, failed: Option<StoreError>) -> State<S, Req> {
        if self.timer.is_late() {
            return self.out_of_time();
        }
        if !has_runtime() {
            return self.fail(CacheError::no_runtime(&self.key).into());
        }
        // Only callers that had asked before an uncached load began get its answer, whatever their
        // tags.
        let tags = if self.is_uncached { &Tags::none() } else { &self.tags };
        let fails_fast = self.core.policy.wait.is_fail_fast() && purpose != Purpose::Uncached;
        let (id, span) = ((&self.key, self.types), self.span.waits());
        match self.flights().join(id, tags, self.looked_up, fails_fast, span) {
            Ok((waiter, _)) if waiter.is_own_load() => {
                self.fail(CacheError::recursive(&self.key).into())
            }
            Ok((waiter, leader)) => {
                if self.is_nested || is_in_load() {
                    waiter.let_pass();
                }
                match leader {
                    Some(leader) => drop(spawn(self.task(leader, purpose).run(failed))),
                    None => self.listener.iter().for_each(|listener| listener(Phase::Waiting)),
                }
                State::Waiting(waiter, fails_fast)
            }
            Err(Full::Flights) => self.refuse(LimitEvent::Flights),
            Err(Full::Waiters) => self.refuse(LimitEvent::Waiters),
        }
    }

    /// Those in which it waits.
    fn flights(&self) -> &Arc<Flights<Outcome>> {
        let loads = &self.core.loads;
        match self.is_uncached {
            true => &loads.uncached,
            false if self.options.is_forced => &loads.forced,
            false => &loads.flights,
        }
    }

    fn task(&mut self, mut leader: Leader<Outcome>, purpose: Purpose) -> FlightTask<S, Req, C> {
        leader.listener.clone_from(&self.listener);
        let span = match self.has_asked {
            true => self.span.waits().clone(),
            false => CallerSpan::current(),
        };
        let (around, group_of) = (self.span.around.while_it_waits(), self.group_of.clone());
        let has_looked_up = self.looked_up.is_some();
        let opener = FlightOpener { span, around, has_looked_up, group_of };
        let lent = self.lent.get_or_insert_with(|| Arc::new(Mutex::new(self.job.take())));
        let (core, job) = (Arc::clone(&self.core), Arc::clone(lent));
        FlightTask::new(core, leader, job, purpose, self.tags.clone(), opener)
    }

    /// Ends because a bound is reached.
    fn refuse(&mut self, limit: LimitEvent) -> State<S, Req> {
        let policy = &self.core.policy;
        let (most, what) = match limit {
            LimitEvent::Flights => (policy.max_flights, "keys are being loaded"),
            LimitEvent::Waiters => (policy.max_waiters, "callers wait for it"),
            LimitEvent::Loads => {
                (self.core.loads.bound.as_ref().map_or(0, Loads::most), CacheError::LOADS)
            }
        };
        self.core.statistics.refuse(limit);
        self.fail(CacheError::full(&self.key, most, what).into())
    }

    /// `Waiting` has ended.
    fn waited(&mut self, outcome: Option<Arc<Outcome>>, opener: bool) -> State<S, Req> {
        let Some(outcome) = outcome else {
            // A flight always answers its opener, unless its task was dropped. A runtime that drops
            // tasks as soon as they are spawned would make it open flights for ever.
            return match opener {
                true => self.fail(CacheError::load_lost(&self.key).into()),
                false => self.again(|it| it.join(None)),
            };
        };
        match &*outcome {
            Outcome::Value(kept, status) => self.answer_with(&**kept, status.clone(), opener),
            Outcome::Stale(fallback) => {
                self.fallback = Some(Box::new(fallback.clone()));
                self.fail(CacheError::load_lost(&self.key).into())
            }
            Outcome::LoadFailed(error) => {
                self.fail(Error::Load(SharedError::erased(Arc::clone(error))))
            }
            Outcome::FailedValue(kept) => {
                // In a cooldown the flight has an earlier failure, and its opener has not loaded.
                let led = opener && self.lent.as_ref().is_some_and(|lent| locked(lent).is_none());
                self.serve_stale(None, StaleReason::LoadFailed).unwrap_or_else(|| {
                    self.answer_with(&**kept, CacheStatus::Led { stored: false }, led)
                })
            }
            Outcome::PrivateOnce if mem::take(&mut self.options.retries_private) => {
                // The wait for a private answer of another caller does not count.
                self.waiting_since = Instant::now();
                self.again(|it| it.join(None))
            }
            Outcome::PrivateKey | Outcome::PrivateOnce => self.load(),
            Outcome::LookUp => self.again(Self::look_up),
            Outcome::Failed(error) if error.kind() == CacheErrorKind::Full => {
                self.refuse(LimitEvent::Loads)
            }
            Outcome::Failed(error) => self.fail(error.clone().into()),
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
        self.peeked(self.core.peek(&self.key, &self.tags), ask)
    }

    /// Goes on with what this process knows of the key without a request.
    fn peeked(
        &mut self,
        peeked: Peeked<S::Response>,
        ask: impl FnOnce(&mut Self) -> State<S, Req>,
    ) -> State<S, Req> {
        match peeked {
            Peeked::Hit(answer, fresh_for) => {
                State::Answered(Some((Ok(answer), CacheStatus::Hit { fresh_for })))
            }
            Peeked::Entry(entry) => self.consider(false, entry),
            Peeked::Audited(entry) => self.consider(true, entry),
            Peeked::Miss => self.join(None),
            Peeked::Unknown => ask(self),
        }
    }

    fn answer_with(
        &mut self,
        kept: &(dyn Any + Send + Sync),
        of_opener: CacheStatus,
        opener: bool,
    ) -> State<S, Req> {
        let status = self.status(of_opener, opener);
        if let Some(not_found) = kept.downcast_ref::<NotFound>() {
            return State::Answered(Some((Err(not_found.to_error(&self.key)), status)));
        }
        match kept.downcast_ref::<C::Kept>() {
            Some(it) => State::Answered(Some((Ok(self.core.codec.restore(it, &status)), status))),
            // Only if the flight were one of another type, and those are kept apart.
            None => self.fail(CacheError::load_lost(&self.key).into()),
        }
    }

    /// The status of this caller, by that of the one that opened the flight.
    fn status(&self, of_opener: CacheStatus, opener: bool) -> CacheStatus {
        let waited = self.begun.elapsed();
        match of_opener {
            CacheStatus::Collapsed { place, .. } => CacheStatus::Collapsed { place, waited },
            CacheStatus::Led { .. } | CacheStatus::Bypass(_) if !opener => {
                CacheStatus::Collapsed { place: LoadLocation::Local, waited }
            }
            status => status,
        }
    }

    /// Loads individually, without the cache.
    fn load(&mut self) -> State<S, Req> {
        if self.timer.is_late() {
            return self.out_of_time();
        }
        if self.options.returns_bypass {
            let status = CacheStatus::Bypass(BypassReason::Private);
            let error = CacheError::contended(&self.key).into();
            return State::Answered(Some((Err(error), status)));
        }
        self.timer.wait_until(None, None);
        match self.take_job() {
            Some(Job { service, request }) => {
                let statistics = &self.core.statistics;
                State::Loading(load_alone(service, request, Some(&self.key), statistics))
            }
            None => self.fail(CacheError::load_lost(&self.key).into()),
        }
    }

    /// The job, if no task has taken it to load.
    fn take_job(&mut self) -> Option<Job<S, Req>> {
        self.job.take().or_else(|| locked(self.lent.as_ref()?).take())
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
            (Elapsed::Wait, State::Waiting(waiter, _)) => self.give_up(waiter),
            (Elapsed::Doubt, State::Waiting(waiter, _)) => self.doubt(waiter),
            (Elapsed::Deadline, State::Waiting(waiter, _)) => self
                .serve_stale(Some(waiter), StaleReason::WaitRanOut)
                .or_else(|| Some(self.time_out(late, &waiter.awaited()))),
            (_, State::LookingUp { .. }) => {
                finish_alone(mem::replace(state, State::Begun(Peeked::Miss)));
                Some(match (elapsed, self.core.policy.wait.then) {
                    (Elapsed::Deadline, _) => self.out_of_time(),
                    (_, AfterWait::Fail) => self.time_out(CacheErrorKind::WaitTimedOut, STORE),
                    (_, AfterWait::Load) => self.join_uncached(),
                })
            }
            (Elapsed::Deadline, _) => Some(self.out_of_time()),
            _ => None,
        }
    }

    /// When the flight has taken long: its runtime may not be driven, if it is another one. `None` if it
    /// waits on. It sees that within the lease, so that it has an answer as soon as if that runtime were
    /// another process.
    fn doubt(&mut self, waiter: &Waiter<Outcome>) -> Option<State<S, Req>> {
        let patience = self.core.policy.lease / 4;
        if waiter.opener || !waiter.asks_in_vain(patience) {
            self.timer.doubt_at(Instant::now() + patience);
            return None;
        }
        self.flights().give_up((&self.key, self.types), waiter);
        Some(self.again(|it| it.join(None)))
    }

    /// When its wait has run out. `None` if its own load runs by now, or one for whose end it waits.
    fn give_up(&mut self, waiter: &Waiter<Outcome>) -> Option<State<S, Req>> {
        if waiter.opener && waiter.phase() == Phase::Loading {
            return None;
        }
        if let Some(stale) = self.serve_stale(Some(waiter), StaleReason::WaitRanOut) {
            return Some(stale);
        }
        let wait = self.core.policy.wait;
        match (waiter.phase(), wait.then) {
            (Phase::Loading, _) if wait.is_for_load() => None,
            (Phase::Queueing, _) => Some(self.refuse(LimitEvent::Loads)),
            (_, AfterWait::Fail) if wait.is_fail_fast() => {
                Some(self.fail(CacheError::contended(&self.key).into()))
            }
            (_, AfterWait::Fail) => {
                Some(self.time_out(CacheErrorKind::WaitTimedOut, &waiter.awaited()))
            }
            (_, AfterWait::Load) => {
                // The task of the flight that it leaves must not take the job any more.
                self.job = Some(self.take_job()?);
                self.lent = None;
                Some(self.join_uncached())
            }
        }
    }

    /// At its deadline, without a flight.
    fn out_of_time(&mut self) -> State<S, Req> {
        self.time_out(CacheErrorKind::DeadlineExceeded, STORE)
    }

    fn time_out(&mut self, kind: CacheErrorKind, awaited: &str) -> State<S, Req> {
        let limit = match kind {
            CacheErrorKind::DeadlineExceeded => "by the deadline, after",
            _ => "after a wait of",
        };
        let (key, waited) = (&self.key, self.begun.elapsed());
        let message = format!("`{key}` was not there {limit} {waited:?}: {awaited}");
        self.fail(CacheError::new(kind, message).into())
    }

    /// Ends with the stale entry that its lookup found, or with an error if there is none.
    fn fail(&mut self, error: Error<S::Own>) -> State<S, Req> {
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

    /// Counts the answer of this request.
    pub(super) fn count(&mut self, answer: &AnswerWithStatus<S::Response, S::Own>) {
        self.is_counted = true;
        let event = match answer {
            (_, CacheStatus::Hit { .. }) if !self.has_asked => RequestEvent::HitLocal,
            (Err(error), CacheStatus::Failed | CacheStatus::Bypass(_)) => failure(error),
            (_, status) => RequestEvent::of(status),
        };
        if let (_, CacheStatus::Collapsed { place, waited }) = answer {
            self.core.statistics.waited(*place, *waited);
        }
        self.end(event);
    }
}

impl<S, Req, C> PendingRequest<S, Req, C> {
    fn end(&mut self, event: RequestEvent) {
        mem::take(&mut self.span).end(event, self.begun);
        self.core.count(&self.options, event);
    }
}

impl<S, Req, C> Drop for PendingRequest<S, Req, C> {
    fn drop(&mut self) {
        if !self.is_counted {
            self.end(RequestEvent::Left);
        }
    }
}

/// What a request without a flight waits for.
const STORE: &str = "the store has not answered";
