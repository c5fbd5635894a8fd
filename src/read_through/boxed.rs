//! `BoxResponseFuture`: the future of one request, without the types of its loader and its key function.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
#[cfg(feature = "macros")]
use tower::Service;

use super::future::AnswerWithStatus;
#[cfg(feature = "macros")]
use super::future::ResponseFuture;
use super::lookup::IntoLookup;
use super::many::{BatchLoader, Batched};
use super::service::ReadThrough;
use crate::box_future::BoxFuture;
use crate::codec::Codec;
#[cfg(feature = "macros")]
use crate::error::BoxError;
use crate::error::Error;
use crate::status::CacheStatus;

impl<B, K, C> ReadThrough<Batched<B>, K, C> {
    /// Answers one request, as a batch of one. It shares the loads of batches.
    pub fn load<Req, L>(&self, request: Req) -> BoxResponseFuture<B::Answer, B::LoadError>
    where
        B: BatchLoader<Req>,
        Req: Send + 'static,
        K: Fn(&Req) -> L,
        L: IntoLookup,
        C: Codec<B::Answer>,
    {
        let answer = self.load_many([request]).with_status().map(|answers| {
            let first = answers.into_iter().next();
            first.unwrap_or_else(|| unreachable!("a batch has an answer for each request"))
        });
        BoxResponseFuture(answer.boxed())
    }
}

/// The future of a single request to a [`Batched`] loader, or of a call of a function with the
/// attribute `#[read_through]`.
///
/// # Cancel safety
/// As [`ResponseFuture`](crate::ResponseFuture).
#[must_use = "futures do nothing unless polled"]
pub struct BoxResponseFuture<R, E>(BoxFuture<'static, AnswerWithStatus<R, E>>);

impl<R, E> BoxResponseFuture<R, E> {
    /// The answer to a request that has begun.
    #[cfg(feature = "macros")]
    pub(super) fn of<S, Req, C>(request: ResponseFuture<S, Req, C>) -> Self
    where
        S: Service<Req, Response = R, Error = E> + Clone + Send + 'static,
        S::Future: Send + 'static,
        R: Send + 'static,
        E: Into<BoxError> + Send + Sync + 'static,
        Req: Send + 'static,
        C: Codec<R>,
    {
        Self(request.with_status().boxed())
    }

    /// Waits for the answer and how it came about.
    pub fn with_status(self) -> BoxFuture<'static, (Result<R, Error<E>>, CacheStatus)> {
        self.0
    }
}

impl<R, E> Future for BoxResponseFuture<R, E> {
    type Output = Result<R, Error<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(|(answer, _)| answer)
    }
}

impl<R, E> fmt::Debug for BoxResponseFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxResponseFuture").finish_non_exhaustive()
    }
}
