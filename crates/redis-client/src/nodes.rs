//! The nodes of a client: connects to them, and what it knows of them.

use std::sync::LazyLock;

use tokio::time::Instant;

use super::RedisClient;
use super::request::RedisRequest;
use super::script::RedisScript;
use super::shared_connection::ConnectTime;
use crate::stats::RedisNodeStats;
use bellwether::StoreError;

impl RedisClient {
    /// Opens the connections that are not open, on a cluster those to all nodes that own slots.
    ///
    /// # Errors
    /// If a server cannot be reached, or if slots of a cluster have no owner.
    ///
    /// # Cancel safety
    /// Dropping it leaves connections that are open or about to be.
    pub async fn connect(&self) -> Result<(), StoreError> {
        // An attempt ends before, and its error says what was missing.
        let deadline = Instant::now() + 2 * self.0.options.connect_limit();
        self.0.routing.connect(CONNECTING, deadline).await
    }

    /// Runs the requests of a `connect`. Together they may take as long as
    /// [`connect_timeout`](super::options::RedisClientOptions::connect_timeout) says.
    ///
    /// # Cancel safety
    /// That of the requests.
    pub async fn connecting<T>(&self, connect: impl Future<Output = T>) -> T {
        ConnectTime::share(self.0.options.connect_limit(), connect).await
    }

    /// For each node, a request that only a working primary answers. Any reply will do.
    ///
    /// A node of a cluster that was demoted or cut off still answers `PING`, but no script with a
    /// name that writes.
    pub fn probes(&self, doing: &'static str) -> Vec<RedisRequest<'static>> {
        if !self.is_cluster() {
            return vec![RedisRequest::command("PING", [], doing)];
        }
        let names = self.names_on_nodes("heartbeat").into_iter();
        names.map(|name| RedisRequest::script(&PROBE, [name], [], doing)).collect()
    }

    /// For each node, a name `bw:<namespace>:<what>:{<tag>}` in one of its slots. Before the first
    /// request to a cluster, none is known.
    pub fn names_on_nodes(&self, what: &str) -> Vec<Vec<u8>> {
        let slots = self.0.routing.slots_of_nodes().into_iter();
        slots.map(|slot| self.0.names.name_in_slot(what, slot)).collect()
    }

    /// What the nodes were sent and what came of it, in the order of their addresses.
    pub fn node_stats(&self) -> Vec<RedisNodeStats> {
        self.0.routing.node_stats()
    }

    /// The place of the node that owns a slot.
    pub fn node_of(&self, slot: u16) -> u16 {
        self.0.routing.node_of(slot)
    }

    /// The server's time in us, or that of the node whose clock is ahead, if not later. None if it
    /// is not known.
    pub fn latest_time(&self) -> Option<u64> {
        self.0.routing.latest_time()
    }
}

const CONNECTING: &str = "connecting";

/// A write, which a replica refuses, of a name that is not used.
static PROBE: LazyLock<RedisScript> =
    LazyLock::new(|| RedisScript::new(&["return redis.call('DEL', KEYS[1])"]));
