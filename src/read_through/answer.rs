//! `AnswerFuture`: the future of one call, without the types of its loader and its codec.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tower::Service;

use super::future::{AnswerWithStatus, ResponseFuture};
use super::job::Loader;
use crate::box_future::BoxFuture;
use crate::codec::Codec;
use crate::error::Error;
use crate::status::CacheStatus;

/// The answer to one call of a [`Cache`](crate::Cache) or of a function with the attribute
/// `#[read_through]`, or to one request of a [`Batched`](crate::Batched) loader.
///
/// # Cancel safety
/// Dropping it takes nothing from other callers. A load that it has started goes on for its
/// waiters. If there are none, [`WhenAbandoned`](crate::WhenAbandoned) applies.
#[must_use = "futures do nothing unless polled"]
pub struct AnswerFuture<R, E>(Answer<R, E>);

/// An answer that was there at once takes no box.
enum Answer<R, E> {
    Ready(Option<AnswerWithStatus<R, E>>),
    Pending(BoxFuture<'static, AnswerWithStatus<R, E>>),
}

/// The answer stays where it is read from, and the box is pinned.
impl<R, E> Unpin for AnswerFuture<R, E> {}

impl<R, E> AnswerFuture<R, E> {
    /// Waits for the answer and how it came about, with the same cancel safety.
    pub fn with_status(
        mut self,
    ) -> impl Future<Output = (Result<R, Error<E>>, CacheStatus)> + use<R, E> {
        poll_fn(move |cx| self.poll_answer(cx))
    }

    pub(super) fn of(
        answer: impl Future<Output = AnswerWithStatus<R, E>> + Send + 'static,
    ) -> Self {
        Self(Answer::Pending(answer.boxed()))
    }

    #[inline]
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<AnswerWithStatus<R, E>> {
        match &mut self.0 {
            Answer::Ready(answer) => {
                Poll::Ready(answer.take().unwrap_or_else(|| panic!("polled after it was ready")))
            }
            Answer::Pending(answer) => answer.as_mut().poll(cx),
        }
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
            Some(answer) => Self(Answer::Ready(Some(answer))),
            None => Self::of(answer.with_status()),
        }
    }
}

impl<R, E> Future for AnswerFuture<R, E> {
    type Output = Result<R, Error<E>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_answer(cx).map(|(answer, _)| answer)
    }
}

impl<R, E> fmt::Debug for AnswerFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerFuture").finish_non_exhaustive()
    }
}
