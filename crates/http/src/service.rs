//! `HttpCache`: the service, and what it does for a request.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bellwether::stats::RequestRecord;
use bellwether::{BoxError, CacheStatus, Key};
use bellwether_body::CacheBody;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Ready, ready};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, header};
use http_body::Body;
use tower::Service;
use tower::util::MapRequest;

use super::cache_request::{CacheRequest, Origin, OriginBody};
use super::exchange::{self, Exchange};
use super::fetch::OriginFetch;
use super::layer_state::LayerState;
use super::report::{DISABLED, ForwardReason};
use super::request_key::RequestKey;
use super::rules::{self, Demand};
use super::unsafe_request::{self, InvalidationTarget};
use super::{bypass, purge, refusal};

/// An `http` service behind a cache. See the [module page](super) for examples.
///
/// It is always ready. Its error is `Infallible`: a failure of the origin or of the cache becomes a
/// response of status 5xx.
#[derive(Clone)]
pub struct HttpCache<S> {
    pub(super) fetch: OriginFetch<S>,
}

impl<S> HttpCache<S> {
    /// The service behind the cache.
    pub fn get_ref(&self) -> &S {
        &self.fetch.inner
    }

    /// The service behind the cache, to change it. Clones of this cache keep theirs.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.fetch.inner
    }

    /// The service behind the cache, without the cache.
    pub fn into_inner(self) -> S {
        self.fetch.inner
    }
}

impl<S, ReqB, B> Service<Request<ReqB>> for HttpCache<S>
where
    S: Service<Request<ReqB>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    ReqB: Body + Default + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<CacheBody<B>>;
    type Error = Infallible;
    type Future = HttpResponseFuture<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        rules::ignore_offer_of_h2c(&mut parts.headers);
        let shared = &self.fetch.shared;
        if parts.method.as_str() == "PURGE" && shared.parts.purge_token.is_some() {
            let purged = purge::answer(Arc::clone(shared), parts);
            return HttpResponseFuture(Either::Right(Box::pin(purged)));
        }
        let plan = Plan::of(shared, &mut parts, &body);
        if let Plan::Cached(key, demand) = &plan
            && let Some(response) = exchange::cached_answer(shared, &parts, key, demand)
        {
            shared.client.count_hit();
            return HttpResponseFuture(Either::Left(ready(shared.without_hidden(response))));
        }
        let record = shared.client.begin();
        let answer = answer(self.fetch.clone(), parts, body, plan, record);
        HttpResponseFuture(Either::Right(Box::pin(answer)))
    }
}

bellwether::debug_fields! { HttpCache<S> where S: Debug => |it| inner = it.fetch.inner }

/// What is done for a request.
enum Plan {
    /// It is answered from the cache. What is not stored is loaded, and waiters share that load.
    Cached(Key, Demand),
    /// It is forwarded. If it succeeds, stored responses are invalidated.
    Unsafe(InvalidationTarget),
    /// It is forwarded.
    Forward(ForwardReason),
    /// It would be forwarded, and says `only-if-cached`.
    NotKept,
    /// Its route lacks a parameter of the key.
    Refuse(String),
}

impl Plan {
    fn of<B: Body>(shared: &LayerState, parts: &mut Parts, body: &B) -> Self {
        let key = match shared.rules.key.as_ref().map(|key| key.derived(parts)) {
            None => None,
            Some(Ok(Some(key))) => Some(key),
            Some(Ok(None)) => return Self::Forward(("bypass", Some("no-key"))),
            Some(Err(name)) => return Self::Refuse(name),
        };
        let is_unsafe = parts.method != Method::CONNECT && !rules::is_safe(&parts.method);
        let target = match key.is_none() || is_unsafe {
            true => shared.parts.target.target_of(parts),
            false => None,
        };
        if is_unsafe && (key.is_some() || target.is_some()) {
            return Self::Unsafe(InvalidationTarget { key, target });
        }
        let Some(key) = key.or_else(|| target.map(|target| target.key())) else {
            return Self::Forward(("request", Some("no-target")));
        };
        let demand = shared.rules.demand(&parts.headers);
        if let Some(why) = bypass_reason(shared, parts, body, &demand) {
            return match demand.only_if_cached && shared.client.is_enabled() {
                true => Self::NotKept,
                false => Self::Forward(why),
            };
        }
        Self::Cached(key, demand)
    }
}

/// Why a request without effects goes past the cache.
fn bypass_reason<B: Body>(
    shared: &LayerState,
    parts: &Parts,
    body: &B,
    demand: &Demand,
) -> Option<ForwardReason> {
    let headers = &parts.headers;
    if ![Method::GET, Method::HEAD].contains(&parts.method) {
        return Some(("method", None));
    }
    let has_precondition =
        headers.contains_key(header::IF_MATCH) || headers.contains_key(header::IF_UNMODIFIED_SINCE);
    let reasons = [
        (!shared.client.is_enabled(), DISABLED),
        (has_content(headers, body), ("bypass", Some("content"))),
        (headers.contains_key(header::UPGRADE), ("bypass", Some("upgrade"))),
        (rules::names_others(headers), ("bypass", Some("connection"))),
        (demand.no_store && !demand.only_if_cached, ("request", Some("no-store"))),
        (has_precondition, ("request", Some("precondition"))),
    ];
    if let Some((_, why)) = reasons.into_iter().find(|(is_so, _)| *is_so) {
        return Some(why);
    }
    let credentials = &shared.rules.defaults.credentials;
    let is_personal = |key: &RequestKey| key.is_personal(headers, credentials);
    let key = shared.rules.key.as_ref();
    key.is_some_and(is_personal).then_some(("bypass", Some("credentials")))
}

fn has_content<B: Body>(headers: &HeaderMap, body: &B) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    headers.contains_key(header::TRANSFER_ENCODING)
        || length.is_some_and(|length| length != "0")
        || (length.is_none() && !body.is_end_stream() && body.size_hint().exact() != Some(0))
}

/// Answers a request that is no hit at once, and counts it.
async fn answer<S: Origin<Q, B>, Q: Default + Send + 'static, B: OriginBody>(
    fetch: OriginFetch<S>,
    parts: Parts,
    body: Q,
    plan: Plan,
    record: RequestRecord,
) -> Response<CacheBody<B>> {
    let shared = Arc::clone(&fetch.shared);
    let response = match plan {
        Plan::Cached(key, demand) => {
            let cache_request = CacheRequest::new(parts, key, demand, &shared.rules);
            // What the origin gets for the cache has an empty body: a request with content bypasses it.
            let with_body: fn(Request<()>) -> Request<Q> = |request| request.map(|()| Q::default());
            let inner = MapRequest::new(fetch.inner, with_body);
            let fetch = OriginFetch { inner, shared: fetch.shared };
            bypass::serve(Exchange::new(fetch, cache_request), &record).await
        }
        Plan::Forward(why) => {
            let request = Request::from_parts(parts, body);
            bypass::forwarded(why, bypass::ask(&shared.client, fetch.inner, request).await)
        }
        Plan::Unsafe(target) => {
            let request = Request::from_parts(parts, body);
            unsafe_request::send(fetch, request, target).await
        }
        Plan::NotKept => refusal::not_kept(),
        Plan::Refuse(name) => refusal::unknown(&name),
    };
    record.end(response.extensions().get().unwrap_or(&CacheStatus::Failed));
    shared.without_hidden(response)
}

/// The response to one request, as a future. Made by [`HttpCache`](super::HttpCache).
///
/// # Cancel safety
/// Dropping it does not affect other callers: a load that it has started continues, unless the
/// policy for abandoned loads says otherwise. A request that bypasses the cache is dropped with it,
/// unless it has an unsafe method: that [is finished](super::guide::invalidation#exceptions) in the background.
#[must_use = "futures do nothing unless polled"]
pub struct HttpResponseFuture<B>(
    /// The future of a response that is not in memory is boxed, since most requests are answered without.
    Either<Ready<ServedResponse<B>>, BoxFuture<'static, ServedResponse<B>>>,
);

type ServedResponse<B> = Response<CacheBody<B>>;

impl<B> Future for HttpResponseFuture<B> {
    type Output = Result<Response<CacheBody<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx).map(Ok)
    }
}

// Shows nothing of the request.
bellwether::debug_fields! { HttpResponseFuture<B> }
