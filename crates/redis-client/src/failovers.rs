//! `Failovers`: that another server became the primary, or that a connection leads to a replica.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bellwether::adapter::locked;
use bellwether::warn_throttled;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Counts how often the server was found to be a replica. After a failover its address may lead to
/// another server, so all older connections are given up.
#[derive(Default)]
pub(super) struct Failovers {
    count: AtomicU64,
    /// Notified when another server is the primary. Then the connections to the former one end,
    /// because it may still accept writes, which are lost.
    pub(super) switched: Notify,
    /// Before that, a replica gives up no more connections. Held for an instruction or two.
    next_at: Mutex<Option<Instant>>,
}

impl Failovers {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Another server is the primary now.
    pub(super) fn switch(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.switched.notify_waiters();
    }

    /// The server is a replica.
    pub(super) fn note(&self) {
        let now = Instant::now();
        let mut next_at = locked(&self.next_at);
        if next_at.is_some_and(|next_at| now < next_at) {
            return;
        }
        *next_at = Some(now + RECONNECT);
        // The warning runs code of a subscriber.
        drop(next_at);
        self.count.fetch_add(1, Ordering::Relaxed);
        warn_throttled!(target: "bellwether::store", "redis has become a replica: connecting again");
    }
}

/// The pause between reconnects because of a replica. If the address still leads to one, a reconnect for each
/// write would only add load.
const RECONNECT: Duration = Duration::from_secs(1);

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
