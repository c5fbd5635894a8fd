//! Failovers: new connections after the server was found to be a replica, or another one is named.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::dial::Driver;
use bellwether::adapter::LogThrottle;
use bellwether::warn_throttled;

/// Counts how often the server was found to be a replica. After a failover its address may lead to
/// another server, so all older connections are given up.
pub(super) struct Failovers {
    count: AtomicU64,
    /// The open connections, and some that have ended. Held to add or take them, never across an
    /// `.await`.
    open: Mutex<Vec<Weak<Driver>>>,
    /// If the address still leads to a replica, a reconnect for each write would only add load.
    throttle: LogThrottle,
}

impl Default for Failovers {
    fn default() -> Self {
        let throttle = LogThrottle::once_per(Duration::from_secs(1));
        Self { count: AtomicU64::new(0), open: Mutex::default(), throttle }
    }
}

impl Failovers {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a connection that a [switch](Self::switch) ends.
    pub(super) fn watch(&self, connection: &Arc<Driver>) {
        let mut open = self.open();
        open.retain(|connection| connection.strong_count() > 0);
        open.push(Arc::downgrade(connection));
    }

    /// Another server is the primary now. All connections to the former one are ended, because it may
    /// still accept writes, which are lost.
    pub(super) fn switch(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let open = mem::take(&mut *self.open());
        open.iter().filter_map(Weak::upgrade).for_each(|connection| connection.end());
    }

    fn open(&self) -> MutexGuard<'_, Vec<Weak<Driver>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self) {
        if self.throttle.admit().is_some() {
            self.count.fetch_add(1, Ordering::Relaxed);
            warn_throttled!(target: "bellwether::store", "redis has become a replica: connecting again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_requests_that_find_a_replica_cause_one_reconnect_a_second() {
        let failovers = Failovers::default();
        (0..1000).for_each(|_| failovers.note());
        assert_eq!(failovers.count(), 1);
    }
}
