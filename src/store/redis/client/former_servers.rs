//! The records of servers that requests no longer go to, which go on when a server is back.

use std::collections::VecDeque;

use super::address::ServerAddress;
use crate::stats::NodeFigures;
use crate::store::redis::stats::{NodeList, RedisNodeStats};

/// Servers that were left, each with its record. Records have a bound, because a fleet may get
/// other addresses for ever: those of the servers that were left first are summed up.
#[derive(Debug)]
pub(super) struct FormerServers<R> {
    /// In the order in which the servers were left.
    records: VecDeque<(ServerAddress, R)>,
    /// The sum of those that had to make room.
    unlisted: NodeFigures,
}

/// What has the figures of a server.
pub(super) trait ServerRecord {
    fn figures(&self) -> NodeFigures;
}

impl<R: ServerRecord> FormerServers<R> {
    /// A server is left.
    pub(super) fn leave(&mut self, server: ServerAddress, record: R) {
        self.records.push_back((server, record));
        if self.records.len() > LISTED
            && let Some((_, oldest)) = self.records.pop_front()
        {
            self.unlisted = self.unlisted.and(&oldest.figures());
        }
    }

    /// The record of a server that is back, if there is one.
    pub(super) fn resume(&mut self, server: &ServerAddress) -> Option<R> {
        let place = self.records.iter().position(|(former, _)| former == server)?;
        self.records.remove(place).map(|(_, record)| record)
    }

    /// The figures of all servers that were left.
    pub(super) fn list(&self) -> NodeList {
        let stats = |(server, record): &(ServerAddress, R)| {
            let figures = record.figures();
            RedisNodeStats { is_former: true, ..RedisNodeStats::new(server.to_string(), &figures) }
        };
        NodeList {
            listed: self.records.iter().map(stats).collect(),
            unlisted: RedisNodeStats::new(String::new(), &self.unlisted),
        }
    }
}

impl<R> Default for FormerServers<R> {
    fn default() -> Self {
        Self { records: VecDeque::new(), unlisted: NodeFigures::default() }
    }
}

impl ServerRecord for NodeFigures {
    fn figures(&self) -> NodeFigures {
        *self
    }
}

/// How many records are kept: as many as a large cluster has replicas, which become primaries and
/// replicas again. Each takes some 250 bytes here, and a dozen time series where metrics are kept.
const LISTED: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::NodeCounters;

    fn server(port: usize) -> ServerAddress {
        ServerAddress::Tcp { host: "h".to_owned(), port: port as u16 }
    }

    fn requests(requests: usize) -> NodeFigures {
        let counters = NodeCounters::default();
        counters.sent(requests);
        counters.read()
    }

    #[test]
    fn the_record_of_a_server_goes_on_when_it_is_back() {
        let mut former = FormerServers::default();
        former.leave(server(1), requests(10));
        former.leave(server(2), requests(20));
        assert_eq!(former.resume(&server(1)), Some(requests(10)));
        assert_eq!(former.resume(&server(1)), None);
        former.leave(server(1), requests(11));
        let listed = former.list().listed;
        let listed: Vec<_> = listed.iter().map(|node| (&*node.address, node.requests)).collect();
        assert_eq!(listed, [("h:2", 20), ("h:1", 11)]);
    }

    #[test]
    fn records_are_bounded_and_their_sum_never_falls() {
        let mut former = FormerServers::default();
        for number in 1..=3 * LISTED {
            former.leave(server(number), requests(number));
            let NodeList { listed, unlisted } = former.list();
            assert_eq!(listed.len(), number.min(LISTED));
            assert!(listed.iter().all(|node| node.is_former), "{listed:?}");
            let sum = listed.iter().map(|node| node.requests).sum::<u64>() + unlisted.requests;
            assert_eq!(sum, (1..=number as u64).sum::<u64>());
        }
        assert_eq!(former.resume(&server(1)), None);
        assert_eq!(former.resume(&server(3 * LISTED)), Some(requests(3 * LISTED)));
    }
}
