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
use super::batch::{Batch, Collected, Outcome, Stand};
use super::error::BatchError;
use crate::flight::Listener;

/// The loader that one request of a batch is given: to call it is to be collected.
pub(super) struct Member<B: BatchLoader<Req>, Req: Send + 'static>(Arc<Seat<B, Req>>);

struct Seat<B: BatchLoader<Req>, Req: Send + 'static> {
    batch: Arc<Batch<B, Req>>,
    number: usize,
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Member<B, Req> {
    pub(super) fn new(batch: Arc<Batch<B, Req>>, number: usize) -> Self {
        Self(Arc::new(Seat { batch, number }))
    }

    /// What has to hear what its flight waits for.
    pub(super) fn listener(&self) -> Listener {
        // Not the seat: that it is given up says that no request will come from here.
        let (batch, number) = (Arc::clone(&self.0.batch), self.0.number);
        Arc::new(move |phase| batch.hear(number, phase))
    }
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Service<Req> for Member<B, Req> {
    type Response = B::Answer;
    type Error = BatchError<B::Fault>;
    type Future = BoxFuture<'static, Outcome<B, Req>>;

    /// The loader is driven to readiness by the call of the batch.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (outcome, answered) = oneshot::channel();
        self.0.batch.collect(self.0.number, Collected { request, outcome });
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

impl<B: BatchLoader<Req>, Req: Send + 'static> Drop for Seat<B, Req> {
    fn drop(&mut self) {
        self.batch.stand(self.number, Stand::Gone);
    }
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Clone for Member<B, Req> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: BatchLoader<Req>, Req: Send + 'static> fmt::Debug for Member<B, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Member").field(&self.0.number).finish()
    }
}
