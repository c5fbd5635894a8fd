//! `ResponseFuture`: polls one request on its way. What it does next is decided in `call`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use super::ask::RequestOptions;
use super::call::Call;
use super::core::{Core, Peeked};
use super::deadline::{Deadline, answer_by};
use super::state::{Looked, Settled, Start, State, StateProjection};
use super::waiting::Waited;
use crate::capture::Capture;
use crate::error::{CacheError, CacheErrorKind, Error};
use crate::flight::Listener;
use crate::key::Key;
use crate::status::{Bypass, CacheStatus};

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
    call: Option<Call<S, Req, C>>,
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
    C: Capture<S::Response>,
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
        let passing = State::Passing(Box::pin(service.oneshot(request)), Bypass::NoKey);
        Self { call: None, state: passing, deadline: boxed(how) }
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
                return Self { call: None, state: hit, deadline: None };
            }
            Peeked::Entry(entry) => Start::With(entry),
            Peeked::Miss => Start::Join,
            Peeked::Unknown => Start::Look,
        };
        let how = on_time(how);
        let call = Call::new(Arc::clone(core), key, service.clone(), request, how);
        Self { call: Some(call), state: State::Fresh(start), deadline: boxed(how) }
    }

    #[inline]
    fn settled(answer: Settled<S::Response, S::Error>) -> Self {
        Self { call: None, state: State::Settled(Some(answer)), deadline: None }
    }

    /// Tells somebody what its flights wait for.
    pub(super) fn heard_by(mut self, listener: impl FnOnce() -> Listener) -> Self {
        if let Some(call) = &mut self.call {
            call.set_listener(listener());
        }
        self
    }

    /// The answer, if nobody has to be asked for it.
    pub(super) fn at_once(&mut self) -> Option<Settled<S::Response, S::Error>> {
        match &mut self.state {
            State::Settled(answer) => answer.take(),
            State::Hit(answer, fresh_for) => answer.take().map(|answer| hit(answer, *fresh_for)),
            _ => None,
        }
    }

    #[inline]
    fn poll_settled(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Settled<S::Response, S::Error>> {
        match self.as_mut().poll_state(cx) {
            Poll::Pending if self.deadline.is_some() => self.poll_deadline(cx),
            polled => polled,
        }
    }

    /// Once its deadline has come, it is answered: what it waits for goes on without it, or is
    /// dropped if no other caller may have it.
    fn poll_deadline(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Settled<S::Response, S::Error>> {
        let mut this = self.as_mut().project();
        if let Some(deadline) = this.deadline {
            ready!(deadline.poll(cx));
        }
        let next = match (this.state.as_mut().project(), this.call) {
            (_, None) => State::Settled(Some(late())),
            (StateProjection::Waiting(waiting), Some(call)) => {
                call.out_of_time(Some(waiting.follower()))
            }
            (StateProjection::Looking(looking), Some(call)) => {
                looking.finish_alone();
                call.out_of_time(None)
            }
            (_, Some(call)) => call.out_of_time(None),
        };
        this.state.set(next);
        self.poll_state(cx)
    }

    #[inline]
    fn poll_state(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Settled<S::Response, S::Error>> {
        let mut this = self.project();
        loop {
            let call = this.call.as_mut();
            let next = match (this.state.as_mut().project(), call) {
                (StateProjection::Settled(answer), _) => return Poll::Ready(once(answer)),
                (StateProjection::Hit(answer, fresh_for), _) => {
                    return Poll::Ready(hit(once(answer), *fresh_for));
                }
                (StateProjection::Passing(response, why), Some(call)) => {
                    return Poll::Ready(call.passed(ready!(response.as_mut().poll(cx)), *why));
                }
                (StateProjection::Passing(response, why), None) => {
                    let answer = ready!(response.as_mut().poll(cx));
                    let answer = answer.map_err(|error| Error::Load(Arc::new(error)));
                    return Poll::Ready((answer, CacheStatus::Bypass(*why)));
                }
                (StateProjection::Fresh(start), Some(call)) => call.start(start),
                (StateProjection::Looking(looking), Some(call)) => match ready!(looking.poll(cx)) {
                    Looked::Answered(answer) => call.looked(answer),
                    Looked::RanOut => {
                        looking.finish_alone();
                        call.give_up_looking()
                    }
                },
                (StateProjection::Waiting(mut waiting), Some(call)) => {
                    match ready!(waiting.as_mut().poll(cx)) {
                        Waited::Landed(landed) => call.landed(landed, waiting.is_opener()),
                        Waited::Slow => match call.load_is_slow(waiting.follower()) {
                            Some(next) => next,
                            None => continue,
                        },
                        Waited::RanOut => match call.give_up(waiting.follower()) {
                            Some(next) => next,
                            None => {
                                waiting.be_patient();
                                continue;
                            }
                        },
                    }
                }
                (_, None) => unreachable!("only what is settled or passed on has no call"),
            };
            this.state.set(next);
        }
    }
}

impl<S, Req, C> Future for ResponseFuture<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
    C: Capture<S::Response>,
{
    type Output = Result<S::Response, Error<S::Error>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_settled(cx).map(|(answer, _)| answer)
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

fn once<T>(answer: &mut Option<T>) -> T {
    answer.take().unwrap_or_else(|| panic!("polled after it was ready"))
}

fn hit<R, E>(answer: R, fresh_for: Option<Duration>) -> Settled<R, E> {
    (Ok(answer), CacheStatus::Hit { fresh_for })
}

impl<S: Service<Req>, Req, C> fmt::Debug for ResponseFuture<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("call", &self.call).finish_non_exhaustive()
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
    C: Capture<S::Response>,
{
    type Output = (Result<S::Response, Error<S::Error>>, CacheStatus);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().0.poll_settled(cx)
    }
}
