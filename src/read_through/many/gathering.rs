//! Gathering the answers of a batch, each in its place.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::error::BatchError;
use crate::error::Error;
use crate::read_through::future::Settled;
use crate::status::CacheStatus;

/// The answers of a batch, as far as they are there.
pub(super) struct Gathering<M, R, E> {
    answers: Vec<Option<Settled<R, BatchError<E>>>>,
    items: FuturesUnordered<Placed<M>>,
}

/// A item, and which answer is its.
struct Placed<M> {
    place: usize,
    item: Pin<Box<M>>,
}

impl<M, R, E> Gathering<M, R, E>
where
    M: Future<Output = Settled<R, BatchError<E>>>,
{
    pub(super) fn new() -> Self {
        Self { answers: Vec::new(), items: FuturesUnordered::new() }
    }

    pub(super) fn push(&mut self, answer: Settled<R, BatchError<E>>) {
        self.answers.push(Some(answer));
    }

    pub(super) fn push_item(&mut self, item: M) {
        self.items.push(Placed { place: self.answers.len(), item: Box::pin(item) });
        self.answers.push(None);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Settled<R, BatchError<E>>>> {
        while let Some((place, answer)) = ready!(self.items.poll_next_unpin(cx)) {
            self.answers[place] = Some(answer);
        }
        let answers = self.answers.drain(..);
        Poll::Ready(answers.map(|answer| answer.unwrap_or_else(lost)).collect())
    }
}

impl<M, R, E> Gathering<M, R, E>
where
    M: Future<Output = Settled<R, BatchError<E>>> + Send + 'static,
    R: Send + 'static,
    E: Send + Sync + 'static,
{
    /// Gathers. What is not there at once is waited for by a task, so that nobody else, who waits
    /// for a key of this batch, depends on whether this is polled.
    pub(super) async fn run(mut self) -> Vec<Settled<R, BatchError<E>>> {
        let at_once = poll_fn(|cx| Poll::Ready(self.poll(cx))).await;
        if let Poll::Ready(answers) = at_once {
            return answers;
        }
        let Ok(runtime) = Handle::try_current() else {
            return poll_fn(|cx| self.poll(cx)).await;
        };
        let places = self.answers.len();
        let (gathered, answers) = oneshot::channel();
        runtime.spawn(self.run_for(gathered));
        let lost = |_| (0..places).map(|_| lost()).collect();
        answers.await.unwrap_or_else(lost)
    }

    /// Gathers for somebody, for as long as that is there.
    async fn run_for(mut self, mut caller: oneshot::Sender<Vec<Settled<R, BatchError<E>>>>) {
        let gathered = tokio::select! {
            answers = poll_fn(|cx| self.poll(cx)) => Some(answers),
            () = caller.closed() => None,
        };
        if let Some(answers) = gathered {
            // It may have gone.
            _ = caller.send(answers);
        }
    }
}

impl<M, R, E> Future for Placed<M>
where
    M: Future<Output = Settled<R, BatchError<E>>>,
{
    type Output = (usize, Settled<R, BatchError<E>>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let item = &mut self.item;
        let polled = AssertUnwindSafe(|| item.as_mut().poll(cx));
        // Others are not to suffer by it. It is dropped, and not looked at again.
        let polled = std::panic::catch_unwind(polled);
        let answer = polled.unwrap_or_else(|_| Poll::Ready(failed(BatchError::Panicked)));
        Poll::Ready((self.place, ready!(answer)))
    }
}

fn lost<R, E>() -> Settled<R, BatchError<E>> {
    failed(BatchError::Lost)
}

fn failed<R, E>(error: BatchError<E>) -> Settled<R, BatchError<E>> {
    (Err(Error::Load(Arc::new(error))), CacheStatus::Failed)
}
