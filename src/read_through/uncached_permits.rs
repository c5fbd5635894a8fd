//! `UncachedPermits`: how many loads without a lease run at once, and how many wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::stats::{Activity, CurrentStats};

/// The permits to load without a lease, for all services of one layer.
#[derive(Debug)]
pub(crate) struct UncachedPermits {
    permits: Arc<Semaphore>,
    /// How many loads wait for one.
    queued: AtomicUsize,
}

impl UncachedPermits {
    pub(crate) fn new(most: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(most)), queued: AtomicUsize::new(0) }
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
        let _queued = QueuedLoad::enter(&self.queued);
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// How many loads wait for a permit.
    fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }
}

impl Activity for UncachedPermits {
    fn read(&self) -> CurrentStats {
        CurrentStats { queued_loads: self.queued() as u64, ..CurrentStats::default() }
    }
}

/// A load in the queue. Dropping it leaves.
struct QueuedLoad<'a>(&'a AtomicUsize);

impl<'a> QueuedLoad<'a> {
    fn enter(queued: &'a AtomicUsize) -> Self {
        queued.fetch_add(1, Ordering::Relaxed);
        Self(queued)
    }
}

impl Drop for QueuedLoad<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
