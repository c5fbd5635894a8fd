//! The loads that all callers have left, oldest first. So many go on, and the oldest is cancelled
//! when there is one more, or when its place is needed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The abandoned loads of one layer.
pub(crate) struct AbandonedLoads {
    most: usize,
    /// Held for a map operation, never across an `.await`. Taken last: after the lock of a shard or
    /// a flight.
    listed: Mutex<ListedLoads>,
}

/// By number: the oldest has the lowest.
#[derive(Default)]
struct ListedLoads {
    loads: BTreeMap<u64, Arc<AbandonedLoad>>,
    last: u64,
}

/// A load that all callers have left once. It is off the list while it has a waiter.
pub(super) struct AbandonedLoad {
    /// How many flights its table has. A load that is cancelled gives up its place at once.
    open: Arc<AtomicUsize>,
    is_cancelled: AtomicBool,
    cancelled: Notify,
}

/// A load that was cancelled just now. Its task is woken by [`tell`](Self::tell), after all locks.
#[must_use]
pub(super) struct CancelledLoad(Arc<AbandonedLoad>);

impl AbandonedLoads {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, listed: Mutex::default() })
    }

    /// Lists a load, and cancels the oldest if there are too many.
    pub(super) fn add(&self, load: Arc<AbandonedLoad>) -> (u64, Option<CancelledLoad>) {
        let mut listed = self.lock();
        listed.last += 1;
        let number = listed.last;
        listed.loads.insert(number, load);
        let over = (listed.loads.len() > self.most).then(|| listed.loads.pop_first()).flatten();
        (number, over.map(|(_, oldest)| oldest.cancel()))
    }

    pub(super) fn remove(&self, number: u64) {
        self.lock().loads.remove(&number);
    }

    /// Cancels the oldest load of the table with these flights.
    pub(super) fn cancel_one_of(&self, open: &Arc<AtomicUsize>) -> Option<CancelledLoad> {
        let mut listed = self.lock();
        let is_of = |(_, load): &(&u64, &Arc<AbandonedLoad>)| Arc::ptr_eq(&load.open, open);
        let oldest = *listed.loads.iter().find(is_of)?.0;
        Some(listed.loads.remove(&oldest)?.cancel())
    }

    fn lock(&self) -> MutexGuard<'_, ListedLoads> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AbandonedLoad {
    pub(super) fn of(open: &Arc<AtomicUsize>) -> Arc<Self> {
        let (is_cancelled, cancelled) = Default::default();
        Arc::new(Self { open: Arc::clone(open), is_cancelled, cancelled })
    }

    /// Waits until it is cancelled.
    pub(super) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }

    /// Under the lock of the list, so that a load which is off it is either cancelled or not.
    fn cancel(self: Arc<Self>) -> CancelledLoad {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.open.fetch_sub(1, Ordering::Relaxed);
        CancelledLoad(self)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

impl CancelledLoad {
    pub(super) fn tell(self) {
        self.0.cancelled.notify_one();
    }
}

impl fmt::Debug for AbandonedLoads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbandonedLoads").field("most", &self.most).finish_non_exhaustive()
    }
}
