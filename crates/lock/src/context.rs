//! What all claims of one [`Locks`](super::Locks) share.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

use super::Lock;
use super::deferred_renewal::DeferredRenewals;
use super::local_queue::LocalQueues;
use super::stats::LockCounters;

/// How far a shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShutdownStage {
    Open,
    /// No new locks are given.
    Closing,
    /// The renewal tasks release what is still held.
    Closed,
}

/// What all claims of one [`Locks`](super::Locks) share.
pub(super) struct LocksContext {
    pub(super) lock: Arc<dyn Lock>,
    pub(super) queues: LocalQueues,
    pub(super) stage: watch::Sender<ShutdownStage>,
    pub(super) deferred: Arc<DeferredRenewals>,
    pub(super) counters: LockCounters,
    /// How many claims are asked for, held or being released.
    count: AtomicUsize,
    /// Notified when there is no claim left.
    none: Notify,
}

impl LocksContext {
    pub(super) fn new(lock: Arc<dyn Lock>) -> Self {
        Self {
            queues: lock.local_queues(),
            lock,
            stage: watch::Sender::new(ShutdownStage::Open),
            deferred: Arc::default(),
            counters: LockCounters::default(),
            count: AtomicUsize::new(0),
            none: Notify::new(),
        }
    }

    /// Counts one more claim until the returned value is dropped.
    pub(super) fn counted(self: &Arc<Self>) -> CountedClaim {
        self.count.fetch_add(1, Ordering::AcqRel);
        CountedClaim(Arc::clone(self))
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Waits until there is no claim.
    pub(super) async fn ended(&self) {
        loop {
            let mut none = pin!(self.none.notified());
            // Enabled before the check, so that the end of the last claim is not missed.
            none.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            none.await;
        }
    }
}

/// One claim, as [`LocksContext::count`] counts it.
pub(super) struct CountedClaim(Arc<LocksContext>);

impl Deref for CountedClaim {
    type Target = Arc<LocksContext>;

    fn deref(&self) -> &Arc<LocksContext> {
        &self.0
    }
}

impl Drop for CountedClaim {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}
