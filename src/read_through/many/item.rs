//! Batch items: the loader that each request of a batch gets.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::box_future::BoxFuture;
use futures_util::FutureExt;
use tokio::sync::oneshot;
use tower::Service;

use super::answers::BatchLoader;
use super::batch::{Batch, Collected, ItemOutcome, ItemState};
use super::error::ItemError;
use super::flush::Flush;
use crate::flight::PhaseListener;

/// The loader of one request of a batch. A call of it collects the request for the next flush.
pub(super) struct BatchItem<B: BatchLoader<Req>, Req: Send + 'static>(Arc<ItemSlot<B, Req>>);

/// Shared by the clones of an item. Dropping it tells the batch that no request will come from
/// here.
struct ItemSlot<B: BatchLoader<Req>, Req: Send + 'static> {
    batch: Arc<Batch<B, Req>>,
    number: usize,
}

impl<B: BatchLoader<Req>, Req: Send + 'static> BatchItem<B, Req> {
    pub(super) fn new(batch: Arc<Batch<B, Req>>, number: usize) -> Self {
        Self(Arc::new(ItemSlot { batch, number }))
    }

    /// Tells the batch the phases of this item's flight.
    pub(super) fn listener(&self) -> PhaseListener {
        // Holds no slot: dropping the last one means that no request will come from this item.
        let batch = Arc::clone(&self.0.batch);
        let number = self.0.number;
        Arc::new(move |phase| Flush::if_due(&batch, batch.on_phase(number, phase)))
    }
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Service<Req> for BatchItem<B, Req> {
    type Response = B::Answer;
    type Error = ItemError;
    type Future = BoxFuture<'static, ItemOutcome<B, Req>>;

    /// Always ready: the call of the batch waits until the loader is ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (outcome, answered) = oneshot::channel();
        let batch = &self.0.batch;
        Flush::if_due(batch, batch.collect(self.0.number, Collected { request, outcome }));
        async move {
            match answered.await {
                // As if this item were the loader. The panic hook has reported it once.
                Ok(Err(ItemError::Panicked)) => resume_unwind(Box::new("the batch panicked")),
                Ok(outcome) => outcome,
                Err(_) => Err(ItemError::Lost),
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
