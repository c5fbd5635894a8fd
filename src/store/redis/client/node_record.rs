//! The record of a node: what it was sent and what came of it, for the server behind it.
//!
//! A node of a cluster is one server, and so is a fixed address. Behind sentinels, one node is a
//! server after the other: each has figures of its own, which go on when it is the primary again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::address::ServerAddress;
use super::former_servers::{FormerServers, ServerRecord};
use crate::stats::{NodeCounters, NodeFigures};
use crate::store::redis::stats::{NodeList, RedisNodeStats};

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
    former: FormerServers<NodeFigures>,
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

    /// The figures of the servers that the node was, and of the one that it is. That one may be down.
    pub(super) fn list(&self, is_down: bool) -> NodeList {
        let servers = self.servers();
        let mut list = servers.former.list();
        let figures = self.counters.read().since(&servers.others);
        list.listed.extend(servers.current.iter().map(|server| RedisNodeStats {
            is_down,
            ..RedisNodeStats::new(server.to_string(), &figures)
        }));
        list
    }

    fn servers(&self) -> MutexGuard<'_, NodeServers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeServers {
    /// Another server takes the place of the current one.
    fn replace(&mut self, server: &ServerAddress, counted: NodeFigures) {
        let resumed = self.former.resume(server).unwrap_or_default();
        if let Some(current) = self.current.replace(server.clone()) {
            self.former.leave(current, counted.since(&self.others));
        }
        self.others = counted.since(&resumed);
    }
}

/// Of a node of a cluster, which is one server.
impl ServerRecord for Arc<NodeRecord> {
    fn figures(&self) -> NodeFigures {
        self.counters.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: "h".to_owned(), port }
    }

    /// The servers with their connects and requests, the current one first.
    fn figures(record: &NodeRecord) -> Vec<(String, u64, u64)> {
        let mut nodes = record.list(false).listed;
        nodes.sort_by_key(|node| (node.is_former, node.address.clone()));
        nodes.into_iter().map(|node| (node.address, node.connects, node.requests)).collect()
    }

    #[test]
    fn each_server_has_its_own_figures_which_go_on_when_it_is_back() {
        let record = NodeRecord::default();
        assert_eq!(figures(&record), []);
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
    fn only_the_server_that_a_node_is_can_be_down() {
        let record = NodeRecord::default();
        record.connects_to(&server(1));
        record.connects_to(&server(2));
        let nodes = record.list(true).listed.into_iter();
        let nodes: Vec<_> =
            nodes.map(|node| (node.address, node.is_former, node.is_down)).collect();
        assert_eq!(nodes, [("h:1".to_owned(), true, false), ("h:2".to_owned(), false, true)]);
    }

    #[test]
    fn the_sum_over_ever_new_servers_never_falls() {
        let record = NodeRecord::default();
        for port in 1..1000 {
            record.connects_to(&server(port));
            record.counters.sent(2);
            let NodeList { listed, unlisted } = record.list(false);
            let sum = listed.iter().map(|node| node.requests).sum::<u64>() + unlisted.requests;
            assert_eq!(sum, 2 * u64::from(port));
            assert!(listed.len() < 200, "{}", listed.len());
        }
    }

    #[test]
    fn a_node_at_a_fixed_address_is_known_before_it_connects() {
        let record = NodeRecord::of(server(1));
        record.counters.sent(2);
        record.connects_to(&server(1));
        assert_eq!(figures(&record), [("h:1".to_owned(), 1, 2)]);
    }
}
