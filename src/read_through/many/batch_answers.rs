//! The answers of a batch, in the order of its requests.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::error::ItemError;
use crate::error::Error;
use crate::read_through::future::AnswerWithStatus;
use crate::shared_error::SharedError;
use crate::status::CacheStatus;

/// The answers of a batch that there are by now, and the items that have none yet.
pub(super) struct BatchAnswers<M, R> {
    answers: Vec<Option<AnswerWithStatus<R, ItemError>>>,
    items: FuturesUnordered<IndexedItem<M>>,
}

/// An item, and the index of its answer.
struct IndexedItem<M> {
    index: usize,
    item: Pin<Box<M>>,
}

impl<M, R> BatchAnswers<M, R>
where
    M: Future<Output = AnswerWithStatus<R, ItemError>>,
{
    pub(super) fn new() -> Self {
        Self { answers: Vec::new(), items: FuturesUnordered::new() }
    }

    pub(super) fn push(&mut self, answer: AnswerWithStatus<R, ItemError>) {
        self.answers.push(Some(answer));
    }

    pub(super) fn push_item(&mut self, item: M) {
        self.items.push(IndexedItem { index: self.answers.len(), item: Box::pin(item) });
        self.answers.push(None);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Vec<AnswerWithStatus<R, ItemError>>> {
        while let Some((index, answer)) = ready!(self.items.poll_next_unpin(cx)) {
            self.answers[index] = Some(answer);
        }
        let answers = self.answers.drain(..);
        Poll::Ready(answers.map(|answer| answer.unwrap_or_else(lost)).collect())
    }
}

impl<M, R> BatchAnswers<M, R>
where
    M: Future<Output = AnswerWithStatus<R, ItemError>> + Send + 'static,
    R: Send + 'static,
{
    /// Waits for all answers. A task polls the items that are not answered at once. So other
    /// callers of the batch's keys do not depend on whether this future is polled.
    pub(super) async fn run(mut self) -> Vec<AnswerWithStatus<R, ItemError>> {
        let at_once = poll_fn(|cx| Poll::Ready(self.poll(cx))).await;
        if let Poll::Ready(answers) = at_once {
            return answers;
        }
        let Ok(runtime) = Handle::try_current() else {
            return poll_fn(|cx| self.poll(cx)).await;
        };
        let count = self.answers.len();
        let (caller, answers) = oneshot::channel();
        runtime.spawn(self.run_for(caller).in_current_span());
        let lost = |_| (0..count).map(|_| lost()).collect();
        answers.await.unwrap_or_else(lost)
    }

    /// Waits for all answers, and sends them to a caller unless it leaves.
    async fn run_for(mut self, mut caller: oneshot::Sender<Vec<AnswerWithStatus<R, ItemError>>>) {
        let collected = tokio::select! {
            answers = poll_fn(|cx| self.poll(cx)) => Some(answers),
            () = caller.closed() => None,
        };
        if let Some(answers) = collected {
            // The caller may have left.
            _ = caller.send(answers);
        }
    }
}

impl<M, R> Future for IndexedItem<M>
where
    M: Future<Output = AnswerWithStatus<R, ItemError>>,
{
    type Output = (usize, AnswerWithStatus<R, ItemError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let item = &mut self.item;
        let polled = AssertUnwindSafe(|| item.as_mut().poll(cx));
        // A panic must not reach the other items. This item is dropped and not polled again.
        let polled = std::panic::catch_unwind(polled);
        let answer = polled.unwrap_or_else(|_| Poll::Ready(failed(ItemError::Panicked)));
        Poll::Ready((self.index, ready!(answer)))
    }
}

fn lost<R>() -> AnswerWithStatus<R, ItemError> {
    failed(ItemError::Lost)
}

fn failed<R>(error: ItemError) -> AnswerWithStatus<R, ItemError> {
    (Err(Error::Load(SharedError::new(error))), CacheStatus::Failed)
}
