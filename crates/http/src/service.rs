//! `HttpCache`: the service.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bellwether::stats::RequestRecord;
use bellwether::{BoxError, CacheStatus, Key};
use bellwether_body::CacheBody;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower::Service;

use super::bypass;
use super::cache_request::CacheRequest;
use super::derived_key::DerivedKey;
use super::exchange::{self, Exchange};
use super::fetch::OriginFetch;
use super::future::HttpResponseFuture;
use super::handling::Handling;
use super::mode::Mode;
use super::origin::Origin;
use super::refusal;
use super::report::LocalHit;
use super::rules::{self, Demand};
use super::shared::LayerState;
use super::unsafe_request::{InvalidationTarget, UnsafeRequest};

/// An `http` service behind a cache. See the [module page](super) for examples.
///
/// It is always ready. Its error is `Infallible`: a failure of the origin or of the cache becomes a
/// response of status 5xx.
#[derive(Clone)]
pub struct HttpCache<S> {
    fetch: OriginFetch<S>,
}

impl<S> HttpCache<S> {
    pub(super) fn new(fetch: OriginFetch<S>) -> Self {
        Self { fetch }
    }

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
        let plan = Plan::at_once(shared, &mut parts, &body);
        if let Some(Plan::Cached(key, demand)) = &plan
            && let Some(response) = exchange::cached_answer(shared, &parts, key, demand)
        {
            shared.client.count_hit();
            return HttpResponseFuture::ready(shared.without_hidden(response));
        }
        let record = shared.client.begin();
        HttpResponseFuture::pending(answer(self.fetch.clone(), parts, body, plan, record))
    }
}

impl<S: fmt::Debug> fmt::Debug for HttpCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCache").field("inner", &self.fetch.inner).finish_non_exhaustive()
    }
}

/// What is done for a request.
enum Plan {
    /// It is answered from the cache. What is not stored is loaded, and waiters share that load.
    Cached(Key, Demand),
    /// It is answered by a stored response, or forwarded as it is.
    StoredOnly(Key, Demand),
    /// It is forwarded. If it succeeds, stored responses are invalidated.
    Unsafe(InvalidationTarget),
    /// It is forwarded. The text is the `fwd` parameter of `Cache-Status`.
    Forward(&'static str),
    /// Its route lacks a parameter of the key.
    Refuse(String),
}

impl Plan {
    /// What is done for a request, unless an extractor has to derive its key first.
    fn at_once<B: Body>(shared: &LayerState, parts: &mut Parts, body: &B) -> Option<Self> {
        match &*shared.mode {
            Mode::Stated(_) => Some(Self::by_target(shared, parts, body)),
            Mode::Keyed(keyed) => {
                let derived = keyed.key.at_once(parts)?;
                Some(Self::by_key(shared, parts, body, derived))
            }
        }
    }

    /// For a request whose target is its key.
    fn by_target<B: Body>(shared: &LayerState, parts: &mut Parts, body: &B) -> Self {
        let Some(target) = shared.target.target_of(parts) else { return Self::Forward("request") };
        let demand = shared.mode.demand(&parts.headers);
        match Handling::of(parts, body, &demand) {
            Handling::Cached => Self::Cached(target.key(), demand),
            Handling::StoredOnly => Self::StoredOnly(target.key(), demand),
            Handling::Unsafe => Self::Unsafe(InvalidationTarget::Target(target)),
            Handling::Bypass(why) => Self::Forward(why),
        }
    }

    /// For a request whose key the program makes.
    fn by_key<B: Body>(
        shared: &LayerState,
        parts: &mut Parts,
        body: &B,
        derived: DerivedKey,
    ) -> Self {
        let Mode::Keyed(keyed) = &*shared.mode else {
            return Self::by_target(shared, parts, body);
        };
        let key = match derived {
            DerivedKey::Key(key) if key.byte_len() <= Key::MAX_BYTES => key,
            DerivedKey::Key(_) | DerivedKey::Nothing => return Self::Forward("bypass"),
            DerivedKey::Unknown(name) => return Self::Refuse(name),
        };
        let demand = shared.mode.demand(&parts.headers);
        let is_personal = keyed.key.is_personal(&parts.headers, &keyed.credentials);
        match Handling::of(parts, body, &demand) {
            Handling::Cached | Handling::StoredOnly if is_personal => Self::Forward("bypass"),
            Handling::Cached => Self::Cached(key, demand),
            Handling::StoredOnly => Self::StoredOnly(key, demand),
            Handling::Unsafe => {
                let target = shared.target.target_of(parts);
                Self::Unsafe(InvalidationTarget::Key { key, target })
            }
            Handling::Bypass(why) => Self::Forward(why),
        }
    }
}

/// Answers a request that is no hit at once, and counts it.
async fn answer<S, ReqB, B>(
    fetch: OriginFetch<S>,
    mut parts: Parts,
    body: ReqB,
    plan: Option<Plan>,
    record: RequestRecord,
) -> Response<CacheBody<B>>
where
    S: Origin<ReqB, B>,
    ReqB: Body + Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let shared = fetch.shared.clone();
    let plan = match plan {
        Some(plan) => plan,
        None => {
            let derived = match &*shared.mode {
                Mode::Keyed(keyed) => keyed.key.extracted(&mut parts).await,
                Mode::Stated(_) => DerivedKey::Nothing,
            };
            let plan = Plan::by_key(&shared, &mut parts, &body, derived);
            if let Plan::Cached(key, demand) = &plan
                && let Some(response) = exchange::cached_answer(&shared, &parts, key, demand)
            {
                record.hit();
                return shared.without_hidden(response);
            }
            plan
        }
    };
    let mut response = fulfil(fetch, parts, body, plan, &record).await;
    let is_local = response.extensions_mut().remove::<LocalHit>().is_some();
    match response.extensions().get::<CacheStatus>() {
        Some(CacheStatus::Hit { .. }) if is_local => record.hit(),
        status => record.end(status.unwrap_or(&CacheStatus::Failed)),
    }
    shared.without_hidden(response)
}

async fn fulfil<S, ReqB, B>(
    fetch: OriginFetch<S>,
    parts: Parts,
    body: ReqB,
    plan: Plan,
    record: &RequestRecord,
) -> Response<CacheBody<B>>
where
    S: Origin<ReqB, B>,
    ReqB: Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let mode = Arc::clone(&fetch.shared.mode);
    let cache_request = |parts, key, demand| CacheRequest::new(parts, key, demand, &mode);
    match plan {
        Plan::Cached(key, demand) => {
            let exchange = Exchange::new(fetch, cache_request(parts, key, demand));
            match exchange.fetch.shared.bypass(&exchange.cache_request) {
                Some(permit) => bypass::serve_uncoalesced::<_, ReqB, _>(exchange, permit).await,
                None => bypass::serve::<_, ReqB, _>(exchange, record).await,
            }
        }
        Plan::StoredOnly(key, demand) => {
            bypass::serve_stored(fetch, cache_request(parts, key, demand), body, record).await
        }
        Plan::Forward(why) => {
            let request = Request::from_parts(parts, body);
            bypass::forward(&fetch.shared.client, fetch.inner, request, why).await
        }
        Plan::Unsafe(target) => {
            let OriginFetch { inner, shared } = fetch;
            let request = Request::from_parts(parts, body);
            UnsafeRequest::new(inner, shared, request, target).await
        }
        Plan::Refuse(name) => refusal::unknown(&name),
    }
}
