//! `ResponseFuture`: the future of one request. `state` has its states, `transitions` what happens
//! in them, and `giving_up` how a wait ends without an outcome.

mod accounting;
mod alone_load;
mod bounded_lookup;
mod bounded_wait;
mod fallback;
mod giving_up;
mod pending_request;
mod request_span;
mod state;
mod transitions;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tokio::time::Instant;
use tower::Service;

pub use self::alone_load::AloneLoad;

pub(super) use self::state::AnswerWithStatus;

use self::pending_request::PendingRequest;
use self::state::{Start, State, StateProjection, once};
use super::core::{Core, Peeked};
use super::deadline::{Deadline, answer_by};
use super::job::Job;
use super::lookup::RequestOptions;
use crate::codec::Codec;
use crate::error::{BoxError, CacheError, CacheErrorKind, Error};
use crate::flight::PhaseListener;
use crate::key::Key;
use crate::stats::RequestEvent;
use crate::status::{BypassReason, CacheStatus};

/// The future of one request. Made by [`ReadThrough`](crate::ReadThrough).
///
/// # Cancel safety
/// Dropping it takes nothing from other callers. A load that it has started goes on for its
/// waiters. If there are none, [`WhenAbandoned`](crate::WhenAbandoned) applies.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S, Req, C>
where
    S: Service<Req>,
{
    request: Option<PendingRequest<S, Req, C>>,
    #[pin]
    state: State<S, Req>,
    /// When it is answered at the latest. In a box, since few requests have one.
    deadline: Option<Box<Deadline>>,
}

impl<S, Req, C> ResponseFuture<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    /// Waits for the answer and how it came about.
    pub fn with_status(self) -> WithStatus<S, Req, C> {
        WithStatus(self)
    }

    /// Begins a request without a key: it bypasses the cache.
    pub(super) fn bypass(
        core: &Core<C>,
        service: S,
        request: Req,
        options: RequestOptions,
    ) -> Self {
        let options = on_time(options);
        let statistics = &core.statistics;
        if options.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            statistics.request(RequestEvent::FailedDeadline);
            return Self::settled(late());
        }
        statistics.request(RequestEvent::BypassedNoKey);
        let load = AloneLoad::new(service, request, None, statistics);
        let bypassing = State::Loading(Box::pin(load), BypassReason::NoKey);
        Self { request: None, state: bypassing, deadline: boxed(&options) }
    }

    /// Begins a request under a key: answers it from this process, or prepares to ask the store.
    #[inline]
    pub(super) fn begin(
        core: &Arc<Core<C>>,
        key: Key,
        service: &S,
        request: Req,
        options: RequestOptions,
    ) -> Self {
        Self::begin_as::<S::Error>(core, key, service, request, options)
    }

    /// The same, among the loads of loaders whose own errors are of this type.
    #[inline]
    pub(super) fn begin_as<E: 'static>(
        core: &Arc<Core<C>>,
        key: Key,
        service: &S,
        request: Req,
        options: RequestOptions,
    ) -> Self {
        if key.byte_len() > Key::MAX_BYTES {
            count(core, &options, RequestEvent::FailedMisuse);
            let error = CacheError::key_too_long(&key);
            return Self::settled((Err(error.into()), CacheStatus::Failed));
        }
        let peeked = match options.is_forced {
            true => Peeked::Miss,
            false => core.peek::<S::Response>(&key, &options.tags),
        };
        let start = match peeked {
            Peeked::Hit(answer, fresh_for) => {
                count(core, &options, RequestEvent::HitLocal);
                let hit = State::Hit(Some(answer), fresh_for);
                return Self { request: None, state: hit, deadline: None };
            }
            Peeked::Entry(entry) => Start::Entry(entry),
            Peeked::Miss => Start::Join,
            Peeked::Unknown => Start::LookUp,
        };
        Self::pending::<E>(core, key, service, request, options, start)
    }

    /// A request that is not answered at once. A function of its own, so that a hit has less to do.
    #[inline(never)]
    fn pending<E: 'static>(
        core: &Arc<Core<C>>,
        key: Key,
        service: &S,
        request: Req,
        options: RequestOptions,
        start: Start,
    ) -> Self {
        let tags = match core.tags.of(&request, &options.tags) {
            Ok(tags) => tags,
            Err(many) => {
                count(core, &options, RequestEvent::FailedMisuse);
                let error = CacheError::too_many_tags(&key, many);
                return Self::settled((Err(error.into()), CacheStatus::Failed));
            }
        };
        let options = on_time(options);
        let job = Job { service: service.clone(), request };
        let core = core.of_types::<S::Response, E>();
        let deadline = boxed(&options);
        let request = PendingRequest::new(core, key, tags, job, options);
        Self { request: Some(request), state: State::Begun(start), deadline }
    }

    #[inline]
    fn settled(answer: AnswerWithStatus<S::Response, S::Error>) -> Self {
        Self { request: None, state: State::Answered(Some(answer)), deadline: None }
    }

    /// Sets what is called with each phase of its flight.
    pub(super) fn with_listener(mut self, listener: impl FnOnce() -> PhaseListener) -> Self {
        if let Some(request) = &mut self.request {
            request.set_listener(listener());
        }
        self
    }

    /// The answer, if there is one without a wait. It is taken out: the future has none any more.
    pub(super) fn at_once(&mut self) -> Option<AnswerWithStatus<S::Response, S::Error>> {
        match &mut self.state {
            State::Answered(answer) => answer.take(),
            State::Hit(answer, fresh_for) => {
                let status = CacheStatus::Hit { fresh_for: *fresh_for };
                answer.take().map(|answer| (Ok(answer), status))
            }
            _ => None,
        }
    }

    fn poll_answer(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<AnswerWithStatus<S::Response, S::Error>> {
        let polled = self.as_mut().poll_until_deadline(cx);
        if let (Poll::Ready(answer), Some(request)) = (&polled, self.project().request) {
            request.count(answer);
        }
        polled
    }

    #[inline]
    fn poll_until_deadline(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<AnswerWithStatus<S::Response, S::Error>> {
        let mut this = self.project();
        let answer = this.state.as_mut().poll(this.request, cx);
        let (Poll::Pending, Some(deadline)) = (&answer, this.deadline) else { return answer };
        ready!(deadline.poll(cx));
        let Some(request) = this.request else { return Poll::Ready(late()) };
        this.state.as_mut().run_out(request);
        this.state.poll(this.request, cx)
    }
}

impl<S, Req, C> Future for ResponseFuture<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    type Output = Result<S::Response, Error<S::Error>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Most requests are answered by the time of their first poll, and this moves least.
        let this = self.as_mut().project();
        if let (StateProjection::Hit(answer, _), None) = (this.state.project(), this.request) {
            return Poll::Ready(Ok(once(answer)));
        }
        self.poll_answer(cx).map(|(answer, _)| answer)
    }
}

/// Counts a request that is answered at once, or notes its end if it is a part of another one.
#[inline]
fn count<C>(core: &Core<C>, options: &RequestOptions, event: RequestEvent) {
    match &options.noted {
        Some(noted) => noted.note(event),
        None => core.statistics.request(event),
    }
}

/// The same options, with the deadline moved to when the wait has to end.
fn on_time(options: RequestOptions) -> RequestOptions {
    RequestOptions { deadline: options.deadline.map(answer_by), ..options }
}

fn boxed(options: &RequestOptions) -> Option<Box<Deadline>> {
    options.deadline.map(|deadline| Box::new(Deadline::at(deadline)))
}

/// The answer to a request without a key at its deadline.
fn late<R, E>() -> AnswerWithStatus<R, E> {
    let message = "the loader has not answered a request without a key by its deadline";
    let error = CacheError::new(CacheErrorKind::DeadlineExceeded, message.to_owned());
    (Err(error.into()), CacheStatus::Failed)
}

impl<S: Service<Req>, Req, C> fmt::Debug for ResponseFuture<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("request", &self.request).finish_non_exhaustive()
    }
}

/// The future of one request, which gives its [`CacheStatus`] beside the answer. Made by
/// [`ResponseFuture::with_status`], with the same cancel safety.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct WithStatus<S, Req, C>(#[pin] ResponseFuture<S, Req, C>)
where
    S: Service<Req>;

impl<S, Req, C> Future for WithStatus<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    type Output = (Result<S::Response, Error<S::Error>>, CacheStatus);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().0.poll_answer(cx)
    }
}
