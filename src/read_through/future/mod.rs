//! `AnswerFuture`: the future of one request. `state` has its states and its timer, and `pending_request`
//! what happens in them.

mod pending_request;
mod state;

use std::any::TypeId;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use pin_project::pin_project;
use tokio::time::{Instant, Sleep, timeout_at};

pub(super) use self::state::AnswerWithStatus;

use self::pending_request::PendingRequest;
use self::state::{State, answer_by, failure, has_runtime};
use super::core::{Core, Peeked};
use super::key_request::RequestOptions;
use super::load::{Job, Loader, load_alone};
use super::load_group::GroupOfItem;
use crate::box_future::BoxFuture;
use crate::codec::Codec;
use crate::error::{CacheError, CacheErrorKind, Error};
use crate::flight::PhaseListener;
use crate::key::Key;
use crate::stats::{RequestEvent, RequestRecord};
use crate::status::{BypassReason, CacheStatus};

/// The answer to one request: to a [service](crate::service::ReadThrough), to a call of a
/// [`Cache`](crate::Cache), or to a function with the attribute `#[read_through]`.
///
/// # Cancel safety
/// Dropping it takes nothing from other callers. A load that it has started goes on for its
/// waiters. If there are none, [`WhenAbandoned`](crate::WhenAbandoned) applies.
#[must_use = "futures do nothing unless polled"]
pub struct AnswerFuture<R, E>(Stage<R, E>);

/// What a request has come to. The poll that gives an answer takes it out.
enum Stage<R, E> {
    /// Answered from this process: the answer, and how much longer it is fresh. Most answers are of this
    /// kind, so it is kept small.
    Hit(Option<R>, Option<Duration>),
    Answered(Option<AnswerWithStatus<R, E>>),
    /// In a box, so that the future is small: callers move it into their tasks.
    Pending(BoxFuture<'static, AnswerWithStatus<R, E>>),
}

/// All that has to stay in place is in a box.
impl<R, E> Unpin for AnswerFuture<R, E> {}

impl<R, E> AnswerFuture<R, E> {
    /// Waits for the answer and how it came about, with the same cancel safety.
    pub fn with_status(mut self) -> impl Future<Output = AnswerWithStatus<R, E>> + use<R, E> {
        poll_fn(move |cx| self.poll_answer(cx))
    }

    fn ready(answer: AnswerWithStatus<R, E>) -> Self {
        Self(Stage::Answered(Some(answer)))
    }

    fn misused<C>(core: &Core<C>, options: &RequestOptions, error: CacheError) -> Self {
        core.count(options, RequestEvent::FailedMisuse);
        Self::ready((Err(error.into()), CacheStatus::Failed))
    }

    /// The answer, if there is one without a wait. It is taken out: the future has none any more.
    pub(super) fn at_once(&mut self) -> Option<AnswerWithStatus<R, E>> {
        match &mut self.0 {
            Stage::Hit(answer, fresh_for) => {
                let status = CacheStatus::Hit { fresh_for: *fresh_for };
                answer.take().map(|answer| (Ok(answer), status))
            }
            Stage::Answered(answer) => answer.take(),
            Stage::Pending(_) => None,
        }
    }

    #[inline]
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<AnswerWithStatus<R, E>> {
        match &mut self.0 {
            Stage::Pending(answer) => answer.as_mut().poll(cx),
            _ => Poll::Ready(self.at_once().expect("polled after it was ready")),
        }
    }
}

impl<R, E> Future for AnswerFuture<R, E> {
    type Output = Result<R, Error<E>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Most requests are answered by the time of their first poll, and this moves least.
        if let Stage::Hit(hit, _) = &mut self.0
            && let Some(answer) = hit.take()
        {
            return Poll::Ready(Ok(answer));
        }
        self.poll_answer(cx).map(|(answer, _)| answer)
    }
}

crate::debug_fields! { AnswerFuture<R, E> }

/// Begins a request without a key: it bypasses the cache. Without a runtime there are no timers,
/// and no deadline.
pub(super) fn bypass<S: Loader<Req>, Req: Send + 'static, C>(
    core: &Core<C>,
    loader: S,
    request: Req,
    options: RequestOptions,
) -> AnswerFuture<S::Response, S::Own> {
    let deadline = options.deadline.map(answer_by);
    let statistics = &core.statistics;
    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        statistics.request(RequestEvent::FailedDeadline);
        return AnswerFuture::ready(late());
    }
    let record = RequestRecord::begin(Arc::clone(statistics));
    let load = load_alone(loader, request, None, statistics);
    let answer = async move {
        let loaded = match deadline.filter(|_| has_runtime()) {
            Some(deadline) => timeout_at(deadline, load).await,
            None => Ok(load.await),
        };
        let status = CacheStatus::Bypass(BypassReason::NoKey);
        let answered = match loaded {
            Ok(Ok(answer)) => (answer, status),
            Ok(Err(panicked)) => (Err(panicked.into()), status),
            Err(_) => late(),
        };
        record.count(answered.0.as_ref().map_or_else(failure, |_| RequestEvent::BypassedNoKey));
        answered
    };
    AnswerFuture(Stage::Pending(answer.boxed()))
}

/// Begins a request under a key: answers it from this process, or prepares to ask the store. One of a
/// batch has an `item`.
#[inline]
pub(super) fn begin<S: Loader<Req>, Req: Send + 'static, C: Codec<S::Response>>(
    core: &Arc<Core<C>>,
    key: Key,
    loader: impl FnOnce() -> S,
    request: Req,
    options: RequestOptions,
    item: impl FnOnce() -> Option<(PhaseListener, GroupOfItem)>,
) -> AnswerFuture<S::Response, S::Own> {
    if key.byte_len() > Key::MAX_BYTES {
        return AnswerFuture::misused(core, &options, CacheError::key_too_long(&key));
    }
    let peeked = match options.is_forced {
        true => Peeked::Miss,
        false => core.peek::<S::Response>(&key, &options.tags),
    };
    if let Peeked::Hit(answer, fresh_for) = peeked {
        core.count(&options, RequestEvent::HitLocal);
        return AnswerFuture(Stage::Hit(Some(answer), fresh_for));
    }
    pending(core, key, Job { service: loader(), request }, options, peeked, item())
}

/// A request that is not answered at once. A function of its own, so that a hit has less to do.
#[inline(never)]
fn pending<S: Loader<Req>, Req: Send + 'static, C: Codec<S::Response>>(
    core: &Arc<Core<C>>,
    key: Key,
    job: Job<S, Req>,
    options: RequestOptions,
    peeked: Peeked<S::Response>,
    item: Option<(PhaseListener, GroupOfItem)>,
) -> AnswerFuture<S::Response, S::Own> {
    let tags = match core.tags.of(&job.request, &options.tags) {
        Ok(tags) => tags,
        Err(many) => {
            return AnswerFuture::misused(core, &options, CacheError::too_many_tags(&key, &many));
        }
    };
    // Moved to when the wait has to end.
    let options = RequestOptions { deadline: options.deadline.map(answer_by), ..options };
    let types = TypeId::of::<(C::Kept, S::Own)>();
    let mut request = PendingRequest::new(Arc::clone(core), key, types, tags, job, options);
    (request.listener, request.group_of) = item.unzip();
    let request = TimedRequest { request, state: State::Begun(peeked), sleep: None };
    AnswerFuture(Stage::Pending(Box::pin(request)))
}

/// A request, its state, and the sleep until the first of its moments.
#[pin_project]
struct TimedRequest<S: Loader<Req>, Req, C> {
    request: PendingRequest<S, Req, C>,
    state: State<S, Req>,
    /// Made when it first waits.
    #[pin]
    sleep: Option<Sleep>,
}

impl<S: Loader<Req>, Req: Send + 'static, C: Codec<S::Response>> Future
    for TimedRequest<S, Req, C>
{
    type Output = AnswerWithStatus<S::Response, S::Own>;

    /// Until there is an answer, each step of the loop is a transition of the request.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            if let State::Answered(answer) = this.state {
                let answer = answer.take().expect("polled after it was ready");
                this.request.count(&answer);
                return Poll::Ready(answer);
            }
            let span = this.request.span.own.clone();
            let _entered = span.enter();
            *this.state = ready!(this.request.advance(this.state, this.sleep.as_mut(), cx));
        }
    }
}

/// The answer to a request without a key at its deadline.
fn late<R, E>() -> AnswerWithStatus<R, E> {
    let message = "the loader has not answered a request without a key by its deadline";
    let error = CacheError::new(CacheErrorKind::DeadlineExceeded, message.to_owned());
    (Err(error.into()), CacheStatus::Failed)
}
