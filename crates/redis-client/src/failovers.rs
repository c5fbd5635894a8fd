//! Failovers: new connections after the server was found to be a replica, or another one is named.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use bellwether::adapter::LogThrottle;
use bellwether::warn_throttled;

/// Counts how often the server was found to be a replica. After a failover its address may lead to
/// another server, so all older connections are given up.
pub(super) struct Failovers {
    count: AtomicU64,
    /// Notified when another server is the primary. Then the connections to the former one end,
    /// because it may still accept writes, which are lost.
    pub(super) switched: Notify,
    /// If the address still leads to a replica, a reconnect for each write would only add load.
    throttle: LogThrottle,
}

impl Default for Failovers {
    fn default() -> Self {
        let throttle = LogThrottle::once_per(Duration::from_secs(1));
        Self { count: AtomicU64::new(0), switched: Notify::new(), throttle }
    }
}

impl Failovers {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Another server is the primary now.
    #[cfg(feature = "sentinel")]
    pub(super) fn switch(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.switched.notify_waiters();
    }

    /// The server is a replica.
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
