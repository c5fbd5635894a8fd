//! Nodes: a server with its connections and its circuit breaker, and what these share.
//!
//! Behind an address can be another server than before: a replica that was promoted, or the same
//! server after a restart. A client cannot tell that from a network that failed for a moment. So
//! every broken connection counts as a possible loss of the last writes.

use std::sync::{Arc, Mutex};

use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::address::{ServerAddress, ServersKind};
use super::breaker::Breaker;
use super::connector::Connector;
use super::events::ServerEvent;
use super::names::InSlot;
use super::parts::{ClientParts, Failovers};
use super::request::{RedisRequest, Replied};
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::server_clock::ServerClock;
use super::server_error::ServerError;
use super::shared_connection::SharedConnection;
use bellwether::StoreError;
use bellwether::adapter::{jitter, locked};
use bellwether::stats::{NodeCounters, StoreErrorStats};
use bellwether::store::Digest;

/// A server with its connections and its circuit breaker.
pub(super) struct RedisNode {
    pub(super) state: Arc<NodeRecord>,
    is_of_cluster: bool,
    breaker: Breaker,
    connections: Box<[Arc<SharedConnection>]>,
}

/// Why a node gave no usable reply.
pub(super) struct NodeError {
    /// None if the node is taken to be down, and nothing was sent.
    pub(super) error: Option<ServerError>,
    /// The error for the caller.
    pub(super) said: StoreError,
}

impl RedisNode {
    pub(super) fn new(parts: &Arc<ClientParts>, address: ServerAddress, place: u16) -> Self {
        let state = Arc::new(NodeRecord::new(Arc::clone(parts), place, address));
        let connection =
            |number| SharedConnection::new(Connector { node: Arc::clone(&state), number });
        Self {
            is_of_cluster: parts.options.is_cluster(),
            breaker: Breaker::new(parts.options.rules(jitter()), Arc::clone(&parts.outages)),
            connections: (0..parts.connections()).map(connection).collect(),
            state,
        }
    }

    /// Sends a request, unless the node is taken to be down. `asks` says whether the node is importing
    /// its slot.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; what was sent may have been executed, or be executed later.
    pub(super) async fn send(
        &self,
        request: &RedisRequest<'_>,
        asks: bool,
        deadline: Instant,
    ) -> Result<Replied, NodeError> {
        let counters = &self.state.counters;
        let admission = self.breaker.admit().map_err(|said| {
            counters.failed(said.kind());
            NodeError { error: None, said }
        })?;
        counters.sent(1);
        let error = match self.connection(request).send(request, asks, deadline).await {
            Ok(replied) => {
                admission.answered();
                return Ok(replied);
            }
            Err(error) if self.is_of_cluster => error.in_cluster(),
            Err(error) => error,
        };
        let failed = self.error(request.error(&error), error);
        match &failed.error {
            Some(ServerError::Redirected(_)) => counters.redirected(),
            _ => counters.failed(failed.said.kind()),
        }
        if !failed.error.as_ref().is_some_and(ServerError::is_outage) {
            admission.answered();
        } else if admission.failed(&failed.said) {
            counters.went_down();
        }
        Err(failed)
    }

    /// The connection for a request. Those for one key share one.
    fn connection(&self, request: &RedisRequest<'_>) -> &Arc<SharedConnection> {
        match &*self.connections {
            [only] => only,
            several => &several[usize::from(request.slot()) % several.len()],
        }
    }

    fn error(&self, said: StoreError, error: ServerError) -> NodeError {
        let said = match self.is_of_cluster {
            true => StoreError::new(said.kind(), format!("{said} (node {})", self.state.address))
                .with_source(said),
            false => said,
        };
        NodeError { error: Some(error), said }
    }

    /// Opens the connections that are not open.
    ///
    /// # Errors
    /// That of the first that fails.
    pub(super) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        let all = self.connections.iter().map(|connection| connection.open(deadline));
        let said = |error: ServerError| self.error(error.during(CONNECTING, None), error).said;
        try_join_all(all).await.map(drop).map_err(said)
    }

    pub(super) fn is_down(&self) -> bool {
        self.breaker.is_open()
    }

    /// What it was sent and what came of it. None before sentinels have named a server.
    pub(super) fn stats(&self) -> Option<RedisNodeStats> {
        self.state.stats(self.is_down())
    }
}

pub(super) const CONNECTING: &str = "connecting";

/// What all connections of a node share.
pub(super) struct NodeRecord {
    pub(super) parts: Arc<ClientParts>,
    /// Its place among the nodes of a cluster.
    pub(super) place: u16,
    /// Where the server is. With sentinels, where the first of them is.
    pub(super) address: ServerAddress,
    #[cfg(feature = "sentinel")]
    pub(super) sentinels: Option<Sentinels>,
    pub(super) failovers: Arc<Failovers>,
    pub(super) clock: ServerClock,
    pub(super) counters: NodeCounters,
    /// The server that the node is, which the counters are about. A node of a cluster is one server,
    /// and so is a fixed address. Behind sentinels, one node is a server after the other, and none
    /// before the first attempt to connect. Never held across an `.await`.
    server: Mutex<Option<ServerAddress>>,
    /// Held while the observer is told, so that no request overtakes that. Never held across an
    /// `.await`.
    broken: Mutex<BrokenConnections>,
}

/// The broken connections of a node, until the observer has been told.
struct BrokenConnections {
    /// For each connection of the node, when the first of any of them broke since that one was
    /// opened.
    untold: Vec<Option<Instant>>,
    /// Since when none was opened, after one broke.
    lost_at: Option<Instant>,
}

impl NodeRecord {
    pub(super) fn new(parts: Arc<ClientParts>, place: u16, address: ServerAddress) -> Self {
        let is_cluster = parts.options.is_cluster();
        let failovers = if is_cluster { Arc::default() } else { Arc::clone(&parts.failovers) };
        let is_fixed = !matches!(parts.options.servers.kind, ServersKind::Sentinel { .. });
        let untold = vec![None; parts.connections()];
        Self {
            place,
            server: Mutex::new(is_fixed.then(|| address.clone())),
            address,
            #[cfg(feature = "sentinel")]
            sentinels: Sentinels::of(&parts),
            failovers,
            clock: ServerClock::default(),
            counters: NodeCounters::default(),
            broken: Mutex::new(BrokenConnections { untold, lost_at: None }),
            parts,
        }
    }

    /// The address of the server to connect to now.
    pub(super) async fn address(&self) -> Result<ServerAddress, ServerError> {
        #[cfg(feature = "sentinel")]
        if let Some(sentinels) = &self.sentinels {
            return sentinels.primary().await;
        }
        Ok(self.address.clone())
    }

    /// Notes an attempt to connect to a server.
    pub(super) fn connects_to(&self, address: &ServerAddress) {
        let mut server = locked(&self.server);
        if server.as_ref() != Some(address) {
            *server = Some(address.clone());
            self.counters.reset();
        }
        self.counters.connects();
    }

    /// The figures of the server that the node is, which may be down.
    pub(super) fn stats(&self, is_down: bool) -> Option<RedisNodeStats> {
        let server = locked(&self.server);
        let address = server.as_ref()?.to_string();
        let [requests, redirections, connects, outages] = self.counters.figures();
        let errors = self.counters.errors();
        Some(RedisNodeStats { address, requests, redirections, errors, connects, outages, is_down })
    }

    /// A connection that was in use broke.
    pub(super) fn broke(&self) {
        let now = Instant::now();
        let mut broken = locked(&self.broken);
        broken.untold.iter_mut().for_each(|untold| _ = untold.get_or_insert(now));
        broken.lost_at.get_or_insert(now);
    }

    /// A connection was opened, in place of a former one or not. Call it before it is used.
    pub(super) fn opened(&self, connection: usize, replaces: bool) {
        let mut broken = locked(&self.broken);
        broken.lost_at = None;
        let untold = broken.untold.get_mut(connection).and_then(Option::take);
        if let Some(since) = untold.or_else(|| replaces.then(Instant::now)) {
            self.may_have_lost(since);
        }
    }

    fn may_have_lost(&self, since: Instant) {
        let is_affected = &|digest: &Digest| self.parts.owns(self.place, digest);
        self.parts.tell(ServerEvent::MayHaveLost { since, is_affected });
    }

    /// It has refused a request because the cluster is down.
    #[cfg(feature = "cluster")]
    pub(super) fn stands_by(&self) {
        self.parts.tell(ServerEvent::AllChanged { node: self.place });
        self.may_have_lost(Instant::now());
    }

    /// Since when it is out of reach, after it was in use.
    #[cfg(any(feature = "cluster", test))]
    pub(super) fn lost_at(&self) -> Option<Instant> {
        locked(&self.broken).lost_at
    }
}

/// What one server was sent by a client, and what came of it.
///
/// A server is left out while requests do not go to it: a node that owns no slots, or a server that is
/// not the primary that sentinels name.
/// When it is back, its counters start from zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisNodeStats {
    /// The address, without user and password.
    pub address: String,
    /// Commands and scripts that were sent to it, each part of a pipeline for itself.
    pub requests: u64,
    /// Requests that it has sent to another node of the cluster (`MOVED`, `ASK`).
    pub redirections: u64,
    /// Requests that have failed there, by the kind of the error. Another node or a later attempt may
    /// have answered them.
    pub errors: StoreErrorStats,
    /// Attempts to connect, successful or not.
    pub connects: u64,
    /// How often its circuit breaker has opened.
    pub outages: u64,
    /// Whether its circuit breaker is open.
    pub is_down: bool,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::events::ServerObserver;
    use crate::options::RedisClientOptions;
    use crate::parts::ClientSetup;

    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<Instant>>);

    impl ServerObserver for Told {
        fn note(&self, event: ServerEvent<'_>) {
            if let ServerEvent::MayHaveLost { since, .. } = event {
                self.0.lock().expect("a list").push(since);
            }
        }
    }

    fn server(port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: "h".to_owned(), port }
    }

    fn node() -> (NodeRecord, Arc<Told>) {
        let told = Arc::<Told>::default();
        let options = RedisClientOptions::new("redis://h:1", "shop").expect("options");
        let options = options.connections(2);
        let setup = ClientSetup { observer: Some(Arc::clone(&told) as _), ..Default::default() };
        let parts = Arc::new(ClientParts::new(options, setup));
        (NodeRecord::new(parts, 0, server(1)), told)
    }

    fn told(told: &Told) -> Vec<Instant> {
        told.0.lock().expect("a list").clone()
    }

    #[tokio::test(start_paused = true)]
    async fn each_connection_that_is_opened_after_a_loss_tells_when_the_first_one_broke() {
        let (node, told_of) = node();
        node.opened(0, false);
        let broke_at = Instant::now();
        node.broke();
        advance(Duration::from_secs(30)).await;
        node.broke();
        assert_eq!(node.lost_at(), Some(broke_at));
        node.opened(0, true);
        // The other one is opened for the first time, and leads to the same server.
        node.opened(1, false);
        assert_eq!(told(&told_of), [broke_at; 2]);
        assert_eq!(node.lost_at(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_connections_tell_nothing() {
        let (node, told_of) = node();
        node.opened(0, false);
        node.opened(1, false);
        assert_eq!(told(&told_of), []);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_replaced_without_a_break_tells_of_this_moment() {
        let (node, told_of) = node();
        node.opened(0, false);
        node.opened(0, true);
        assert_eq!(told(&told_of), [Instant::now()]);
    }

    /// Its replica may have owned its slots for a while, and what it copied from that lacks them.
    #[cfg(feature = "cluster")]
    #[tokio::test(start_paused = true)]
    async fn one_that_takes_no_requests_may_have_lost_what_it_has_acknowledged() {
        let (node, told_of) = node();
        node.opened(0, false);
        node.stands_by();
        assert_eq!(told(&told_of), [Instant::now()]);
    }

    /// The server with its connects and requests.
    fn figures(node: &NodeRecord) -> Option<(String, u64, u64)> {
        node.stats(false).map(|node| (node.address, node.connects, node.requests))
    }

    #[test]
    fn each_server_has_its_own_figures() {
        let (node, _) = node();
        *locked(&node.server) = Default::default();
        assert_eq!(figures(&node), None);
        node.connects_to(&server(1));
        node.counters.sent(3);
        assert_eq!(figures(&node), Some(("h:1".to_owned(), 1, 3)));
        node.connects_to(&server(2));
        node.connects_to(&server(2));
        node.counters.sent(5);
        assert_eq!(figures(&node), Some(("h:2".to_owned(), 2, 5)));
    }

    #[test]
    fn a_node_at_a_fixed_address_is_known_before_it_connects() {
        let (node, _) = node();
        node.counters.sent(2);
        node.connects_to(&server(1));
        assert_eq!(figures(&node), Some(("h:1".to_owned(), 1, 2)));
    }
}
