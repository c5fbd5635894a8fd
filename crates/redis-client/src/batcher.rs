//! Batches: requests of concurrent callers, sent together.

use std::sync::{Arc, Mutex};
use std::{fmt, mem};

use bellwether::adapter::locked;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::task::yield_now;

/// Sends the batches of a [`Batcher`].
pub trait BatchSender: Send + Sync + 'static {
    /// What a caller asks for.
    type Request: Send;
    /// What it gets.
    type Answer: Send;
    /// The maximum number of requests in a batch. With more of them, the server would wait for the process and
    /// then the process for the server, and a longer reply would delay those behind it.
    const AT_ONCE: usize;

    /// Sends a batch, and answers its callers. A caller whose `answer` is dropped has to ask alone.
    fn send(
        &self,
        batch: Vec<BatchedRequest<Self::Request, Self::Answer>>,
    ) -> impl Future<Output = ()> + Send;
}

/// A request in a batch.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "a request and its caller")]
pub struct BatchedRequest<R, A> {
    /// What its caller asks for.
    pub request: R,
    /// Gives the caller its answer. It is closed if the caller is gone.
    pub answer: oneshot::Sender<A>,
}

/// Collects requests into batches.
///
/// A task yields once, and then sends all requests that have come by then. A batch that is full before
/// is sent by a task of its own. So no caller waits for the round trip of another one, and the
/// connection handles one message instead of one per caller.
pub struct Batcher<S: BatchSender>(Arc<BatcherState<S>>);

struct BatcherState<S: BatchSender> {
    sender: S,
    /// Never held across an `.await`.
    next: Mutex<NextBatch<S>>,
}

/// The batch that is sent next. While it has requests, a task is about to send it. Apart in memory from
/// what callers only read.
#[repr(align(128))]
struct NextBatch<S: BatchSender> {
    requests: Vec<BatchedRequest<S::Request, S::Answer>>,
    /// The runtime of that task, while there are requests.
    runtime: Option<Id>,
    /// How many batches were before it.
    number: u64,
}

impl<S: BatchSender> Batcher<S> {
    /// Without requests.
    pub fn new(sender: S) -> Self {
        let next = NextBatch { requests: Vec::new(), runtime: None, number: 0 };
        Self(Arc::new(BatcherState { sender, next: Mutex::new(next) }))
    }

    /// What sends its batches.
    pub fn sender(&self) -> &S {
        &self.0.sender
    }

    /// Asks together with the other callers that ask now. The answer is none if the caller has to ask
    /// alone: there is no runtime for the task, or it has ended.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub fn ask(&self, request: S::Request) -> impl Future<Output = Option<S::Answer>> + use<S> {
        let answer = self.join(request);
        async move { answer?.await.ok() }
    }

    /// Joins the next batch, if its task is one of the runtime of the caller. Another one may not be
    /// polled for a long time.
    fn join(&self, request: S::Request) -> Option<oneshot::Receiver<S::Answer>> {
        let runtime = Handle::try_current().ok()?;
        let (answer, answered) = oneshot::channel();
        let mut next = locked(&self.0.next);
        if next.runtime.is_some_and(|id| id != runtime.id()) {
            return None;
        }
        next.runtime = Some(runtime.id());
        next.requests.push(BatchedRequest { request, answer });
        let number = next.number;
        let is_first = next.requests.len() == 1;
        let full = (next.requests.len() >= S::AT_ONCE).then(|| next.take());
        drop(next);
        if is_first {
            runtime.spawn(BatchFlush { state: Arc::clone(&self.0), number }.run());
        }
        if let Some(full) = full {
            // The server works on it while other callers still join the next batch.
            let state = Arc::clone(&self.0);
            runtime.spawn(async move { state.sender.send(full).await });
        }
        Some(answered)
    }
}

impl<S: BatchSender> Clone for Batcher<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: BatchSender> fmt::Debug for Batcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").finish_non_exhaustive()
    }
}

impl<S: BatchSender> NextBatch<S> {
    /// The requests, of which there are none after it.
    fn take(&mut self) -> Vec<BatchedRequest<S::Request, S::Answer>> {
        self.runtime = None;
        self.number += 1;
        mem::take(&mut self.requests)
    }
}

/// The task that sends a batch, unless it is full before. If it is dropped before, the callers ask
/// alone.
struct BatchFlush<S: BatchSender> {
    state: Arc<BatcherState<S>>,
    number: u64,
}

impl<S: BatchSender> BatchFlush<S> {
    async fn run(self) {
        yield_now().await;
        let batch = self.take();
        if !batch.is_empty() {
            self.state.sender.send(batch).await;
        }
    }

    /// Its batch. Empty if that was sent already.
    fn take(&self) -> Vec<BatchedRequest<S::Request, S::Answer>> {
        let mut next = locked(&self.state.next);
        if next.number == self.number { next.take() } else { Vec::new() }
    }
}

impl<S: BatchSender> Drop for BatchFlush<S> {
    fn drop(&mut self) {
        // There are none after it was sent. This wakes the callers, after the lock.
        drop(self.take());
    }
}
