//! The recorder of a store's operations.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tokio::time::Instant;

use super::counters::Counters;
use super::histogram::Histogram;
use super::store_stats::{OperationStats, OperationTimeStats, StoreErrorStats, StoreOperation};
use crate::error::StoreError;

/// The operations of a store, how long they took, and how many of them have failed. Apart in memory
/// from what the operations only read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct OperationCounters {
    /// These count the operations, too.
    times: [Histogram; OperationStats::COUNT],
    errors: Counters<{ StoreErrorStats::COUNT }>,
}

impl OperationCounters {
    /// Waits for an operation, counts it, and gives its result back. One that is dropped before its
    /// end is not counted.
    pub fn counted<F>(&self, operation: StoreOperation, result: F) -> CountedOperation<'_, F> {
        CountedOperation { counters: self, operation, began: Instant::now(), result }
    }

    /// How long operations took.
    pub fn times(&self) -> OperationTimeStats {
        OperationTimeStats::read(|operation| self.times[operation].read())
    }

    /// How many operations have ended.
    pub fn operations(&self) -> OperationStats {
        OperationStats::read(|operation| self.times[operation].read().count())
    }

    /// How many of them have failed.
    pub fn errors(&self) -> StoreErrorStats {
        StoreErrorStats::read(|error| self.errors.read(error))
    }
}

/// An operation that is counted. A type of its own, because an `async fn` would take twice the memory
/// of the operation: for its argument, and for what it waits for.
#[pin_project]
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct CountedOperation<'a, F> {
    counters: &'a OperationCounters,
    operation: StoreOperation,
    began: Instant,
    #[pin]
    result: F,
}

impl<T, F: Future<Output = Result<T, StoreError>>> Future for CountedOperation<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.result.poll(cx));
        this.counters.times[*this.operation as usize].note(this.began.elapsed());
        Poll::Ready(result.inspect_err(|error| this.counters.errors.add(error.kind() as usize)))
    }
}
