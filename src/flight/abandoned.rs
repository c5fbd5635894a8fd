//! The loads that all callers have left, oldest first. So many go on, and the oldest is cancelled
//! when there is one more, or when its place is needed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::locked::locked;
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

/// The load of a flight, on the list while it goes on without callers.
pub(super) struct AbandonedLoad {
    /// How many flights its table has. A load that is cancelled gives up its place at once.
    open: Arc<AtomicUsize>,
    is_cancelled: AtomicBool,
    cancelled: Notify,
}

impl AbandonedLoads {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, listed: Mutex::default() })
    }

    /// Lists a load. Gives the oldest if there are too many: it is cancelled, and is
    /// [told](AbandonedLoad::tell) after all locks.
    pub(super) fn add(&self, load: &Arc<AbandonedLoad>) -> (u64, Option<Arc<AbandonedLoad>>) {
        let mut listed = locked(&self.listed);
        listed.last += 1;
        let number = listed.last;
        listed.loads.insert(number, Arc::clone(load));
        let over = (listed.loads.len() > self.most).then(|| listed.loads.pop_first()).flatten();
        (number, over.map(|(_, oldest)| oldest.cancel()))
    }

    pub(super) fn remove(&self, number: u64) {
        locked(&self.listed).loads.remove(&number);
    }

    /// Cancels the oldest load of the table with these flights. It is told after all locks.
    pub(super) fn cancel_one_of(&self, open: &Arc<AtomicUsize>) -> Option<Arc<AbandonedLoad>> {
        let mut listed = locked(&self.listed);
        let is_of = |(_, load): &(&u64, &Arc<AbandonedLoad>)| Arc::ptr_eq(&load.open, open);
        let oldest = *listed.loads.iter().find(is_of)?.0;
        Some(listed.loads.remove(&oldest)?.cancel())
    }
}

impl AbandonedLoad {
    pub(super) fn new(open: Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self { open, is_cancelled: AtomicBool::default(), cancelled: Notify::new() })
    }

    /// Waits until it is cancelled.
    pub(super) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }

    /// Under the lock of the list, so that a load which is off it is either cancelled or not.
    fn cancel(self: Arc<Self>) -> Arc<Self> {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.open.fetch_sub(1, Ordering::Relaxed);
        self
    }

    /// Wakes the task of a load that was cancelled just now. No lock may be held.
    pub(super) fn tell(&self) {
        self.cancelled.notify_one();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Its flight is closed. A load that was cancelled has given up its place.
    pub(super) fn close(&self) {
        if !self.is_cancelled() {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
