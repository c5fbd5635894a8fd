//! Batches: requests of concurrent callers, sent together.

use std::fmt;
use std::sync::{Arc, Mutex};

use bellwether::adapter::locked;
use tokio::runtime::{Handle, Id};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
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
/// A task yields once, and then sends all requests that have come by then, or as many as a batch may have.
/// So no caller waits for the round trip of another one, and the connection handles one message instead of
/// one per caller.
pub struct Batcher<S: BatchSender>(Arc<BatcherState<S>>);

struct BatcherState<S: BatchSender> {
    sender: S,
    /// The batch that can be joined. Never held across an `.await`.
    next: Mutex<Option<NextBatch<S>>>,
}

/// A batch that a task is about to send. It is closed when the task does, and if the task is dropped. Apart in
/// memory from what callers only read.
#[repr(align(128))]
struct NextBatch<S: BatchSender> {
    requests: UnboundedSender<BatchedRequest<S::Request, S::Answer>>,
    /// How many there are.
    count: usize,
    /// The runtime of the task.
    runtime: Id,
}

impl<S: BatchSender> Batcher<S> {
    /// Without requests.
    pub fn new(sender: S) -> Self {
        Self(Arc::new(BatcherState { sender, next: Mutex::new(None) }))
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
        next.take_if(|batch| batch.requests.is_closed());
        let batch = next.get_or_insert_with(|| self.begin(&runtime));
        if batch.runtime != runtime.id() {
            return None;
        }
        batch.requests.send(BatchedRequest { request, answer }).ok()?;
        batch.count += 1;
        if batch.requests.is_closed() || batch.count >= S::AT_ONCE {
            *next = None;
        }
        Some(answered)
    }

    /// Begins a batch, and the task that sends it. If that is dropped, its callers ask alone.
    fn begin(&self, runtime: &Handle) -> NextBatch<S> {
        let (requests, mut joined) = unbounded_channel();
        let state = Arc::clone(&self.0);
        runtime.spawn(async move {
            yield_now().await;
            joined.close();
            let mut batch = Vec::new();
            while joined.recv_many(&mut batch, S::AT_ONCE).await > 0 {}
            state.sender.send(batch).await;
        });
        NextBatch { requests, count: 0, runtime: runtime.id() }
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
