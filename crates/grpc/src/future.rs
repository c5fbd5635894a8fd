//! `GrpcResponseFuture`: one request on its way.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bellwether::BoxError;
use bellwether_body::CacheBody;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body as HttpBody;
use pin_project::pin_project;
use tonic::body::Body;
use tower::Service;
use tower::util::Oneshot;

use super::trouble::status_of;

/// One request on its way. Made by [`GrpcCache`](super::GrpcCache).
///
/// # Cancel safety
/// Dropping it takes nothing from others, as with
/// [`ResponseFuture`](bellwether::read_through::ResponseFuture). A request that goes past the cache is
/// dropped.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct GrpcResponseFuture<S, B>(#[pin] State<S, B>)
where
    S: Service<Request<Body>>;

#[pin_project(project = StateProjection)]
#[allow(clippy::large_enum_variant, reason = "to go past the cache costs no allocation")]
enum State<S, B>
where
    S: Service<Request<Body>>,
{
    /// It goes past the cache, as it is.
    Passing(#[pin] Oneshot<S, Request<Body>>),
    /// It asks the cache.
    Asking(BoxFuture<'static, Response<CacheBody<B>>>),
}

impl<S, B> GrpcResponseFuture<S, B>
where
    S: Service<Request<Body>>,
{
    pub(super) fn passing(answered: Oneshot<S, Request<Body>>) -> Self {
        Self(State::Passing(answered))
    }

    pub(super) fn asking(answered: BoxFuture<'static, Response<CacheBody<B>>>) -> Self {
        Self(State::Asking(answered))
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
            StateProjection::Passing(answered) => past(ready!(answered.poll(cx))),
            StateProjection::Asking(answered) => ready!(answered.as_mut().poll(cx)),
        }))
    }
}

/// An answer that was given past the cache.
pub(super) fn past<B, E>(answered: Result<Response<B>, E>) -> Response<CacheBody<B>>
where
    B: HttpBody<Data = Bytes>,
    E: Into<BoxError>,
{
    match answered {
        Ok(response) => response.map(CacheBody::passing),
        Err(error) => status_of(error.into()).into_http(),
    }
}

impl<S, B> fmt::Debug for GrpcResponseFuture<S, B>
where
    S: Service<Request<Body>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcResponseFuture").finish_non_exhaustive()
    }
}
