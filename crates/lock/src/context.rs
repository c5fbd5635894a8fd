//! What all claims of one [`Locks`](super::Locks) share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Lock;
use super::deferred_renewal::DeferredRenewals;
use super::local_queue::LocalQueues;
use super::stats::LockCounters;

/// What all claims of one [`Locks`](super::Locks) share.
pub(super) struct LocksContext {
    pub(super) lock: Arc<dyn Lock>,
    pub(super) queues: LocalQueues,
    pub(super) deferred: Arc<DeferredRenewals>,
    pub(super) counters: LockCounters,
    /// The claims that are asked for, held or being released.
    pub(super) claims: TaskTracker,
    /// Cancelled by a shutdown: no new locks are given.
    pub(super) closing: CancellationToken,
    /// Cancelled by the end of its patience: the renewal tasks release what is still held.
    pub(super) closed: CancellationToken,
}

impl LocksContext {
    pub(super) fn new(lock: Arc<dyn Lock>) -> Self {
        Self {
            queues: lock.local_queues(),
            lock,
            deferred: Arc::default(),
            counters: LockCounters::default(),
            claims: TaskTracker::new(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        }
    }
}
