//! `HttpResponseFuture`: polls one request. What it does next is decided in `exchange`.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bellwether::BoxError;
use bellwether::adapter::RequestOptions;
use bellwether::stats::RequestRecord;
use bellwether::{CacheStatus, Error};
use bellwether_body::CacheBody;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderName, Request, Response};
use http_body::Body;
use pin_project::pin_project;
use tower::Service;

use super::beginning::{Beginning, Deciding, Forwarding};
use super::bypass;
use super::cache_request::FetchRequest;
use super::codec::CacheAnswer;
use super::exchange::{Exchange, NextStep};
use super::origin::Origin;
use super::report::LocalHit;
use super::shared::LayerState;

/// The response to one request, as a future. Made by [`HttpCache`](super::HttpCache).
///
/// # Cancel safety
/// Dropping it does not affect other callers: a load that it has started continues, unless the
/// policy for abandoned loads says otherwise. A request that bypasses the cache is dropped with it,
/// unless it has an unsafe method: that [is finished](mod@super::guide#invalidation) in the background.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct HttpResponseFuture<S, ReqB, B> {
    state: State<S, B>,
    /// A field that clients do not get.
    hidden: Option<Arc<HeaderName>>,
    /// The request in the statistics, until it is counted.
    record: Option<RequestRecord>,
    /// Requests to the origin are made with an empty body of this type.
    body: PhantomData<fn() -> ReqB>,
}

/// Waits for the cache. Boxed, since most requests are answered without it.
type PendingAnswer<B> = BoxFuture<'static, (Result<CacheAnswer<B>, Error<BoxError>>, CacheStatus)>;

enum State<S, B> {
    /// Deriving the key, or asking the store. Any other state may follow.
    Deciding(Deciding<S, B>),
    /// Waiting for the cache. Another lookup or `Forwarding` may follow.
    Fetching(Exchange<S>, PendingAnswer<B>),
    /// Waiting for a response that needs no load of the cache.
    Forwarding(Forwarding<B>),
    /// Returning a response that was in memory, once.
    Ready(Option<Response<CacheBody<B>>>),
}

impl<S, ReqB, B> HttpResponseFuture<S, ReqB, B> {
    pub(super) fn new(begun: Beginning<S, B>, shared: &LayerState) -> Self
    where
        S: Origin<ReqB, B>,
        ReqB: Default + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let hidden = shared.tag_fields.hidden();
        if let Beginning::Ready(response) = begun {
            shared.client.count_hit();
            let state = State::Ready(Some(response));
            return Self { state, hidden, record: None, body: PhantomData };
        }
        let mut record = Some(shared.client.begin());
        let state = begin::<_, ReqB, _>(begun, &mut record);
        Self { state, hidden, record, body: PhantomData }
    }
}

fn begin<S, ReqB, B>(begun: Beginning<S, B>, record: &mut Option<RequestRecord>) -> State<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    match begun {
        Beginning::Fetching(exchange) => {
            let fetching = ask::<_, ReqB, _>(&exchange, exchange.fetch_request(), record.as_ref());
            State::Fetching(exchange, fetching)
        }
        Beginning::Forwarding(forwarding) => State::Forwarding(forwarding),
        Beginning::Ready(response) => {
            record.take().into_iter().for_each(RequestRecord::hit);
            State::Ready(Some(response))
        }
        Beginning::Deciding(deciding) => State::Deciding(deciding),
    }
}

fn ask<S, ReqB, B>(
    exchange: &Exchange<S>,
    (fetch_request, options): (FetchRequest<ReqB>, RequestOptions),
    record: Option<&RequestRecord>,
) -> PendingAnswer<B>
where
    S: Origin<ReqB, B>,
    ReqB: Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let key = fetch_request.key.clone();
    let options = match record {
        Some(record) => options.part_of(record),
        None => options,
    };
    let shared = &exchange.fetch.shared;
    let Some(index) = exchange.expiring() else {
        let asked = shared.client.request(key, options, &exchange.fetch, fetch_request);
        return Box::pin(asked.with_status());
    };
    let fetch = exchange.fetch.clone();
    Box::pin(async move {
        let shared = &fetch.shared;
        shared.expire_variant::<B>(&key, &index).await;
        shared.client.request(key, options, &fetch, fetch_request).with_status().await
    })
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
        let this = self.project();
        let mut response = ready!(this.state.poll_response::<ReqB>(this.record, cx));
        if let Some(record) = this.record.take() {
            let is_local = response.extensions_mut().remove::<LocalHit>().is_some();
            match response.extensions().get::<CacheStatus>() {
                Some(CacheStatus::Hit { .. }) if is_local => record.hit(),
                status => record.end(status.unwrap_or(&CacheStatus::Failed)),
            }
        }
        if let Some(name) = this.hidden {
            response.headers_mut().remove(&**name);
        }
        Poll::Ready(Ok(response))
    }
}

impl<S, B> State<S, B> {
    fn poll_response<ReqB>(
        &mut self,
        record: &mut Option<RequestRecord>,
        cx: &mut Context<'_>,
    ) -> Poll<Response<CacheBody<B>>>
    where
        S: Origin<ReqB, B>,
        ReqB: Default + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        loop {
            *self = match self {
                Self::Ready(response) => match response.take() {
                    Some(response) => return Poll::Ready(response),
                    None => panic!("polled after it was ready"),
                },
                Self::Deciding(deciding) => {
                    begin::<_, ReqB, _>(ready!(deciding.poll_unpin(cx)), record)
                }
                Self::Forwarding(forwarding) => return forwarding.poll_unpin(cx),
                Self::Fetching(exchange, fetching) => {
                    let (answer, status) = ready!(fetching.as_mut().poll(cx));
                    match exchange.answered::<ReqB, B>(answer, &status) {
                        NextStep::Answer(response) => return Poll::Ready(response),
                        NextStep::Fetch(fetch_request, options) => {
                            *fetching = ask(exchange, (fetch_request, options), record.as_ref());
                            continue;
                        }
                        NextStep::Alone(permit) => Self::Forwarding(Box::pin(
                            bypass::fetch_uncoalesced::<_, ReqB, _>(exchange.clone(), permit),
                        )),
                        NextStep::Bypass => {
                            let fetch_request: FetchRequest<ReqB> = exchange.fetch_request().0;
                            let request = fetch_request
                                .request(fetch_request.cache_request.parts.headers.clone());
                            let inner = exchange.fetch.inner.clone();
                            let client = exchange.fetch.shared.client.clone();
                            Self::Forwarding(Box::pin(bypass::forward(
                                client, inner, request, "bypass",
                            )))
                        }
                    }
                }
            }
        }
    }
}

/// Shows nothing of the request.
impl<S, ReqB, B> fmt::Debug for HttpResponseFuture<S, ReqB, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponseFuture").finish_non_exhaustive()
    }
}
