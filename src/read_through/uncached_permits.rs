//! `UncachedPermits`: how many loads without a lease run at once, and how many wait.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::stats::{Activity, CurrentStats};

/// The permits to load without a lease, for all services of one layer.
pub(crate) struct UncachedPermits {
    permits: Arc<Semaphore>,
    /// Cloned by each load that waits for one.
    queued: Arc<()>,
}

impl UncachedPermits {
    pub(crate) fn new(most: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(most)), queued: Arc::default() }
    }

    /// A permit, if one is left.
    pub(crate) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Waits for a permit. `None` is for a semaphore that was closed, which this one never is.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue.
    pub(crate) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        if let Some(permit) = self.try_acquire() {
            return Some(permit);
        }
        let _queued = Arc::clone(&self.queued);
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }
}

impl Activity for UncachedPermits {
    fn read(&self) -> CurrentStats {
        let queued = Arc::strong_count(&self.queued) - 1;
        CurrentStats { queued_loads: queued as u64, ..CurrentStats::default() }
    }
}
