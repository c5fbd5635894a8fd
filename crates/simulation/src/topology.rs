//! Topologies: which servers there are, and how a client finds them.

use std::ops::Range;

use crate::network::NodeId;
use crate::server::SERVICE;

/// Which servers a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Single,
    /// A primary, its replica, and sentinels.
    Sentinel,
    /// So many primaries, each with a replica.
    Cluster(usize),
}

impl Topology {
    /// How many shards there are. The first nodes are their primaries at the begin.
    pub(crate) fn shards(self) -> usize {
        if let Self::Cluster(primaries) = self { primaries } else { 1 }
    }

    /// The replica of a shard at the begin.
    pub(crate) fn replica(self, shard: usize) -> Option<NodeId> {
        (self != Self::Single).then_some(self.shards() + shard)
    }

    pub(crate) fn sentinels(self) -> Range<NodeId> {
        if self == Self::Sentinel { 2..5 } else { 0..0 }
    }

    pub(crate) fn nodes(self) -> Range<NodeId> {
        match self {
            Self::Single => 0..1,
            Self::Sentinel => 0..self.sentinels().end,
            Self::Cluster(primaries) => 0..2 * primaries,
        }
    }

    pub(crate) fn is_cluster(self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// What a client is told.
    pub(crate) fn url(self) -> String {
        let list = |nodes: Range<NodeId>| nodes.map(address).collect::<Vec<_>>().join(",");
        match self {
            Self::Single => format!("redis://{}", address(0)),
            Self::Sentinel => format!("redis+sentinel://{}/{SERVICE}", list(self.sentinels())),
            Self::Cluster(_) => format!("redis-cluster://{}", list(self.nodes())),
        }
    }

    /// How many tasks an idle process has at most: those of its connections among them.
    pub(crate) fn tasks(self) -> usize {
        9 + self.sentinels().len() + 2 * (self.shards() - 1)
    }

    /// How many connections an idle process has to a server at most: one for requests and one for messages.
    /// A sentinel has one for its news. Those to a former primary of a cluster end with the next refresh of
    /// the slot table, within a minute.
    pub(crate) fn connections(self, node: NodeId, is_primary: bool) -> usize {
        match self {
            Self::Cluster(_) => 2,
            _ if is_primary => 2,
            _ => self.sentinels().contains(&node).into(),
        }
    }
}

/// The address of a server. All have the same port, as servers on machines of their own.
pub(crate) fn address(node: NodeId) -> String {
    format!("10.0.0.{}:6379", node + 1)
}
