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

use super::around::{self, Changes};
use super::asked::CacheRequest;
use super::derived_key::DerivedKey;
use super::fetch::OriginFetch;
use super::future::{Begun, HttpResponseFuture};
use super::mode::{Mode, ProgramRules};
use super::origin::Origin;
use super::refusal;
use super::rules::{self, Demand};
use super::visit::{self, Exchange};
use super::way::Way;

/// An `http` service behind a cache. See the [module page](super) for examples.
///
/// It is always ready, and its error is `Infallible`: what cannot be answered is answered by a
/// response that says so.
#[derive(Clone)]
pub struct HttpCache<S> {
    fetch: OriginFetch<S>,
}

impl<S> HttpCache<S> {
    pub(super) fn new(fetch: OriginFetch<S>) -> Self {
        Self { fetch }
    }

    /// The service that is asked for what is not kept.
    pub fn get_ref(&self) -> &S {
        &self.fetch.inner
    }

    /// The service that is asked for what is not kept.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.fetch.inner
    }

    /// The service that is asked for what is not kept.
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
        HttpResponseFuture::new(match &*fetch.shared.mode {
            Mode::Stated(_) => stated(fetch, parts, body),
            Mode::Keyed(keyed) => {
                rules::remove_named(&mut parts.headers);
                match keyed.key.at_once(&mut parts) {
                    Some(named) => named_by(fetch, keyed, parts, body, named),
                    None => Begun::Keying(Box::pin(extracted(fetch.clone(), parts, body))),
                }
            }
        })
    }
}

impl<S: fmt::Debug> fmt::Debug for HttpCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCache").field("inner", &self.fetch.inner).finish_non_exhaustive()
    }
}

/// Begins a request whose target is its key.
fn stated<S, ReqB, B>(fetch: &OriginFetch<S>, mut parts: Parts, body: ReqB) -> Begun<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Body + Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    // By the host that the client named, for what it changes there is not good any more.
    let target = fetch.shared.target.target_of(&mut parts);
    rules::remove_named(&mut parts.headers);
    let Some(target) = target else {
        return pass(fetch, parts, body, "request");
    };
    let demand = fetch.shared.mode.demand(&parts.headers);
    let way = Way::of(&parts, &body, &demand);
    let key = target.key();
    begin(fetch, parts, body, way, key, demand, |_| Changes::Target(target))
}

/// Begins a request whose key takes time to know.
async fn extracted<S, ReqB, B>(fetch: OriginFetch<S>, mut parts: Parts, body: ReqB) -> Begun<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Body + Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let Mode::Keyed(keyed) = &*fetch.shared.mode else { return stated(&fetch, parts, body) };
    let named = keyed.key.extracted(&mut parts).await;
    named_by(&fetch, keyed, parts, body, named)
}

/// Begins a request whose key is for the program to say.
fn named_by<S, ReqB, B>(
    fetch: &OriginFetch<S>,
    keyed: &ProgramRules,
    parts: Parts,
    body: ReqB,
    named: DerivedKey,
) -> Begun<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Body + Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let key = match named {
        DerivedKey::Key(key) if key.byte_len() <= Key::MAX_BYTES => key,
        DerivedKey::Key(_) | DerivedKey::Nothing => return pass(fetch, parts, body, "bypass"),
        DerivedKey::Unknown(name) => {
            return Begun::Going(Box::pin(std::future::ready(refusal::unknown(&name))));
        }
    };
    let demand = fetch.shared.mode.demand(&parts.headers);
    let way = match Way::of(&parts, &body, &demand) {
        Way::Ask | Way::Look if keyed.key.is_somebodys(&parts.headers) => Way::Around("bypass"),
        way => way,
    };
    begin(fetch, parts, body, way, key, demand, Changes::Key)
}

fn begin<S, ReqB, B>(
    fetch: &OriginFetch<S>,
    parts: Parts,
    body: ReqB,
    way: Way,
    key: Key,
    demand: Demand,
    changes: impl FnOnce(Key) -> Changes,
) -> Begun<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Body + Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    match way {
        Way::Ask => match visit::at_hand(&fetch.shared, &parts, &key, &demand) {
            Some(response) => Begun::Settled(response),
            None => {
                let exchange = Exchange::new(fetch.clone(), CacheRequest::new(parts, key, demand));
                match fetch.shared.bypass(&exchange.asked) {
                    Some(leave) => {
                        Begun::Going(Box::pin(around::bypass::<_, ReqB, _>(exchange, leave)))
                    }
                    None => Begun::Asking(exchange),
                }
            }
        },
        Way::Look => look(fetch, CacheRequest::new(parts, key, demand), body),
        Way::Around(why) => pass(fetch, parts, body, why),
        Way::Change => {
            let OriginFetch { inner, shared } = fetch.clone();
            let request = Request::from_parts(parts, body);
            Begun::Going(Box::pin(around::change(inner, shared, request, changes(key))))
        }
    }
}

fn look<S, ReqB, B>(fetch: &OriginFetch<S>, asked: CacheRequest, body: ReqB) -> Begun<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let OriginFetch { inner, shared } = fetch.clone();
    Begun::Going(Box::pin(around::look(inner, shared, asked, body)))
}

fn pass<S, ReqB, B>(
    fetch: &OriginFetch<S>,
    parts: Parts,
    body: ReqB,
    why: &'static str,
) -> Begun<S, B>
where
    S: Origin<ReqB, B>,
    ReqB: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Begun::Going(Box::pin(around::pass(fetch.inner.clone(), Request::from_parts(parts, body), why)))
}
