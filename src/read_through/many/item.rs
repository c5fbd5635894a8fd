//! Members: what stands for the loader with each request of a batch.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::BoxFuture;
use futures_util::FutureExt;
use tokio::sync::oneshot;
use tower::Service;

use super::answers::BatchLoader;
use super::batch::{Batch, Collected, ItemOutcome, ItemState};
use super::error::BatchError;
use super::flush::Flush;
use crate::flight::Listener;

/// The loader that one request of a batch is given: to call it is to be collected.
pub(super) struct BatchItem<B: BatchLoader<Req>, Req: Send + 'static>(Arc<ItemSlot<B, Req>>);

struct ItemSlot<B: BatchLoader<Req>, Req: Send + 'static> {
    batch: Arc<Batch<B, Req>>,
    number: usize,
}

impl<B: BatchLoader<Req>, Req: Send + 'static> BatchItem<B, Req> {
    pub(super) fn new(batch: Arc<Batch<B, Req>>, number: usize) -> Self {
        Self(Arc::new(ItemSlot { batch, number }))
    }

    /// What has to hear what its flight waits for.
    pub(super) fn listener(&self) -> Listener {
        // Not the seat: that it is given up says that no request will come from here.
        let (batch, number) = (Arc::clone(&self.0.batch), self.0.number);
        Arc::new(move |phase| Flush::if_due(&batch, batch.hear(number, phase)))
    }
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Service<Req> for BatchItem<B, Req> {
    type Response = B::Answer;
    type Error = BatchError<B::Fault>;
    type Future = BoxFuture<'static, ItemOutcome<B, Req>>;

    /// The loader is driven to readiness by the call of the batch.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (outcome, answered) = oneshot::channel();
        let batch = &self.0.batch;
        Flush::if_due(batch, batch.collect(self.0.number, Collected { request, outcome }));
        async move {
            match answered.await {
                // As if this had been the loader. It has been reported once.
                Ok(Err(BatchError::Panicked)) => resume_unwind(Box::new("the batch panicked")),
                Ok(outcome) => outcome,
                Err(_) => Err(BatchError::Lost),
            }
        }
        .boxed()
    }
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Drop for ItemSlot<B, Req> {
    fn drop(&mut self) {
        Flush::if_due(&self.batch, self.batch.enter(self.number, ItemState::Gone));
    }
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Clone for BatchItem<B, Req> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: BatchLoader<Req>, Req: Send + 'static> fmt::Debug for BatchItem<B, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchItem").field(&self.0.number).finish()
    }
}
