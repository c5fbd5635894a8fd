//! What all connections of a node share: where they lead, what was sent over them, and whether the
//! node may have lost writes.
//!
//! Behind an address can be another server than before: a replica that was promoted, or the same
//! server after a restart. A client cannot tell that from a network that failed for a moment. So
//! every broken connection counts as a possible loss of the last writes.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::address::{ServerAddress, ServersKind};
use super::breaker::Breaker;
use super::client_core::{ClientCore, Failovers, ServerEvent};
use super::sentinel::Sentinels;
use super::server_clock::ServerClock;
use super::server_error::ServerError;
use super::silence::{LastHeard, MOST, ReplyTimes};
use bellwether::adapter::{locked, micros};
use bellwether::stats::{NodeCounters, NodeEvent, StoreErrorStats};
use bellwether::store::Digest;

/// What all connections of a node share.
pub(super) struct NodeState {
    pub(super) parts: Arc<ClientCore>,
    /// Its place among the nodes of a cluster.
    pub(super) place: u16,
    /// Where the server is. With sentinels, where the first of them is.
    pub(super) address: ServerAddress,
    pub(super) sentinels: Option<Sentinels>,
    pub(super) failovers: Arc<Failovers>,
    pub(super) clock: ServerClock,
    pub(super) breaker: Breaker,
    pub(super) counters: NodeCounters,
    /// When bytes last arrived over any of its connections.
    pub(super) heard: Arc<LastHeard>,
    pub(super) reply_times: ReplyTimes,
    /// Whether its last connection speaks RESP3.
    pub(super) has_spoken_resp3: AtomicBool,
    /// The server that the node is, which the counters are about. A node of a cluster is one server,
    /// and so is a fixed address. Behind sentinels, one node is a server after the other, and none
    /// before the first attempt to connect. Never held across an `.await`.
    server: Mutex<Option<ServerAddress>>,
    /// Held while the observer is told, so that no request overtakes that. Never held across an
    /// `.await`.
    broken: Mutex<BrokenConnections>,
}

/// The broken connections of a node, until the observer has been told.
#[derive(Default)]
struct BrokenConnections {
    /// For each connection of the node, when the first of any of them broke since that one was
    /// opened.
    untold: [Option<Instant>; 2],
    /// Since when none was opened, after one broke.
    lost_at: Option<Instant>,
}

impl NodeState {
    pub(super) fn new(parts: Arc<ClientCore>, place: u16, address: ServerAddress) -> Self {
        let (options, is_cluster) = (&parts.options, parts.options.is_cluster());
        let failovers = if is_cluster { Arc::default() } else { Arc::clone(&parts.failovers) };
        let is_fixed = !matches!(options.servers.kind, ServersKind::Sentinel { .. });
        Self {
            place,
            server: Mutex::new(is_fixed.then(|| address.clone())),
            address,
            sentinels: Sentinels::of(&parts),
            failovers,
            clock: ServerClock::default(),
            breaker: Breaker::new(options.down_after, options.probe_every, &parts.outages),
            counters: NodeCounters::default(),
            heard: Arc::default(),
            reply_times: ReplyTimes::default(),
            has_spoken_resp3: AtomicBool::new(false),
            broken: Mutex::new(BrokenConnections::default()),
            parts,
        }
    }

    /// The address of the server to connect to now.
    pub(super) async fn address(&self) -> Result<ServerAddress, ServerError> {
        if let Some(sentinels) = &self.sentinels {
            return sentinels.primary().await;
        }
        Ok(self.address.clone())
    }

    /// For how long a connection may be silent.
    pub(super) fn silence_bound(&self) -> Duration {
        self.reply_times.bound(self.parts.options.timeout)
    }

    /// So many keys wait for a connection, which may have been silent since then.
    pub(super) fn waits(&self, keys: u32, since: Instant) {
        self.reply_times.waits(keys, since, self.parts.options.timeout);
    }

    /// For how long a connection may be without a reply, whatever else arrives.
    pub(super) fn longest_without_reply(&self) -> Duration {
        MOST * self.parts.options.timeout
    }

    /// The server's time, in us, at which a request that is sent now has lapsed. None if its clock is not
    /// known.
    pub(super) fn lapses_at(&self) -> Option<u64> {
        Some(self.clock.now()?.latest.saturating_add(micros(self.silence_bound())))
    }

    /// Notes an attempt to connect to a server.
    pub(super) fn connects_to(&self, address: &ServerAddress) {
        let mut server = locked(&self.server);
        if server.as_ref() != Some(address) {
            *server = Some(address.clone());
            self.counters.reset();
        }
        self.counters.add(NodeEvent::Connect);
    }

    /// What the server that the node is was sent and what came of it. None before sentinels have named one.
    pub(super) fn stats(&self) -> Option<RedisNodeStats> {
        let server = locked(&self.server);
        let address = server.as_ref()?.to_string();
        let [requests, redirections, connects, outages] = self.counters.figures();
        let (errors, is_down) = (self.counters.errors(), self.breaker.is_open());
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
        let untold = broken.untold[connection].take();
        if let Some(since) = untold.or_else(|| replaces.then(Instant::now)) {
            self.may_have_lost(since);
        }
    }

    fn may_have_lost(&self, since: Instant) {
        let is_affected = &|digest: &Digest| self.parts.owns(self.place, digest);
        self.parts.tell(ServerEvent::MayHaveLost { since, is_affected });
    }

    /// It has refused a request because the cluster is down.
    pub(super) fn stands_by(&self) {
        self.parts.tell(ServerEvent::AllChanged { node: self.place });
        self.may_have_lost(Instant::now());
    }

    /// Since when it is out of reach, after it was in use.
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
    use tokio::time::advance;

    use super::*;
    use crate::client_core::ClientSetup;
    use crate::client_core::ServerObserver;
    use crate::options::RedisClientOptions;

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

    fn node() -> (NodeState, Arc<Told>) {
        let told = Arc::<Told>::default();
        let options = RedisClientOptions::new("redis://h:1", "shop").expect("options");
        let setup = ClientSetup { observers: vec![Arc::clone(&told) as _], ..Default::default() };
        let parts = Arc::new(ClientCore::new(options, setup));
        (NodeState::new(parts, 0, server(1)), told)
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
    #[tokio::test(start_paused = true)]
    async fn one_that_takes_no_requests_may_have_lost_what_it_has_acknowledged() {
        let (node, told_of) = node();
        node.opened(0, false);
        node.stands_by();
        assert_eq!(told(&told_of), [Instant::now()]);
    }

    /// The server with its connects and requests.
    fn figures(node: &NodeState) -> Option<(String, u64, u64)> {
        node.stats().map(|node| (node.address, node.connects, node.requests))
    }

    fn sent(node: &NodeState, requests: u64) {
        (0..requests).for_each(|_| node.counters.add(NodeEvent::Request));
    }

    #[test]
    fn each_server_has_its_own_figures() {
        let (node, _) = node();
        *locked(&node.server) = Default::default();
        assert_eq!(figures(&node), None);
        node.connects_to(&server(1));
        sent(&node, 3);
        assert_eq!(figures(&node), Some(("h:1".to_owned(), 1, 3)));
        node.connects_to(&server(2));
        node.connects_to(&server(2));
        sent(&node, 5);
        assert_eq!(figures(&node), Some(("h:2".to_owned(), 2, 5)));
    }

    #[test]
    fn a_node_at_a_fixed_address_is_known_before_it_connects() {
        let (node, _) = node();
        sent(&node, 2);
        node.connects_to(&server(1));
        assert_eq!(figures(&node), Some(("h:1".to_owned(), 1, 2)));
    }
}
