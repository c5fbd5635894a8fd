//! The recorder of a store's operations.

use std::future::Future;

use tokio::time::Instant;

use super::counters::Counters;
use super::histogram::TimeHistograms;
use super::store_stats::{
    OperationStats, OperationTimeStats, StoreErrorEvent, StoreErrorStats, StoreOperation, event,
};
use crate::error::StoreError;

/// The operations of a store, how long they took, and how many of them have failed.
#[derive(Debug, Default)]
pub(crate) struct OperationCounters {
    /// These count the operations, too.
    times: TimeHistograms<{ StoreOperation::COUNT }>,
    errors: Counters<{ StoreErrorEvent::COUNT }>,
}

impl OperationCounters {
    /// Waits for an operation, counts it, and gives its result back. One that is dropped before its
    /// end is not counted.
    pub(crate) async fn counted<T>(
        &self,
        operation: StoreOperation,
        result: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let result = result.await;
        self.times.note(operation as usize, began.elapsed());
        result.inspect_err(|error| self.errors.add(event(error.kind()) as usize))
    }

    pub(crate) fn times(&self) -> OperationTimeStats {
        OperationTimeStats::read(|operation| self.times.read(operation))
    }

    pub(crate) fn operations(&self) -> OperationStats {
        OperationStats::read(|operation| self.times.read(operation).count())
    }

    pub(crate) fn errors(&self) -> StoreErrorStats {
        StoreErrorStats::read(|error| self.errors.read(error))
    }
}
