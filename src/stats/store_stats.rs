//! The statistics of stores.

use std::array;

use tokio::time::Instant;

use super::counters::{Counters, by_event, counters};
use super::histogram::{Histogram, HistogramStats};
use crate::error::{StoreError, StoreErrorKind};
use crate::metric_table;

/// The state of a [`MemoryStore`](crate::MemoryStore), and what it has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// How many entries are kept, including expired ones that were not removed yet.
    pub entries: u64,
    /// How many bytes they take, counted as [`max_bytes`](crate::store::MemoryOptions::max_bytes) says.
    pub bytes: u64,
    /// Entries that were removed before their end, to make room for others. If it grows, the store
    /// is too small for what it is asked for.
    pub evictions: u64,
}

metric_table! { MemoryStats, "store":
    Gauge "bellwether.store.entries" "{entry}" "Entries that are kept." = |it, to| to.one(it.entries);
    Gauge "bellwether.store.bytes" "By" "The size of the entries that are kept."
        = |it, to| to.one(it.bytes);
    Counter "bellwether.store.evictions" "{entry}" "Entries that were removed to make room."
        = |it, to| to.one(it.evictions);
}

/// What an [`OutageStore`](crate::store::OutageStore) does while its primary does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutageStats {
    /// How many entries are kept without the primary, fresh or stale. They are freed when it is back.
    pub entries: u64,
    /// Lookups that a fresh one of them answered.
    pub hits: u64,
}

counters! {
    /// How long operations of a store took, successful or not, with all their requests.
    pub struct OperationTimeStats by pub StoreOperation of HistogramStats {
        /// Reads of an entry. Copies of the near tier are not counted.
        lookup: Lookup,
        /// Requests for a lease.
        acquire: Acquire,
        /// Renewals of a lease.
        renew: Renew,
        /// Writes of an entry.
        commit: Commit,
        /// Reports of a failed load.
        fail: Fail,
        /// Releases of a lease without an entry.
        abandon: Abandon,
        /// Invalidations of a key.
        invalidate: Invalidate,
        /// Expirations of a key.
        expire: Expire,
        /// Invalidations of a tag.
        invalidate_tag: InvalidateTag,
        /// Expirations of a tag.
        expire_tag: ExpireTag,
    }
}

by_event! {
    /// Operations of a store that have failed, by the [kind](crate::store::StoreErrorKind) of the error.
    #[derive(Eq)]
    pub struct StoreErrorStats by StoreErrorKind of u64 {
        /// The circuit breaker was open, and the store was not asked.
        down: Down,
        /// The reply makes no sense.
        malformed: Malformed,
        /// The options do not fit the server.
        misconfigured: Misconfigured,
        /// The server was not ready.
        not_ready: NotReady,
        /// The server refused the operation.
        refused: Refused,
        /// The server did not reply in time.
        timed_out: TimedOut,
        /// The store has no such operation.
        unsupported: Unsupported,
        /// The server could not be reached, or the connection broke.
        unreachable: Unreachable,
    }
}

/// The operations of a store, how long they took, and how many of them have failed. Apart in memory
/// from what the operations only read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct OperationCounters {
    times: [Histogram; OperationTimeStats::COUNT],
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

    /// How many of them have failed.
    pub fn errors(&self) -> StoreErrorStats {
        StoreErrorStats::read(|error| self.errors.read(error))
    }
}

/// What a node was sent, and what came of it.
#[derive(Debug, Default)]
pub struct NodeCounters(Counters<COUNT>);

/// What is counted of a node, besides errors.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum NodeEvent {
    /// It was sent a request.
    Request,
    /// It has sent a request to another node.
    Redirection,
    /// An attempt to connect begins.
    Connect,
    /// The circuit breaker has opened.
    Outage,
}

const ERRORS: usize = 4;
const COUNT: usize = ERRORS + StoreErrorStats::COUNT;

impl NodeCounters {
    /// It has happened.
    pub fn add(&self, event: NodeEvent) {
        self.0.add(event as usize);
    }

    /// A request has failed.
    pub fn failed(&self, kind: StoreErrorKind) {
        self.0.add(ERRORS + kind as usize);
    }

    /// Its requests, those of them that it has sent to another node, attempts to connect, and how
    /// often its circuit breaker has opened.
    pub fn figures(&self) -> [u64; ERRORS] {
        array::from_fn(|event| self.0.read(event))
    }

    /// The requests that have failed.
    pub fn errors(&self) -> StoreErrorStats {
        StoreErrorStats::read(|event| self.0.read(ERRORS + event))
    }

    /// The node is another server from now on.
    pub fn reset(&self) {
        self.0.reset();
    }
}
