//! The record of a node: what it was sent and what came of it, for the server behind it.
//!
//! A node of a cluster is one server, and so is a fixed address. Behind sentinels, one node is a
//! server after the other: each has figures of its own, which go on when it is the primary again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::address::ServerAddress;
use crate::stats::{NodeCounters, NodeFigures};

/// What a node was sent and what came of it, by server.
#[derive(Debug, Default)]
pub(super) struct NodeRecord {
    pub(super) counters: NodeCounters,
    /// Held to note or to copy servers, never across an `.await`.
    servers: Mutex<NodeServers>,
}

/// The servers that a node has been.
#[derive(Debug, Default)]
struct NodeServers {
    /// The one that it is. None before the first attempt to connect behind sentinels.
    current: Option<ServerAddress>,
    /// What the counters counted for other servers.
    others: NodeFigures,
    former: Vec<(ServerAddress, NodeFigures)>,
}

impl NodeRecord {
    /// A record of a node that is this server.
    pub(super) fn of(server: ServerAddress) -> Self {
        let servers = NodeServers { current: Some(server), ..NodeServers::default() };
        Self { servers: Mutex::new(servers), ..Self::default() }
    }

    /// Notes an attempt to connect to a server.
    pub(super) fn connects_to(&self, server: &ServerAddress) {
        let mut servers = self.servers();
        if servers.current.as_ref() != Some(server) {
            servers.replace(server, self.counters.read());
        }
        self.counters.connects();
    }

    /// The figures of the server that the node is, and then those of the servers that it was.
    pub(super) fn read(&self) -> Vec<(ServerAddress, NodeFigures)> {
        let servers = self.servers();
        let figures = self.counters.read().since(&servers.others);
        let current = servers.current.clone().map(|server| (server, figures));
        current.into_iter().chain(servers.former.iter().cloned()).collect()
    }

    fn servers(&self) -> MutexGuard<'_, NodeServers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeServers {
    /// Another server takes the place of the current one.
    fn replace(&mut self, server: &ServerAddress, counted: NodeFigures) {
        if let Some(current) = self.current.replace(server.clone()) {
            self.former.push((current, counted.since(&self.others)));
        }
        let place = self.former.iter().position(|(former, _)| former == server);
        let resumed = place.map(|place| self.former.swap_remove(place).1).unwrap_or_default();
        self.others = counted.since(&resumed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: "h".to_owned(), port }
    }

    /// The servers with their connects and requests.
    fn figures(record: &NodeRecord) -> Vec<(String, u64, u64)> {
        let read = record.read().into_iter();
        let mut figures: Vec<_> = read
            .map(|(server, figures)| (server.to_string(), figures.connects(), figures.requests()))
            .collect();
        figures[1..].sort();
        figures
    }

    #[test]
    fn each_server_has_its_own_figures_which_go_on_when_it_is_back() {
        let record = NodeRecord::default();
        assert_eq!(record.read(), []);
        record.connects_to(&server(1));
        record.counters.sent(3);
        assert_eq!(figures(&record), [("h:1".to_owned(), 1, 3)]);
        record.connects_to(&server(2));
        record.counters.sent(5);
        assert_eq!(figures(&record), [("h:2".to_owned(), 1, 5), ("h:1".to_owned(), 1, 3)]);
        record.connects_to(&server(1));
        record.counters.sent(10);
        assert_eq!(figures(&record), [("h:1".to_owned(), 2, 13), ("h:2".to_owned(), 1, 5)]);
    }

    #[test]
    fn a_node_at_a_fixed_address_is_known_before_it_connects() {
        let record = NodeRecord::of(server(1));
        record.counters.sent(2);
        record.connects_to(&server(1));
        assert_eq!(figures(&record), [("h:1".to_owned(), 1, 2)]);
    }
}
