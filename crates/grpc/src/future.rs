//! `GrpcResponseFuture`: the response to one request, as a future.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bellwether_body::CacheBody;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Response;

/// The response to one request, as a future. Made by [`GrpcCache`](super::GrpcCache).
///
/// # Cancel safety
/// Dropping it does not affect other callers, as with
/// [`ResponseFuture`](bellwether::ResponseFuture). A request that bypasses the cache is
/// dropped with it.
#[must_use = "futures do nothing unless polled"]
pub struct GrpcResponseFuture<B>(pub(super) BoxFuture<'static, Response<CacheBody<B>>>);

impl<B> Future for GrpcResponseFuture<B> {
    type Output = Result<Response<CacheBody<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx).map(Ok)
    }
}

impl<B> fmt::Debug for GrpcResponseFuture<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcResponseFuture").finish_non_exhaustive()
    }
}
