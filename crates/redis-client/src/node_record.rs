//! The record of a node: what it was sent and what came of it, for the server behind it.
//!
//! A node of a cluster is one server, and so is a fixed address. Behind sentinels, one node is a
//! server after the other, and each begins with figures of zero.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::address::ServerAddress;
use crate::stats::RedisNodeStats;
use bellwether::stats::{NodeCounters, NodeFigures};

/// What a node was sent and what came of it.
#[derive(Debug, Default)]
pub(super) struct NodeRecord {
    pub(super) counters: NodeCounters,
    /// The server that the node is, and what was counted before it was that. None before the first
    /// attempt to connect behind sentinels. Held to note or to copy it, never across an `.await`.
    server: Mutex<(Option<ServerAddress>, NodeFigures)>,
}

impl NodeRecord {
    /// A record of a node that is this server.
    pub(super) fn of(server: ServerAddress) -> Self {
        let server = Mutex::new((Some(server), NodeFigures::default()));
        Self { server, ..Self::default() }
    }

    /// Notes an attempt to connect to a server.
    pub(super) fn connects_to(&self, address: &ServerAddress) {
        let mut server = self.server();
        if server.0.as_ref() != Some(address) {
            *server = (Some(address.clone()), self.counters.read());
        }
        self.counters.connects();
    }

    /// The figures of the server that the node is, which may be down.
    pub(super) fn stats(&self, is_down: bool) -> Option<RedisNodeStats> {
        let server = self.server();
        let figures = self.counters.read().since(&server.1);
        Some(RedisNodeStats::new(server.0.as_ref()?.to_string(), &figures, is_down))
    }

    fn server(&self) -> MutexGuard<'_, (Option<ServerAddress>, NodeFigures)> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: "h".to_owned(), port }
    }

    /// The server with its connects and requests.
    fn figures(record: &NodeRecord) -> Option<(String, u64, u64)> {
        record.stats(false).map(|node| (node.address, node.connects, node.requests))
    }

    #[test]
    fn each_server_has_its_own_figures() {
        let record = NodeRecord::default();
        assert_eq!(figures(&record), None);
        record.connects_to(&server(1));
        record.counters.sent(3);
        assert_eq!(figures(&record), Some(("h:1".to_owned(), 1, 3)));
        record.connects_to(&server(2));
        record.connects_to(&server(2));
        record.counters.sent(5);
        assert_eq!(figures(&record), Some(("h:2".to_owned(), 2, 5)));
    }

    #[test]
    fn a_node_at_a_fixed_address_is_known_before_it_connects() {
        let record = NodeRecord::of(server(1));
        record.counters.sent(2);
        record.connects_to(&server(1));
        assert_eq!(figures(&record), Some(("h:1".to_owned(), 1, 2)));
    }
}
