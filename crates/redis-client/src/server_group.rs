//! The servers of a client: a single one, or a cluster.

use std::sync::Arc;

use super::address::ServerAddress;
use super::client_core::ClientCore;
use super::cluster::Cluster;
use super::node::RedisNode;
use super::server_error::ServerError;
use super::slots::InSlot;
use bellwether::StoreError;

/// Where requests go.
#[derive(Clone)]
pub(super) enum ServerGroup {
    Single(Arc<RedisNode>),
    Cluster(Arc<Cluster>),
}

impl ServerGroup {
    pub(super) fn new(parts: &Arc<ClientCore>) -> Self {
        if parts.options.is_cluster() {
            return Self::Cluster(Arc::new(Cluster::new(Arc::clone(parts))));
        }
        let first = parts.options.servers.addresses[0].clone();
        Self::Single(Arc::new(RedisNode::new(parts, first, 0)))
    }

    /// Opens the connections that are not open.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        match self {
            Self::Single(node) => node.connect().await,
            Self::Cluster(cluster) => Box::pin(cluster.connect()).await,
        }
    }

    /// Calls `then` with the server that owns a name, as far as it is known.
    pub(super) fn with_owner<T>(
        &self,
        name: &impl InSlot,
        then: impl FnOnce(Option<&Arc<RedisNode>>) -> T,
    ) -> T {
        match self {
            Self::Single(node) => then(Some(node)),
            Self::Cluster(cluster) => then(cluster.table.owner(name.slot()).as_ref()),
        }
    }

    /// The servers that own slots, each with one slot of its own. A single server has all slots.
    pub(super) fn owners(&self) -> Vec<(u16, Arc<RedisNode>)> {
        match self {
            Self::Single(node) => vec![(0, Arc::clone(node))],
            Self::Cluster(cluster) => cluster.table.owners(),
        }
    }

    /// Whether a cluster as a whole is taken to be down.
    pub(super) fn is_cluster_down(&self) -> bool {
        match self {
            Self::Single(_) => false,
            Self::Cluster(cluster) => cluster.breaker.is_open(),
        }
    }

    /// The address of the server, or of any node of a cluster, to connect to now.
    pub(super) async fn address(&self) -> Result<ServerAddress, ServerError> {
        match self {
            Self::Single(node) => node.state.address().await,
            Self::Cluster(cluster) => {
                let none = || ServerError::unavailable("no node of the cluster is known");
                cluster.any_node().ok_or_else(none)
            }
        }
    }
}
