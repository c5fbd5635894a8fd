//! `GrpcCache`: the service.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bellwether::BoxError;
use bellwether::adapter::CacheClient;
use bellwether::stats::RequestRecord;
use bellwether::{BypassReason, CacheStatus, Error, Lookup, ReadThrough, Tag};
use bellwether_body::CacheBody;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Body as HttpBody;
use http_body_util::Full;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use super::answer::GrpcCodec;
use super::deadline::{GRPC_TIMEOUT, deadline};
use super::early_answer::EarlyAnswer;
use super::error_status::{status_for_caller, status_of};
use super::fetch::{GrpcFetch, LookupOf, UnaryRequest};
use super::future::GrpcResponseFuture;
use super::key::{CallParts, accept_known, key};
use super::message::{ReadBody, ReadUntil, read};
use super::method::{CachedMethod, Methods};

/// Services behind a cache. See the [module page](super).
///
/// It is always ready, as [`ReadThrough`] is. Its error is `Infallible`: a failure of the service or
/// of the cache becomes a status.
#[derive(Clone)]
pub struct GrpcCache<S> {
    pub(super) cache: ReadThrough<GrpcFetch<S>, LookupOf, GrpcCodec>,
    /// Counts requests.
    pub(super) client: CacheClient<GrpcCodec>,
    pub(super) methods: Arc<Methods>,
    pub(super) max_request_bytes: usize,
    pub(super) shows_status: bool,
}

impl<S> GrpcCache<S> {
    /// The service behind the cache.
    pub fn get_ref(&self) -> &S {
        &self.cache.get_ref().inner
    }

    /// The service behind the cache.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.cache.get_mut().inner
    }

    /// The service behind the cache.
    pub fn into_inner(self) -> S {
        self.cache.into_inner().inner
    }
}

impl<S, B, R> Service<Request<R>> for GrpcCache<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<CacheBody<B>>;
    type Error = Infallible;
    type Future = GrpcResponseFuture<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let record = self.client.begin();
        let method = self.methods.get(request.uri().path()).cloned();
        let (parts, body) = request.into_parts();
        let this = self.clone();
        GrpcResponseFuture(match method.filter(|method| method.takes(&parts)) {
            Some(method) => {
                let unread = UnreadRequest { deadline: deadline(&parts.headers), method, parts };
                Box::pin(this.read(unread, body, record))
            }
            None => {
                let request = Request::from_parts(parts, Body::new(body));
                Box::pin(this.bypass(request, record))
            }
        })
    }
}

/// A request for a cached method, before its message is read.
struct UnreadRequest {
    deadline: Option<Instant>,
    method: Arc<CachedMethod>,
    parts: Parts,
}

impl<S, B> GrpcCache<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// Answers from the cache if the body is one message. If not, the request bypasses the cache with
    /// what was read and the rest.
    async fn read<R>(
        mut self,
        unread: UnreadRequest,
        body: R,
        record: RequestRecord,
    ) -> Response<CacheBody<B>>
    where
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let body = match read(body, self.max_request_bytes, ReadUntil::End, None).await.ok() {
            Some(ReadBody::Ended { data, trailers, is_whole }) => {
                let is_message = is_whole && unread.method.takes_message(&data);
                if let Some(tags) = unread.method.tags_of(&data).filter(|_| is_message) {
                    return self.ask(unread, data, trailers, tags, record).await;
                }
                Body::new(CacheBody::<Full<Bytes>>::stored(data, trailers))
            }
            Some(
                ReadBody::Continues { begun, rest }
                | ReadBody::OverBudget { begun, rest }
                | ReadBody::Pauses { begun, rest },
            ) => Body::new(CacheBody::resumed(begun, rest)),
            // Its caller has left, and the record counts that.
            None => return Status::cancelled("the request body failed").into_http(),
        };
        self.bypass(Request::from_parts(unread.parts, body), record).await
    }

    /// The response to a request that bypasses the cache.
    async fn bypass(self, request: Request<Body>, record: RequestRecord) -> Response<CacheBody<B>> {
        let Self { cache, client, .. } = self;
        let answered = client.load_alone(None, cache.into_inner().inner, request).await;
        let status = CacheStatus::Bypass(BypassReason::NoKey);
        record.end(&status);
        let mut response = match answered {
            Ok(Ok(response)) => response.map(CacheBody::passing),
            Ok(Err(error)) => status_of(error.into()).into_http(),
            Err(panicked) => status_for_caller(&Error::Cache(panicked)).into_http(),
        };
        response.extensions_mut().insert(status);
        response
    }

    async fn ask(
        &mut self,
        unread: UnreadRequest,
        message: Bytes,
        trailers: Option<HeaderMap>,
        tags: Vec<Tag>,
        record: RequestRecord,
    ) -> Response<CacheBody<B>> {
        let UnreadRequest { deadline, method, mut parts } = unread;
        let authority = method.authority_of(&parts).flatten();
        let key = key(&CallParts {
            path: parts.uri.path(),
            method: &method,
            authority: authority.as_deref(),
            headers: &parts.headers,
            message: &message,
        });
        let ask = match deadline {
            Some(deadline) => Lookup::of(key).deadline(deadline),
            None => Lookup::of(key),
        };
        let ask = ask.part_of(&record);
        // A load is for all its waiters, so it has no caller's timeout, and no encoding that another
        // caller may not know.
        parts.headers.remove(GRPC_TIMEOUT);
        accept_known(&mut parts.headers);
        let (early, given) = EarlyAnswer::channel();
        let load = UnaryRequest { ask, method, parts, message, trailers, tags, early };
        let (response, status) = tokio::select! {
            biased;
            Ok(response) = given => (response, CacheStatus::Led { stored: false }),
            (answered, status) = self.cache.call(load).with_status() => match answered {
                Ok(answer) => (answer.into_response(), status),
                Err(error) => (status_for_caller(&error).into_http(), status),
            },
        };
        record.end(&status);
        self.shown(response, status)
    }

    fn shown(
        &self,
        mut response: Response<CacheBody<B>>,
        status: CacheStatus,
    ) -> Response<CacheBody<B>> {
        let value = self.shows_status.then(|| HeaderValue::try_from(status.to_string()));
        if let Some(Ok(value)) = value {
            response.headers_mut().append(CACHE_STATUS, value);
        }
        response.extensions_mut().insert(status);
        response
    }
}

/// The name by which the service behind the cache is routed.
impl<S: NamedService> NamedService for GrpcCache<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: fmt::Debug> fmt::Debug for GrpcCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcCache")
            .field("cache", &self.cache)
            .field("methods", &self.methods)
            .finish_non_exhaustive()
    }
}

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
