//! `AnswerFuture`: the future of one call, without the types of its loader and its codec.

use std::fmt;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::Either;
use tower::Service;

use super::future::{AnswerWithStatus, ResponseFuture};
use super::job::Loader;
use crate::box_future::BoxFuture;
use crate::codec::Codec;
use crate::error::Error;
use crate::status::CacheStatus;

/// The answer to one call of a [`Cache`](crate::Cache) or of a function with the attribute
/// `#[read_through]`.
///
/// # Cancel safety
/// Dropping it takes nothing from other callers. A load that it has started goes on for its
/// waiters. If there are none, [`WhenAbandoned`](crate::WhenAbandoned) applies.
#[must_use = "futures do nothing unless polled"]
pub struct AnswerFuture<R, E>(AtOnceOrBoxed<AnswerWithStatus<R, E>>);

/// An answer that was there at once takes no box.
type AtOnceOrBoxed<A> = Either<Ready<A>, BoxFuture<'static, A>>;

impl<R, E> AnswerFuture<R, E> {
    /// Waits for the answer and how it came about, with the same cancel safety.
    pub fn with_status(
        self,
    ) -> impl Future<Output = (Result<R, Error<E>>, CacheStatus)> + use<R, E> {
        self.0
    }
}

impl<S, Req, C> From<ResponseFuture<S, Req, C>> for AnswerFuture<S::Response, S::Error>
where
    S: Loader<Req> + Service<Req, Response: Send, Error: Send + Sync>,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    #[inline]
    fn from(mut answer: ResponseFuture<S, Req, C>) -> Self {
        match answer.at_once() {
            Some(answer) => Self(Either::Left(ready(answer))),
            None => Self(Either::Right(answer.with_status().boxed())),
        }
    }
}

impl<R, E> Future for AnswerFuture<R, E> {
    type Output = Result<R, Error<E>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx).map(|(answer, _)| answer)
    }
}

impl<R, E> fmt::Debug for AnswerFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerFuture").finish_non_exhaustive()
    }
}
