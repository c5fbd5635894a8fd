//! `GrpcResponseFuture`: the response to one request, as a future.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bellwether::adapter::AloneLoad;
use bellwether::stats::RequestRecord;
use bellwether::{BoxError, BypassReason, CacheError, CacheStatus, Error};
use bellwether_body::CacheBody;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body as HttpBody;
use pin_project::pin_project;
use tonic::body::Body;
use tower::Service;

use super::error_status::{status_for_caller, status_of};

/// The response to one request, as a future. Made by [`GrpcCache`](super::GrpcCache).
///
/// # Cancel safety
/// Dropping it does not affect other callers, as with
/// [`ResponseFuture`](bellwether::ResponseFuture). A request that bypasses the cache is
/// dropped with it.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct GrpcResponseFuture<S, B>(#[pin] State<S, B>)
where
    S: Service<Request<Body>>;

#[pin_project(project = StateProjection)]
#[allow(clippy::large_enum_variant, reason = "a bypass costs no allocation")]
enum State<S, B>
where
    S: Service<Request<Body>>,
{
    /// The request bypasses the cache.
    Bypass(#[pin] AloneLoad<S, Request<Body>>, Option<RequestRecord>),
    /// The request is answered by the cache.
    Cached(BoxFuture<'static, Response<CacheBody<B>>>),
}

impl<S, B> GrpcResponseFuture<S, B>
where
    S: Service<Request<Body>>,
{
    pub(super) fn bypass(answered: AloneLoad<S, Request<Body>>, record: RequestRecord) -> Self {
        Self(State::Bypass(answered, Some(record)))
    }

    pub(super) fn cached(answered: BoxFuture<'static, Response<CacheBody<B>>>) -> Self {
        Self(State::Cached(answered))
    }
}

impl<S, B> Future for GrpcResponseFuture<S, B>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes>,
{
    type Output = Result<Response<CacheBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match self.project().0.project() {
            StateProjection::Bypass(answered, record) => {
                let answered = ready!(answered.poll(cx));
                match record.take() {
                    Some(record) => bypass_response(answered, record),
                    None => panic!("polled after it was ready"),
                }
            }
            StateProjection::Cached(answered) => ready!(answered.as_mut().poll(cx)),
        }))
    }
}

/// The response to a request that bypassed the cache.
pub(super) fn bypass_response<B, E>(
    answered: Result<Result<Response<B>, E>, CacheError>,
    record: RequestRecord,
) -> Response<CacheBody<B>>
where
    B: HttpBody<Data = Bytes>,
    E: Into<BoxError>,
{
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

impl<S, B> fmt::Debug for GrpcResponseFuture<S, B>
where
    S: Service<Request<Body>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcResponseFuture").finish_non_exhaustive()
    }
}
