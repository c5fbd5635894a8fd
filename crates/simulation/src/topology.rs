//! Topologies: which servers there are, and how a client finds them.

use std::ops::Range;

use crate::network::NodeId;
use crate::server::{ModelServer, Mutations, NamedPrimary, SERVICE, ServerRole};

/// Which servers a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Single,
    /// A primary, its replica, and sentinels.
    Sentinel,
}

impl Topology {
    /// The primaries at the begin.
    pub(crate) fn primaries(self) -> Range<NodeId> {
        0..1
    }

    /// The replica of a primary.
    pub(crate) fn replica_of(self, primary: NodeId) -> Option<NodeId> {
        (self == Self::Sentinel).then_some(primary + 1)
    }

    pub(crate) fn sentinels(self) -> Range<NodeId> {
        if self == Self::Sentinel { 2..5 } else { 0..0 }
    }

    /// What a client is told.
    pub(crate) fn url(self) -> String {
        match self {
            Self::Single => format!("redis://{}", self.address(0)),
            Self::Sentinel => {
                let sentinels: Vec<_> = self.sentinels().map(|it| self.address(it)).collect();
                format!("redis+sentinel://{}/{SERVICE}", sentinels.join(","))
            }
        }
    }

    pub(crate) fn address(self, node: NodeId) -> String {
        let port = if self.sentinels().contains(&node) { 26379 } else { 6379 };
        format!("10.0.0.{}:{port}", node + 1)
    }

    /// The role of a server at the begin.
    fn role(self, node: NodeId) -> ServerRole {
        let mut primaries = self.primaries();
        match primaries.find(|it| self.replica_of(*it) == Some(node)) {
            Some(primary) => ServerRole::Replica(self.address(primary)),
            None if self.sentinels().contains(&node) => {
                ServerRole::Sentinel(NamedPrimary { address: self.address(0), epoch: 0 })
            }
            None => ServerRole::Primary,
        }
    }

    /// All servers, and their addresses.
    pub(crate) fn servers(self, mutations: &Mutations) -> Vec<(String, ModelServer)> {
        let count = if self == Self::Single { 1 } else { self.sentinels().end };
        let server = |node| {
            let mut server = ModelServer::new(Mutations::clone(mutations));
            server.set_role(self.role(node));
            (self.address(node), server)
        };
        (0..count).map(server).collect()
    }

    /// How many tasks an idle process has at most: those of its connections.
    pub(crate) fn tasks(self) -> usize {
        8 + self.sentinels().len()
    }

    /// How many connections an idle process has to a server at most.
    pub(crate) fn connections(self, node: NodeId) -> usize {
        // One for requests and one for messages, or one for news of a sentinel.
        if self.sentinels().contains(&node) { 1 } else { 2 }
    }
}
