//! `ResponseFuture`: the future of one request. `state` has its states and its timer, and `pending_request`
//! what happens in them. `AnswerFuture` is one without the types of its loader and its codec.

mod pending_request;
mod state;

use std::any::TypeId;
use std::fmt;
use std::future::{self, Future, Ready, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::Either;
use pin_project::pin_project;
use tokio::time::{Instant, Sleep, timeout_at};
use tower::Service;

pub(super) use self::state::AnswerWithStatus;

use self::pending_request::PendingRequest;
use self::state::{State, answer_by, failure, has_runtime};
use super::core::{Core, Peeked};
use super::key_request::RequestOptions;
use super::load::{Job, Loader, load_alone};
use super::load_group::GroupOfItem;
use crate::box_future::BoxFuture;
use crate::codec::Codec;
use crate::error::{BoxError, CacheError, CacheErrorKind, Error};
use crate::flight::PhaseListener;
use crate::key::Key;
use crate::shared_error::SharedError;
use crate::stats::{RequestEvent, RequestRecord};
use crate::status::{BypassReason, CacheStatus};

/// The future of one request. Made by [`ReadThrough`](crate::service::ReadThrough).
///
/// # Cancel safety
/// Dropping it takes nothing from other callers. A load that it has started goes on for its
/// waiters. If there are none, [`WhenAbandoned`](crate::WhenAbandoned) applies.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S: Service<Req>, Req, C> {
    /// `None`: it was answered at once.
    request: Option<Pin<Box<TimedRequest<S, Req, C>>>>,
    state: State<S, Req>,
}

/// A request, and the sleep until the first of its moments. In one box, so that the future is small:
/// callers move it into their tasks.
#[pin_project]
struct TimedRequest<S, Req, C> {
    request: PendingRequest<S, Req, C>,
    /// Made when it first waits.
    #[pin]
    sleep: Option<Sleep>,
}

/// All that has to stay in place is in boxes.
impl<S: Service<Req>, Req, C> Unpin for ResponseFuture<S, Req, C> {}

impl<S, Req: Send + 'static, C: Codec<S::Response>> ResponseFuture<S, Req, C>
where
    S: Service<Req, Error: Into<BoxError> + Send + Sync + 'static, Future: Send>,
    S: Clone + Send + 'static,
{
    /// Waits for the answer and how it came about, with the same cancel safety.
    pub fn with_status(mut self) -> impl Future<Output = AnswerWithStatus<S::Response, S::Error>> {
        poll_fn(move |cx| self.poll_answer(cx))
    }

    /// Begins a request without a key: it bypasses the cache. Without a runtime there are no timers,
    /// and no deadline.
    pub(super) fn bypass(core: &Core<C>, inner: S, request: Req, options: RequestOptions) -> Self {
        let deadline = options.deadline.map(answer_by);
        let statistics = &core.statistics;
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            statistics.request(RequestEvent::FailedDeadline);
            return Self::ready(late());
        }
        let record = RequestRecord::begin(Arc::clone(statistics));
        let load = load_alone(inner, request, None, statistics);
        let answer = async move {
            let loaded = match deadline.filter(|_| has_runtime()) {
                Some(deadline) => timeout_at(deadline, load).await,
                None => Ok(load.await),
            };
            let status = CacheStatus::Bypass(BypassReason::NoKey);
            let answered = match loaded {
                Ok(Ok(Ok(answer))) => (Ok(answer), status),
                Ok(Ok(Err(error))) => (Err(Error::Load(SharedError::new(error))), status),
                Ok(Err(panicked)) => (Err(panicked.into()), status),
                Err(_) => late(),
            };
            record.count(answered.0.as_ref().map_or_else(failure, |_| RequestEvent::BypassedNoKey));
            answered
        };
        Self { request: None, state: State::Keyless(answer.boxed()) }
    }

    /// Begins a request under a key, among the loads of loaders whose own errors are of type `E`:
    /// answers it from this process, or prepares to ask the store.
    #[inline]
    pub(super) fn begin<E: 'static>(
        core: &Arc<Core<C>>,
        key: Key,
        service: &S,
        request: Req,
        options: RequestOptions,
    ) -> Self {
        if key.byte_len() > Key::MAX_BYTES {
            return Self::misused(core, &options, CacheError::key_too_long(&key));
        }
        let peeked = match options.is_forced {
            true => Peeked::Miss,
            false => core.peek::<S::Response>(&key, &options.tags),
        };
        if let Peeked::Hit(answer, fresh_for) = peeked {
            core.count(&options, RequestEvent::HitLocal);
            return Self { request: None, state: State::Hit(Some(answer), fresh_for) };
        }
        Self::pending::<E>(core, key, service, request, options, peeked)
    }

    /// A request that is not answered at once. A function of its own, so that a hit has less to do.
    #[inline(never)]
    fn pending<E: 'static>(
        core: &Arc<Core<C>>,
        key: Key,
        service: &S,
        request: Req,
        options: RequestOptions,
        peeked: Peeked<S::Response>,
    ) -> Self {
        let tags = match core.tags.of(&request, &options.tags) {
            Ok(tags) => tags,
            Err(many) => {
                return Self::misused(core, &options, CacheError::too_many_tags(&key, &many));
            }
        };
        // Moved to when the wait has to end.
        let options = RequestOptions { deadline: options.deadline.map(answer_by), ..options };
        let job = Job { service: service.clone(), request };
        let types = TypeId::of::<(C::Kept, E)>();
        let request = PendingRequest::new(Arc::clone(core), key, types, tags, job, options);
        let request = Box::pin(TimedRequest { request, sleep: None });
        Self { request: Some(request), state: State::Begun(peeked) }
    }

    fn misused(core: &Core<C>, options: &RequestOptions, error: CacheError) -> Self {
        core.count(options, RequestEvent::FailedMisuse);
        Self::ready((Err(error.into()), CacheStatus::Failed))
    }

    fn ready(answer: AnswerWithStatus<S::Response, S::Error>) -> Self {
        Self { request: None, state: State::Answered(Some(answer)) }
    }

    /// Sets what is called with each phase of its flight, and what gives it its group: it is an item of a
    /// batch.
    pub(super) fn of_batch(mut self, item: impl FnOnce() -> (PhaseListener, GroupOfItem)) -> Self {
        if let Some(request) = &mut self.request {
            let (listener, group_of) = item();
            let request = request.as_mut().project().request;
            (request.listener, request.group_of) = (Some(listener), Some(group_of));
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

    /// Until there is an answer, each step of the loop is a transition of the request.
    #[inline]
    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<AnswerWithStatus<S::Response, S::Error>> {
        loop {
            if let Some(answer) = self.at_once() {
                if let Some(timed) = &mut self.request {
                    timed.as_mut().project().request.count(&answer);
                }
                return Poll::Ready(answer);
            }
            let timed = match (&mut self.state, &mut self.request) {
                (State::Keyless(answer), _) => return answer.as_mut().poll(cx),
                (_, Some(timed)) => timed.as_mut().project(),
                (_, None) => panic!("polled after it was ready"),
            };
            let span = timed.request.span.own.clone();
            let _entered = span.enter();
            self.state = ready!(timed.request.advance(&mut self.state, timed.sleep, cx));
        }
    }
}

impl<S, Req: Send + 'static, C: Codec<S::Response>> Future for ResponseFuture<S, Req, C>
where
    S: Service<Req, Error: Into<BoxError> + Send + Sync + 'static, Future: Send>,
    S: Clone + Send + 'static,
{
    type Output = Result<S::Response, Error<S::Error>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Most requests are answered by the time of their first poll, and this moves least.
        if let Self { state: State::Hit(hit, _), request: None } = &mut *self
            && let Some(answer) = hit.take()
        {
            return Poll::Ready(Ok(answer));
        }
        self.poll_answer(cx).map(|(answer, _)| answer)
    }
}

/// The answer to a request without a key at its deadline.
fn late<R, E>() -> AnswerWithStatus<R, E> {
    let message = "the loader has not answered a request without a key by its deadline";
    let error = CacheError::new(CacheErrorKind::DeadlineExceeded, message.to_owned());
    (Err(error.into()), CacheStatus::Failed)
}

impl<S: Service<Req>, Req, C> fmt::Debug for ResponseFuture<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// The answer to one call of a [`Cache`](crate::Cache) or of a function with the attribute
/// `#[read_through]`.
///
/// # Cancel safety
/// Dropping it takes nothing from other callers. A load that it has started goes on for its
/// waiters. If there are none, [`WhenAbandoned`](crate::WhenAbandoned) applies.
#[must_use = "futures do nothing unless polled"]
pub struct AnswerFuture<R, E>(AtOnceOrBoxed<AnswerWithStatus<R, E>>);

/// An answer that was there at once takes no box.
type AtOnceOrBoxed<A> = Either<Ready<A>, BoxFuture<'static, A>>;

impl<R, E> AnswerFuture<R, E> {
    /// Waits for the answer and how it came about, with the same cancel safety.
    pub fn with_status(self) -> impl Future<Output = AnswerWithStatus<R, E>> + use<R, E> {
        self.0
    }
}

impl<S: Loader<Req, Response: Send>, Req: Send + 'static, C: Codec<S::Response>>
    From<ResponseFuture<S, Req, C>> for AnswerFuture<S::Response, S::Error>
{
    #[inline]
    fn from(mut answer: ResponseFuture<S, Req, C>) -> Self {
        match answer.at_once() {
            Some(answer) => Self(Either::Left(future::ready(answer))),
            None => Self(Either::Right(answer.with_status().boxed())),
        }
    }
}

impl<R, E> Future for AnswerFuture<R, E> {
    type Output = Result<R, Error<E>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx).map(|(answer, _)| answer)
    }
}

impl<R, E> fmt::Debug for AnswerFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerFuture").finish_non_exhaustive()
    }
}
