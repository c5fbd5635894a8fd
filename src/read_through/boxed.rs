//! `BoxResponseFuture`: the future of one request, without the types of its loader and its key function.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::future::AnswerWithStatus;
use crate::box_future::BoxFuture;
use crate::error::Error;
use crate::status::CacheStatus;

/// The future of a single request to a [`Batched`](crate::Batched) loader, or of a call of a function with the
/// attribute `#[read_through]`.
///
/// # Cancel safety
/// As [`ResponseFuture`](crate::ResponseFuture).
#[must_use = "futures do nothing unless polled"]
pub struct BoxResponseFuture<R, E>(pub(super) BoxFuture<'static, AnswerWithStatus<R, E>>);

impl<R, E> BoxResponseFuture<R, E> {
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
