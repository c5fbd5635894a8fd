//! `HttpCache`: the service.

use std::convert::Infallible;
use std::fmt;
use std::task::{Context, Poll};

use bellwether::BoxError;
use bellwether::Key;
use bellwether_body::CacheBody;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower::Service;

use super::beginning::Beginning;
use super::bypass;
use super::cache_request::CacheRequest;
use super::derived_key::DerivedKey;
use super::exchange::{self, Exchange};
use super::fetch::OriginFetch;
use super::future::HttpResponseFuture;
use super::handling::Handling;
use super::mode::{Mode, ProgramRules};
use super::origin::Origin;
use super::refusal;
use super::rules::{self, Demand};
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
    type Future = HttpResponseFuture<S, ReqB, B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        rules::ignore_offer_of_h2c(&mut parts.headers);
        let fetch = &self.fetch;
        let begun = match &*fetch.shared.mode {
            Mode::Stated(_) => begin_by_target(fetch, parts, body),
            Mode::Keyed(keyed) => match keyed.key.at_once(&mut parts) {
                Some(derived) => begin_by_key(fetch, keyed, parts, body, derived),
                None => {
                    let begun = begin_by_extractor(fetch.clone(), parts, body);
                    Beginning::Deciding(Box::pin(begun))
                }
            },
        };
        HttpResponseFuture::new(begun, &fetch.shared)
    }
}

impl<S: fmt::Debug> fmt::Debug for HttpCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCache").field("inner", &self.fetch.inner).finish_non_exhaustive()
    }
}

/// Begins a request whose target is its key.
fn begin_by_target<S, ReqB, B>(
    fetch: &OriginFetch<S>,
    mut parts: Parts,
    body: ReqB,
) -> Beginning<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Body + Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let Some(target) = fetch.shared.target.target_of(&mut parts) else {
        return forward(fetch, parts, body, "request");
    };
    let demand = fetch.shared.mode.demand(&parts.headers);
    let handling = Handling::of(&parts, &body, &demand);
    let key = target.key();
    begin(fetch, parts, body, handling, key, demand, |_, _| InvalidationTarget::Target(target))
}

/// Begins a request whose key an extractor derives.
async fn begin_by_extractor<S, ReqB, B>(
    fetch: OriginFetch<S>,
    mut parts: Parts,
    body: ReqB,
) -> Beginning<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Body + Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let Mode::Keyed(keyed) = &*fetch.shared.mode else {
        return begin_by_target(&fetch, parts, body);
    };
    let derived = keyed.key.extracted(&mut parts).await;
    begin_by_key(&fetch, keyed, parts, body, derived)
}

/// Begins a request whose key the program makes.
fn begin_by_key<S, ReqB, B>(
    fetch: &OriginFetch<S>,
    keyed: &ProgramRules,
    parts: Parts,
    body: ReqB,
    derived: DerivedKey,
) -> Beginning<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Body + Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let key = match derived {
        DerivedKey::Key(key) if key.byte_len() <= Key::MAX_BYTES => key,
        DerivedKey::Key(_) | DerivedKey::Nothing => return forward(fetch, parts, body, "bypass"),
        DerivedKey::Unknown(name) => {
            return Beginning::Forwarding(Box::pin(std::future::ready(refusal::unknown(&name))));
        }
    };
    let demand = fetch.shared.mode.demand(&parts.headers);
    let handling = match Handling::of(&parts, &body, &demand) {
        Handling::Cached | Handling::StoredOnly
            if keyed.key.is_personal(&parts.headers, &keyed.credentials) =>
        {
            Handling::Bypass("bypass")
        }
        handling => handling,
    };
    begin(fetch, parts, body, handling, key, demand, |key, parts| InvalidationTarget::Key {
        key,
        target: fetch.shared.target.target_of(parts),
    })
}

fn begin<S, ReqB, B>(
    fetch: &OriginFetch<S>,
    mut parts: Parts,
    body: ReqB,
    handling: Handling,
    key: Key,
    demand: Demand,
    target_of: impl FnOnce(Key, &mut Parts) -> InvalidationTarget,
) -> Beginning<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Body + Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let cache_request = |parts, key| CacheRequest::new(parts, key, demand, &fetch.shared.mode);
    match handling {
        Handling::Cached => {
            match exchange::cached_answer(&fetch.shared, &parts, &key, &demand) {
                Some(response) => Beginning::Ready(response),
                None => {
                    let exchange = Exchange::new(fetch.clone(), cache_request(parts, key));
                    match fetch.shared.bypass(&exchange.cache_request) {
                        Some(permit) => Beginning::Forwarding(Box::pin(
                            bypass::serve_uncoalesced::<_, ReqB, _>(exchange, permit),
                        )),
                        None => Beginning::Fetching(exchange),
                    }
                }
            }
        }
        Handling::StoredOnly => serve_stored(fetch, cache_request(parts, key), body),
        Handling::Bypass(why) => forward(fetch, parts, body, why),
        Handling::Unsafe => {
            let OriginFetch { inner, shared } = fetch.clone();
            let target = target_of(key, &mut parts);
            let request = Request::from_parts(parts, body);
            Beginning::Forwarding(Box::pin(UnsafeRequest::new(inner, shared, request, target)))
        }
    }
}

fn serve_stored<S, ReqB, B>(
    fetch: &OriginFetch<S>,
    cache_request: CacheRequest,
    body: ReqB,
) -> Beginning<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Beginning::Deciding(Box::pin(bypass::serve_stored(fetch.clone(), cache_request, body)))
}

fn forward<S, ReqB, B>(
    fetch: &OriginFetch<S>,
    parts: Parts,
    body: ReqB,
    why: &'static str,
) -> Beginning<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Beginning::Forwarding(Box::pin(bypass::forward(
        fetch.shared.client.clone(),
        fetch.inner.clone(),
        Request::from_parts(parts, body),
        why,
    )))
}
