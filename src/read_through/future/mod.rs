//! `ResponseFuture`: one request on its way. Its states are in `states`.

mod fallback;
mod giving_up;
mod looking;
mod request;
mod states;
mod waiting;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tokio::time::Instant;
use tower::{Service, ServiceExt};

pub(super) use self::states::Settled;

use self::request::Request;
use self::states::{Start, State};
use super::core::{Core, Peeked};
use super::deadline::{Deadline, answer_by};
use super::load::Job;
use super::lookup::RequestOptions;
use crate::codec::Codec;
use crate::error::{CacheError, CacheErrorKind, Error};
use crate::flight::Listener;
use crate::key::Key;
use crate::status::{BypassReason, CacheStatus};

/// One request on its way. Made by [`ReadThrough`](super::ReadThrough).
///
/// # Cancel safety
/// Dropping it takes nothing from others. A load that it has started goes on for those who wait
/// for it; when it was the last, the policy says what becomes of it.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S, Req, C>
where
    S: Service<Req>,
{
    request: Option<Request<S, Req, C>>,
    #[pin]
    state: State<S, Req>,
    /// When it is answered at the latest. In a box, as few have one.
    deadline: Option<Box<Deadline>>,
}

impl<S, Req, C> ResponseFuture<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    /// Waits for the answer together with how it came about.
    pub fn with_status(self) -> WithStatus<S, Req, C> {
        WithStatus(self)
    }

    pub(super) fn pass(service: S, request: Req, how: RequestOptions) -> Self {
        let how = on_time(how);
        if how.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Self::settled(late());
        }
        let passing = State::Loading(Box::pin(service.oneshot(request)), BypassReason::NoKey);
        Self { request: None, state: passing, deadline: boxed(how) }
    }

    /// Looks at what this process knows by itself, and prepares to ask if that does not do.
    #[inline]
    pub(super) fn begin(
        core: &Arc<Core<C>>,
        key: Key,
        service: &S,
        request: Req,
        how: RequestOptions,
    ) -> Self {
        if key.byte_len() > Key::MAX_BYTES {
            let error = CacheError::key_too_long(&key);
            return Self::settled((Err(error.into()), CacheStatus::Failed));
        }
        let peeked = if how.is_forced { Peeked::Miss } else { core.peek::<S::Response>(&key) };
        let start = match peeked {
            Peeked::Hit(answer, fresh_for) => {
                let hit = State::Hit(Some(answer), fresh_for);
                return Self { request: None, state: hit, deadline: None };
            }
            Peeked::Entry(entry) => Start::With(entry),
            Peeked::Miss => Start::Join,
            Peeked::Unknown => Start::Look,
        };
        let how = on_time(how);
        let job = Job { service: service.clone(), request };
        let request = Request::new(Arc::clone(core), key, job, how);
        Self { request: Some(request), state: State::Begun(start), deadline: boxed(how) }
    }

    #[inline]
    fn settled(answer: Settled<S::Response, S::Error>) -> Self {
        Self { request: None, state: State::Answered(Some(answer)), deadline: None }
    }

    /// Tells somebody what its flights wait for.
    pub(super) fn heard_by(mut self, listener: impl FnOnce() -> Listener) -> Self {
        if let Some(request) = &mut self.request {
            request.set_listener(listener());
        }
        self
    }

    /// The answer, if nobody has to be asked for it.
    pub(super) fn at_once(&mut self) -> Option<Settled<S::Response, S::Error>> {
        match &mut self.state {
            State::Answered(answer) => answer.take(),
            State::Hit(answer, fresh_for) => {
                let status = CacheStatus::Hit { fresh_for: *fresh_for };
                answer.take().map(|answer| (Ok(answer), status))
            }
            _ => None,
        }
    }

    #[inline]
    fn poll_answer(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Settled<S::Response, S::Error>> {
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
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    type Output = Result<S::Response, Error<S::Error>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_answer(cx).map(|(answer, _)| answer)
    }
}

/// The same, with the moment at which it is answered at the latest for its deadline.
fn on_time(how: RequestOptions) -> RequestOptions {
    RequestOptions { deadline: how.deadline.map(answer_by), ..how }
}

fn boxed(how: RequestOptions) -> Option<Box<Deadline>> {
    how.deadline.map(|deadline| Box::new(Deadline::at(deadline)))
}

/// What a request without a key comes to at its deadline.
fn late<R, E>() -> Settled<R, E> {
    let message = "the loader has not answered a request without a key by its deadline";
    let error = CacheError::new(CacheErrorKind::DeadlineExceeded, message.to_owned());
    (Err(error.into()), CacheStatus::Failed)
}

impl<S: Service<Req>, Req, C> fmt::Debug for ResponseFuture<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("request", &self.request).finish_non_exhaustive()
    }
}

/// One request on its way, to be answered together with its [`CacheStatus`]. Made by
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
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    type Output = (Result<S::Response, Error<S::Error>>, CacheStatus);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().0.poll_answer(cx)
    }
}
