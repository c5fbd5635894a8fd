//! The recorder of a store's operations.

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
    /// Counts an operation that has ended, and gives its result back.
    pub fn ended<T>(
        &self,
        operation: StoreOperation,
        began: Instant,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.times[operation as usize].note(began.elapsed());
        result.inspect_err(|error| self.errors.add(error.kind() as usize))
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
