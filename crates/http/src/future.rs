//! `HttpResponseFuture`: polls one request on its way. What it does next is decided in `exchange`.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bellwether::BoxError;
use bellwether::adapter::RequestOptions;
use bellwether::{CacheStatus, Error};
use bellwether_body::CacheBody;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use pin_project::pin_project;
use tower::Service;

use super::around;
use super::asked::FetchRequest;
use super::kept::CacheAnswer;
use super::origin::Origin;
use super::visit::{Exchange, NextStep};

/// One request on its way. Made by [`HttpCache`](super::HttpCache).
///
/// # Cancel safety
/// Dropping it takes nothing from others: a load that it has started goes on, unless the policy says
/// otherwise. A request that goes around the cache is dropped with it; if that one may have
/// changed something, what is kept of it is removed in the background.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct HttpResponseFuture<S, ReqB, B> {
    state: State<S, B>,
    /// Requests are made of what was asked, with an empty body.
    body: PhantomData<fn() -> ReqB>,
}

/// An answer that goes another way than through the core.
pub(super) type Going<B> = BoxFuture<'static, Response<CacheBody<B>>>;

/// A request whose key takes time, and what it goes on with.
pub(super) type Keying<S, B> = BoxFuture<'static, Begun<S, B>>;

/// Polls the core. Away from the rest, since most requests are answered without.
type PendingAnswer<B> = BoxFuture<'static, (Result<CacheAnswer<B>, Error<BoxError>>, CacheStatus)>;

/// How a request begins.
#[allow(clippy::large_enum_variant, reason = "nearly every request is in the large one")]
pub(super) enum Begun<S, B> {
    /// It asks for what is kept.
    Asking(Exchange<S>),
    /// It goes another way.
    Going(Going<B>),
    /// It has its answer.
    Settled(Response<CacheBody<B>>),
    /// It takes time to know what it asks for.
    Keying(Keying<S, B>),
}

enum State<S, B> {
    /// Finding out what it asks for. Goes anywhere.
    Keying(Keying<S, B>),
    /// Polling the core. Goes to the core again, or around it.
    Asking(Exchange<S>, PendingAnswer<B>),
    /// Polling an answer that goes another way.
    Going(Going<B>),
    /// Giving an answer that was at hand, once.
    Settled(Option<Response<CacheBody<B>>>),
}

impl<S, ReqB, B> HttpResponseFuture<S, ReqB, B> {
    pub(super) fn new(begun: Begun<S, B>) -> Self
    where
        S: Origin<ReqB, B>,
        ReqB: Default + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self { state: begin::<_, ReqB, _>(begun), body: PhantomData }
    }
}

fn begin<S, ReqB, B>(begun: Begun<S, B>) -> State<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    match begun {
        Begun::Asking(exchange) => {
            let asking = ask::<_, ReqB, _>(&exchange, exchange.fetch_request());
            State::Asking(exchange, asking)
        }
        Begun::Going(going) => State::Going(going),
        Begun::Settled(response) => State::Settled(Some(response)),
        Begun::Keying(keying) => State::Keying(keying),
    }
}

fn ask<S, ReqB, B>(
    exchange: &Exchange<S>,
    (fetch_request, how): (FetchRequest<ReqB>, RequestOptions),
) -> PendingAnswer<B>
where
    S: Origin<ReqB, B>,
    ReqB: Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let key = fetch_request.key.clone();
    Box::pin(
        exchange
            .fetch
            .shared
            .client
            .request(key, how, &exchange.fetch, fetch_request)
            .with_status(),
    )
}

impl<S, ReqB, B> Future for HttpResponseFuture<S, ReqB, B>
where
    S: Service<Request<ReqB>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    ReqB: Default + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<CacheBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = self.project().state;
        loop {
            *state = match state {
                State::Settled(response) => match response.take() {
                    Some(response) => return Poll::Ready(Ok(response)),
                    None => panic!("polled after it was ready"),
                },
                State::Keying(keying) => begin::<_, ReqB, _>(ready!(keying.poll_unpin(cx))),
                State::Going(going) => return going.poll_unpin(cx).map(Ok),
                State::Asking(exchange, asking) => {
                    let (answer, status) = ready!(asking.as_mut().poll(cx));
                    match exchange.answered::<ReqB, B>(answer, &status) {
                        NextStep::Answer(response) => return Poll::Ready(Ok(response)),
                        NextStep::Ask(fetch_request, how) => {
                            *asking = ask(exchange, (fetch_request, how));
                            continue;
                        }
                        NextStep::Alone => {
                            State::Going(Box::pin(around::alone::<_, ReqB, _>(exchange.clone())))
                        }
                        NextStep::Around => {
                            let fetch_request: FetchRequest<ReqB> = exchange.fetch_request().0;
                            let request =
                                fetch_request.request(fetch_request.asked.parts.headers.clone());
                            let inner = exchange.fetch.inner.clone();
                            State::Going(Box::pin(around::pass(inner, request, "bypass")))
                        }
                    }
                }
            };
        }
    }
}

/// Shows nothing of the request.
impl<S, ReqB, B> fmt::Debug for HttpResponseFuture<S, ReqB, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponseFuture").finish_non_exhaustive()
    }
}
