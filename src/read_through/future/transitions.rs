//! The transitions of a request: what each state waits for, and which state follows.
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
//! `poll` drives a state to its end. The functions below it choose the next state, in the same
//! order.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::Service;

use super::alone_load::AloneLoad;
use super::bounded_lookup::{BoundedLookup, LookupEnd};
use super::bounded_wait::WaitEnd;
use super::fallback::FoundFallback;
use super::pending_request::PendingRequest;
use super::state::{AnswerWithStatus, Start, State, StateProjection, once};
use crate::codec::Codec;
use crate::error::{BoxError, CacheError, CacheErrorKind, Error, StoreError};
use crate::flight::{Completion, Phase, Role};
use crate::read_through::core::{self, Peeked};
use crate::read_through::flight_task::Purpose;
use crate::read_through::job::Job;
use crate::read_through::outcome::{Outcome, ValueOrigin};
use crate::shared_error::SharedError;
use crate::stats::{LimitEvent, StoreFailure};
use crate::status::{BypassReason, CacheStatus, StaleReason};
use crate::store::{Accept, Entry};

impl<S, Req> State<S, Req>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    Req: Send + 'static,
{
    /// Goes from state to state until there is an answer. There is no `request` only in states that
    /// need no transition: answers, and a load without a key.
    #[inline]
    pub(super) fn poll<C: Codec<S::Response>>(
        mut self: Pin<&mut Self>,
        request: &mut Option<PendingRequest<S, Req, C>>,
        cx: &mut Context<'_>,
    ) -> Poll<AnswerWithStatus<S::Response, S::Error>> {
        loop {
            let span = request.as_ref().map(|request| request.span.own()).unwrap_or_default();
            let _entered = span.enter();
            let next = match (self.as_mut().project(), request.as_mut()) {
                (StateProjection::Hit(answer, fresh_for), _) => {
                    let status = CacheStatus::Hit { fresh_for: *fresh_for };
                    return Poll::Ready((Ok(once(answer)), status));
                }
                (StateProjection::Answered(answer), _) => return Poll::Ready(once(answer)),
                (StateProjection::Begun(start), Some(request)) => request.start(start),
                (StateProjection::LookingUp(lookup), Some(request)) => {
                    let end = ready!(lookup.poll(cx));
                    request.looked_up(end)
                }
                (StateProjection::Waiting(mut waiting), Some(request)) => {
                    match ready!(waiting.as_mut().poll(cx)) {
                        WaitEnd::Completed(completion) => {
                            request.waited(completion, waiting.waiter().is_opener())
                        }
                        WaitEnd::Slow => match request.load_is_slow(waiting.waiter()) {
                            Some(stale) => stale,
                            None => continue,
                        },
                        WaitEnd::RanOut => match request.give_up(waiting.waiter()) {
                            Some(next) => next,
                            None => {
                                waiting.keep_waiting();
                                continue;
                            }
                        },
                    }
                }
                (StateProjection::Loading(response, why), request) => {
                    let answer = ready!(response.as_mut().poll(cx));
                    return Poll::Ready(loaded(request, answer, *why));
                }
                (_, None) => unreachable!("without a request, it is answered or loads"),
            };
            self.set(next);
        }
    }

    /// Ends the wait at the deadline. A flight goes on without this caller, and keeps its request
    /// if the request was lent to it.
    pub(super) fn run_out<C: Codec<S::Response>>(
        mut self: Pin<&mut Self>,
        request: &mut PendingRequest<S, Req, C>,
    ) {
        let next = match self.as_mut().project() {
            StateProjection::Waiting(waiting) => request.out_of_time(Some(waiting.waiter())),
            StateProjection::LookingUp(lookup) => {
                lookup.finish_alone();
                request.out_of_time(None)
            }
            _ => request.out_of_time(None),
        };
        self.set(next);
    }
}

impl<S, Req, C> PendingRequest<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    /// `Begun`: looks up alone if no other caller asks for this key, or else joins.
    fn start(&mut self, start: &mut Start) -> State<S, Req> {
        self.begun = Instant::now();
        self.waiting_since = self.begun;
        match std::mem::replace(start, Start::Join) {
            Start::Entry(entry) => self.consider(entry),
            Start::LookUp if !self.options.is_forced => self.look_up(),
            Start::LookUp | Start::Join => self.join(None),
        }
    }

    fn look_up(&mut self) -> State<S, Req> {
        self.asks();
        if self.is_late() {
            return self.out_of_time(None);
        }
        match self.core.loads.flights.look_up_alone(&self.key) {
            Some(lookup) => {
                let max_wait = self.core.policy.max_lookup_wait();
                let until = max_wait.map(|max_wait| self.waiting_since + max_wait);
                State::LookingUp(BoundedLookup::new(
                    self.core.store.lookup_tagged(self.key.clone(), self.tags.clone()),
                    lookup,
                    until,
                ))
            }
            None => self.join(None),
        }
    }

    /// `LookingUp` has ended.
    fn looked_up(&mut self, end: LookupEnd) -> State<S, Req> {
        match end {
            LookupEnd::Answered(Ok(Some(entry))) => self.consider(entry),
            LookupEnd::Answered(Ok(None)) => self.join(None),
            LookupEnd::Answered(Err(error)) => {
                self.core.statistics.store_failed(StoreFailure::Lookup, &error);
                self.join(Some(error))
            }
            LookupEnd::RanOut => self.give_up_lookup(),
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
                self.fallback = FoundFallback::of(entry).map(Box::new);
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

    /// Opens or joins the flight of its key.
    fn join(&mut self, store_failed: Option<StoreError>) -> State<S, Req> {
        self.asks();
        if self.is_late() {
            return self.out_of_time(None);
        }
        self.bypassing =
            self.core.bypass(&self.key, &self.options).filter(|_| store_failed.is_none());
        if self.bypassing.is_some() {
            return self.load(BypassReason::NotKept);
        }
        let Ok(runtime) = Handle::try_current() else {
            return self.fail(CacheError::no_runtime(&self.key).into());
        };
        let (flights, purpose) = match self.options.is_forced {
            true => (&self.core.loads.forced, Purpose::ForceRefresh),
            false => (&self.core.loads.flights, Purpose::Answer),
        };
        let fails_fast = self.core.policy.wait.is_fail_fast();
        let waiter = match flights.join(&self.key, &self.tags, fails_fast, self.span.caller()) {
            Role::Joined(waiter) => {
                if let Some(listener) = &self.listener {
                    listener(Phase::Waiting);
                }
                waiter
            }
            Role::Opened(leader, waiter) => {
                let job = self.lend();
                let task = self.task(leader, job, purpose);
                match store_failed {
                    Some(error) => runtime.spawn(task.run_after(error)),
                    None => runtime.spawn(task.run()),
                };
                waiter
            }
            Role::Refused(full) => return self.refuse(full),
        };
        State::Waiting(self.wait(waiter))
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
            Outcome::LoadFailed(error) => self.fail(Error::Load(SharedError::erased(error))),
            Outcome::FailedValue(kept) => {
                // In a cooldown the flight has an earlier failure, and its opener has not loaded.
                let led = opener && self.lent.as_ref().is_some_and(|lent| !lent.is_there());
                self.stale_fallback(StaleReason::LoadFailed).unwrap_or_else(|| {
                    self.answer_with(kept, ValueOrigin::Loaded { stored: false }, led)
                })
            }
            Outcome::PrivateOnce if std::mem::take(&mut self.options.retries_private) => {
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

    /// Loads individually, without the cache.
    fn load(&mut self, why: BypassReason) -> State<S, Req> {
        if self.is_late() {
            return self.out_of_time(None);
        }
        if self.options.returns_bypass {
            let error = CacheError::contended(&self.key);
            return State::Answered(Some((Err(error.into()), CacheStatus::Bypass(why))));
        }
        match self.take_job() {
            Some(Job { service, request }) => {
                let statistics = &self.core.statistics;
                let load = AloneLoad::new(service, request, Some(&self.key), statistics);
                State::Loading(Box::pin(load), why)
            }
            None => self.fail(CacheError::load_lost(&self.key).into()),
        }
    }
}

/// `Loading` has ended. Without a key there is no `request`, and nothing to remember.
fn loaded<S, Req, C>(
    request: Option<&mut PendingRequest<S, Req, C>>,
    answer: Result<Result<S::Response, S::Error>, CacheError>,
    why: BypassReason,
) -> AnswerWithStatus<S::Response, S::Error>
where
    S: Service<Req>,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    C: Codec<S::Response>,
{
    let status = CacheStatus::Bypass(why);
    match (answer, request) {
        (Ok(answer), Some(request)) => request.core.bypass_answer(&request.key, answer, status),
        (Ok(answer), None) => {
            (answer.map_err(|error| Error::Load(SharedError::new(error))), status)
        }
        (Err(panicked), _) => (Err(panicked.into()), status),
    }
}
