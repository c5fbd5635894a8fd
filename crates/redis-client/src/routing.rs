//! Where the requests of a client go: one server, or the nodes of a cluster.

use std::sync::Arc;

use tokio::time::Instant;

use super::address::Servers;
use super::cluster::Cluster;
use super::node::{NodeFactory, RedisNode};
use super::options::RedisClientOptions;
use super::request::{Outgoing, RedisRequest, Replied};
use super::server_clock::ServerClock;
use super::slot::InSlot;
use crate::stats::RedisNodeStats;
use bellwether::StoreError;

/// Items that one command can have.
#[derive(Debug)]
pub struct SlotGroup<T> {
    /// Their slot in a cluster.
    pub slot: u16,
    /// The items, in their former order.
    pub items: Vec<T>,
}

/// Where requests go.
pub(super) enum Routing {
    Single(Box<RedisNode>),
    Cluster(Arc<Cluster>),
}

impl Routing {
    pub(super) fn new(factory: NodeFactory, options: &RedisClientOptions) -> Self {
        match (options.servers(), factory.handler.owners.clone()) {
            (Servers::Cluster { seeds }, Some(owners)) => {
                let timeout = options.request_timeout();
                Self::Cluster(Arc::new(Cluster::new(factory, owners, seeds.clone(), timeout)))
            }
            (servers, _) => Self::Single(Box::new(factory.single(servers.first()))),
        }
    }

    pub(super) async fn run(
        &self,
        request: &RedisRequest<'_>,
        deadline: Instant,
    ) -> Result<Replied, StoreError> {
        match self {
            Self::Single(node) => {
                let replied = node.send(request.route, Outgoing::One(request), deadline).await;
                replied.map_err(|error| error.said)
            }
            // Boxed, so that the callers of a single server need no memory for it.
            Self::Cluster(cluster) => Box::pin(cluster.run(request, deadline)).await,
        }
    }

    pub(super) async fn run_all(
        &self,
        requests: &[RedisRequest<'_>],
        deadline: Instant,
        mut done: impl FnMut(usize, Result<Replied, StoreError>),
    ) {
        match self {
            Self::Single(_) => {
                for (place, request) in requests.iter().enumerate() {
                    done(place, self.run(request, deadline).await);
                }
            }
            Self::Cluster(cluster) => Box::pin(cluster.run_all(requests, deadline, done)).await,
        }
    }

    /// Splits items into groups that one command can have: all of them for a single server, whose
    /// slot is zero, and those of one slot for a cluster. No group is empty.
    pub(super) fn split<T>(&self, items: Vec<T>, slot: impl Fn(&T) -> u16) -> Vec<SlotGroup<T>> {
        match self {
            _ if items.is_empty() => Vec::new(),
            Self::Single(_) => vec![SlotGroup { slot: 0, items }],
            Self::Cluster(_) => {
                let mut items: Vec<_> = items.into_iter().map(|item| (slot(&item), item)).collect();
                items.sort_by_key(|(slot, _)| *slot);
                let mut groups = Vec::<SlotGroup<T>>::with_capacity(items.len());
                for (slot, item) in items {
                    match groups.last_mut() {
                        Some(group) if group.slot == slot => group.items.push(item),
                        _ => groups.push(SlotGroup { slot, items: vec![item] }),
                    }
                }
                groups
            }
        }
    }

    /// Opens the connections that are not open. `doing` describes that in the error.
    pub(super) async fn connect(
        &self,
        doing: &'static str,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        match self {
            Self::Single(node) => node.connect(doing, deadline).await,
            Self::Cluster(cluster) => Box::pin(cluster.connect(doing, deadline)).await,
        }
    }

    /// The cluster, if it is one.
    pub(super) fn cluster(&self) -> Option<Arc<Cluster>> {
        match self {
            Self::Single(_) => None,
            Self::Cluster(cluster) => Some(Arc::clone(cluster)),
        }
    }

    /// A slot of each node that owns any.
    pub(super) fn slots_of_nodes(&self) -> Vec<u16> {
        match self {
            Self::Single(_) => vec![0],
            Self::Cluster(cluster) => cluster.slots_of_nodes(),
        }
    }

    /// What the nodes were sent and what came of it, in the order of their addresses.
    pub(super) fn node_stats(&self) -> Vec<RedisNodeStats> {
        let mut nodes: Vec<_> = match self {
            Self::Single(node) => node.stats().into_iter().collect(),
            Self::Cluster(cluster) => cluster.node_stats(),
        };
        nodes.sort_by(|one, other| one.address.cmp(&other.address));
        nodes
    }

    pub(super) fn is_down(&self) -> bool {
        match self {
            Self::Single(node) => node.is_down(),
            Self::Cluster(cluster) => cluster.is_down(),
        }
    }

    pub(super) fn is_down_for(&self, name: &impl InSlot) -> bool {
        match self {
            Self::Single(node) => node.is_down(),
            Self::Cluster(cluster) => cluster.is_slot_down(name.slot()),
        }
    }

    /// The place of the owner of a slot. Zero if it is not known.
    pub(super) fn node_of(&self, slot: u16) -> u16 {
        match self {
            Self::Single(node) => node.place,
            Self::Cluster(cluster) => {
                cluster.with_owner_of(slot, |node| node.map_or(0, |node| node.place))
            }
        }
    }

    /// The latest time of a server, in us.
    pub(super) fn latest_time(&self) -> Option<u64> {
        let latest = |clock: &ServerClock| clock.now().map(|now| now.latest);
        match self {
            Self::Single(node) => latest(&node.clock),
            Self::Cluster(cluster) => {
                cluster.owners().iter().filter_map(|node| latest(&node.clock)).max()
            }
        }
    }

    pub(super) fn with_clock<T>(
        &self,
        name: &impl InSlot,
        then: impl FnOnce(&ServerClock) -> T,
    ) -> T {
        match self {
            Self::Single(node) => then(&node.clock),
            Self::Cluster(cluster) => cluster.with_owner_of(name.slot(), |node| match node {
                Some(node) => then(&node.clock),
                None => then(&ServerClock::default()),
            }),
        }
    }

    /// How many servers are in use.
    pub(super) fn server_count(&self) -> usize {
        match self {
            Self::Single(_) => 1,
            Self::Cluster(cluster) => cluster.node_count(),
        }
    }
}
