//! `HttpResponseFuture`: the response to one request, as a future.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bellwether_body::CacheBody;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Response;

/// The response to one request, as a future. Made by [`HttpCache`](super::HttpCache).
///
/// # Cancel safety
/// Dropping it does not affect other callers: a load that it has started continues, unless the
/// policy for abandoned loads says otherwise. A request that bypasses the cache is dropped with it,
/// unless it has an unsafe method: that [is finished](super::guide::invalidation#exceptions) in the background.
#[must_use = "futures do nothing unless polled"]
pub struct HttpResponseFuture<B>(State<B>);

enum State<B> {
    /// The response was in memory. It is returned once.
    Ready(Option<Response<CacheBody<B>>>),
    /// Boxed, since most requests are answered without it.
    Pending(BoxFuture<'static, Response<CacheBody<B>>>),
}

impl<B> HttpResponseFuture<B> {
    pub(super) fn ready(response: Response<CacheBody<B>>) -> Self {
        Self(State::Ready(Some(response)))
    }

    pub(super) fn pending(
        response: impl Future<Output = Response<CacheBody<B>>> + Send + 'static,
    ) -> Self {
        Self(State::Pending(Box::pin(response)))
    }
}

impl<B> Unpin for HttpResponseFuture<B> {}

impl<B> Future for HttpResponseFuture<B> {
    type Output = Result<Response<CacheBody<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Ready(response) => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => panic!("polled after it was ready"),
            },
            State::Pending(response) => response.poll_unpin(cx).map(Ok),
        }
    }
}

/// Shows nothing of the request.
impl<B> fmt::Debug for HttpResponseFuture<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponseFuture").finish_non_exhaustive()
    }
}
