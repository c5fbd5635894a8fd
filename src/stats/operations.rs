//! The recorder of a store's operations.

use super::counters::Counters;
use super::store_stats::{OperationStats, StoreErrorEvent, StoreErrorStats, StoreOperation};
use crate::error::{StoreError, StoreErrorKind};

/// The operations of a store, and how many of them have failed.
#[derive(Debug, Default)]
pub(crate) struct OperationCounters {
    operations: Counters<{ StoreOperation::COUNT }>,
    errors: Counters<{ StoreErrorEvent::COUNT }>,
}

impl OperationCounters {
    /// Counts an operation that has ended, and gives its result back.
    pub(crate) fn noted<T>(
        &self,
        operation: StoreOperation,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.operations.add(operation as usize);
        result.inspect_err(|error| self.errors.add(event(error.kind()) as usize))
    }

    pub(crate) fn operations(&self) -> OperationStats {
        OperationStats::read(|operation| self.operations.read(operation))
    }

    pub(crate) fn errors(&self) -> StoreErrorStats {
        StoreErrorStats::read(|error| self.errors.read(error))
    }
}

fn event(kind: StoreErrorKind) -> StoreErrorEvent {
    match kind {
        StoreErrorKind::Down => StoreErrorEvent::Down,
        StoreErrorKind::Malformed => StoreErrorEvent::Malformed,
        StoreErrorKind::Misconfigured => StoreErrorEvent::Misconfigured,
        StoreErrorKind::NotReady => StoreErrorEvent::NotReady,
        StoreErrorKind::Refused => StoreErrorEvent::Refused,
        StoreErrorKind::TimedOut => StoreErrorEvent::TimedOut,
        StoreErrorKind::Unsupported => StoreErrorEvent::Unsupported,
        StoreErrorKind::Unreachable => StoreErrorEvent::Unreachable,
    }
}
