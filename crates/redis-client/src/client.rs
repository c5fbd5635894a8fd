//! The client: where requests go, and what it knows of its servers.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::client_core::{ClientCore, ClientSetup, Tracking};
use super::cluster::ServerGroup;
use super::names::Names;
use super::node::RedisNode;
use super::node_state::RedisNodeStats;
use super::options::RedisClientOptions;
use super::request::{RedisRequest, RedisScript};
use super::rights;
use super::server_clock::ServerClock;
use super::shared_connection::{connect_time, share_time};
use super::slots::{InSlot, tag_of};
use super::subscriber::Subscriber;
use bellwether::store::{Digest, StoreErrorKind, Watch};
use bellwether::{ConfigError, StoreError};

/// A client of a Redis or Valkey server or cluster, for stores, locks and other protocols made of
/// scripts.
///
/// A handle: clones share its connections.
///
/// It connects at its first use. A broken connection is replaced, and a request that was lost with
/// it is sent once more. A request ends when the server is silent for the
/// [timeout](RedisClientOptions::timeout); while it answers others, the request has its turn. While the
/// server is [down](RedisClientOptions::down_after), requests fail at once.
///
/// In a cluster, each node has connections of its own, and each request goes to the node that owns
/// the hash slot of its names. Redirections are followed within the timeout.
#[derive(Clone)]
pub struct RedisClient(Arc<ClientState>);

struct ClientState {
    parts: Arc<ClientCore>,
    servers: ServerGroup,
    subscriber: Subscriber,
}

impl RedisClient {
    /// A client that connects at its first use.
    ///
    /// # Errors
    /// If an option is wrong: the first one.
    pub fn new(options: RedisClientOptions, setup: ClientSetup) -> Result<Self, ConfigError> {
        options.wrong.result()?;
        let parts = Arc::new(ClientCore::new(options, setup));
        let servers = ServerGroup::new(&parts);
        let subscriber = Subscriber::new(&parts, servers.clone());
        Ok(Self(Arc::new(ClientState { parts, servers, subscriber })))
    }

    /// Runs a request, and reads its reply with `read`.
    ///
    /// # Errors
    /// Those of the server and of the connection to it, and:
    /// - [`Down`](bellwether::store::StoreErrorKind::Down) if the server is taken to be down; the request was
    ///   not sent.
    /// - [`Malformed`](bellwether::store::StoreErrorKind::Malformed) if `read` returns `None`.
    /// - [`Unreachable`](bellwether::store::StoreErrorKind::Unreachable) if a request with
    ///   [`once`](RedisRequest::once) was sent twice and found nothing to do.
    /// - [`Misconfigured`](bellwether::store::StoreErrorKind::Misconfigured) outside of a Tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; the request may have been executed, or be executed later.
    pub async fn run<T>(
        &self,
        request: &RedisRequest<'_>,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        debug_assert!(!self.is_cluster() || request.is_of_one_slot(), "{request:?}");
        in_runtime()?;
        let replied = match &self.0.servers {
            ServerGroup::Single(node) => {
                node.send(request).await.map_err(|error| request.error(&error))?
            }
            // Boxed, so that the callers of a single server need no memory for it.
            ServerGroup::Cluster(cluster) => {
                Box::pin(cluster.run(request, self.deadline())).await?
            }
        };
        request.read(replied, read)
    }

    /// Splits items, each in a slot, into groups that one command can have: all of them for a single
    /// server, and those of one slot for a cluster.
    pub fn split<T>(&self, items: Vec<T>, slot: impl Fn(&T) -> u16) -> Vec<Vec<T>> {
        if !self.is_cluster() {
            return if items.is_empty() { Vec::new() } else { vec![items] };
        }
        let mut groups = BTreeMap::<u16, Vec<T>>::new();
        items.into_iter().for_each(|item| groups.entry(slot(&item)).or_default().push(item));
        groups.into_values().collect()
    }

    /// Opens the connections that are not open, on a cluster those to all nodes that own slots.
    ///
    /// # Errors
    /// If a server cannot be reached, if slots of a cluster have no owner, or outside of a Tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping it leaves connections that are open or about to be.
    pub async fn connect(&self) -> Result<(), StoreError> {
        in_runtime()?;
        self.0.servers.connect().await
    }

    /// Runs the requests of a `connect`. Together they may take as long as
    /// [`connect_timeout`](RedisClientOptions::connect_timeout) says.
    ///
    /// # Cancel safety
    /// That of the requests.
    pub async fn connecting<T>(&self, connect: impl Future<Output = T>) -> T {
        share_time(self.options().connect_timeout, connect).await
    }

    /// Checks that a single server is no node of a cluster, and that the user may run scripts, and these commands
    /// in them. The commands run on a name that is not used, on each node of a cluster, and nothing is left behind. `ACL DRYRUN` would need
    /// the permission to administer.
    ///
    /// The commands are in lower case, of those that the scripts of this crate and of
    /// `bellwether-lock` use.
    ///
    /// A temporary refusal is only logged, because the server may accept writes later: it is full,
    /// or has too few replicas.
    ///
    /// # Errors
    /// [`Misconfigured`](bellwether::store::StoreErrorKind::Misconfigured) with all missing permissions, or
    /// [`Refused`](bellwether::store::StoreErrorKind::Refused) if the server is a replica.
    pub async fn check_commands(&self, commands: &[&str]) -> Result<(), StoreError> {
        for name in self.names_on_nodes("check") {
            // A node of a cluster refuses names in two slots. It is not to be used as a single server.
            let other = (!self.is_cluster()).then(|| self.names().tagged_name("check", 1));
            let names = [name].into_iter().chain(other).collect();
            for check in rights::checks(names, commands) {
                rights::read_reply(self.run(&check, Some).await?)?;
            }
        }
        Ok(())
    }

    /// For each node, a request that only a working primary answers. Any reply will do.
    ///
    /// A node of a cluster that was demoted or cut off still answers `PING`, but no script with a
    /// name that writes.
    pub fn probes(&self, doing: &'static str) -> Vec<RedisRequest<'static>> {
        if !self.is_cluster() {
            return vec![RedisRequest::command("PING", [], [], doing)];
        }
        let names = self.names_on_nodes("heartbeat").into_iter();
        names.map(|name| RedisRequest::script(&PROBE, [name], [], doing)).collect()
    }

    /// For each node, a name `bw:<namespace>:<what>:{<tag>}` in one of its slots. Before the first
    /// request to a cluster, none is known.
    pub fn names_on_nodes(&self, what: &str) -> Vec<Vec<u8>> {
        let tag = |slot| if self.is_cluster() { tag_of(slot) } else { 0 };
        let name = |(slot, _)| self.0.parts.names.tagged_name(what, tag(slot));
        self.0.servers.owners().into_iter().map(name).collect()
    }

    /// The servers that own slots: for each, one of its slots, and its address if that is known. Before
    /// the first request to a cluster or to sentinels, none is.
    pub fn nodes(&self) -> Vec<(u16, Option<String>)> {
        let nodes = self.0.servers.owners().into_iter();
        nodes.map(|(slot, node)| (slot, node.state.stats().map(|stats| stats.address))).collect()
    }

    /// What the nodes were sent and what came of it, in the order of their addresses.
    pub fn node_stats(&self) -> Vec<RedisNodeStats> {
        let nodes = self.0.servers.owners();
        let mut nodes: Vec<_> = nodes.iter().filter_map(|(_, node)| node.state.stats()).collect();
        nodes.sort_by(|one, other| one.address.cmp(&other.address));
        nodes
    }

    /// The server's time in us, or that of the node whose clock is ahead, if not later. None if it
    /// is not known.
    pub fn latest_time(&self) -> Option<u64> {
        let latest = |(_, node): &(u16, Arc<RedisNode>)| Some(node.state.clock.now()?.latest);
        self.0.servers.owners().iter().filter_map(latest).max()
    }

    /// The mark of this client, for a script that leaves it where the client waits. The script that
    /// ends the wait gives all marks there to `tell`, see [`RedisScript::linked`], which publishes a
    /// message to each. The [watches](Self::watch) of the key are notified then.
    ///
    /// Empty while there is no subscription to messages. The first call without one begins to
    /// subscribe, over a connection of its own.
    pub fn mark(&self) -> Vec<u8> {
        self.0.subscriber.mark()
    }

    /// Subscribes to messages, and [checks](Self::check_commands) that the user may run scripts with
    /// these commands, and that they may publish messages. A user that may do neither is no error: then
    /// its waiters poll.
    ///
    /// # Errors
    /// [`Misconfigured`](bellwether::store::StoreErrorKind::Misconfigured) if the user lacks a permission, or
    /// may subscribe and not publish: one of the two permissions has been forgotten.
    ///
    /// # Cancel safety
    /// Dropping it leaves a subscription that is open or about to be.
    pub async fn check_scripts(&self, commands: &[&str]) -> Result<(), StoreError> {
        let is_subscribed = self.0.subscriber.connect().await;
        let publish = is_subscribed.then_some("publish");
        let commands: Vec<_> = commands.iter().copied().chain(publish).collect();
        self.check_commands(&commands).await
    }

    /// Whether scripts tell this process by messages.
    pub fn is_subscribed(&self) -> bool {
        self.0.subscriber.is_subscribed()
    }

    /// Until when a request follows redirections.
    fn deadline(&self) -> Instant {
        let deadline = Instant::now() + self.options().timeout;
        connect_time().map_or(deadline, |(_, until)| deadline.max(until))
    }

    /// Whether it is a client of a cluster.
    pub fn is_cluster(&self) -> bool {
        self.options().is_cluster()
    }

    /// Reads or notes the time of the server that owns a name. In a cluster, each node has a clock
    /// of its own.
    pub fn with_clock<T>(&self, name: &impl InSlot, then: impl FnOnce(&ServerClock) -> T) -> T {
        self.0.servers.with_owner(name, |node| match node {
            Some(node) => then(&node.state.clock),
            None => then(&ServerClock::default()),
        })
    }

    /// Hints that a key has changed: by the messages of scripts, see [`mark`](Self::mark), or because
    /// the server reports changes of the names that scripts have read. Without both it is silent, and reports
    /// only messages that come later.
    pub fn watch(&self, digest: Digest) -> Watch {
        let is_reported = self.0.parts.setup.tracking == Tracking::Watches && self.is_tracked();
        let watch = self.0.parts.setup.watchers.watch(digest);
        if self.is_subscribed() || is_reported { watch } else { watch.interrupted() }
    }

    /// Whether the server reports changes (client tracking). Until the first connection, this is
    /// what the options request.
    pub fn is_tracked(&self) -> bool {
        self.0.parts.is_tracked.load(Ordering::Relaxed)
    }

    /// Whether the server, or any node of a cluster that owns slots, is taken to be down, because
    /// [`RedisClientOptions::down_after`] requests in a row have failed. This ends with the next request
    /// that is answered, so it stays true while the client is not used.
    pub fn is_down(&self) -> bool {
        let servers = &self.0.servers;
        servers.is_cluster_down() || servers.owners().iter().any(|(_, node)| node.is_down())
    }

    /// Whether the server that owns a name is taken to be down.
    pub fn is_down_for(&self, name: &impl InSlot) -> bool {
        let is_down = |node: Option<&Arc<RedisNode>>| node.is_some_and(|node| node.is_down());
        self.0.servers.is_cluster_down() || self.0.servers.with_owner(name, is_down)
    }

    /// The options that it was made with.
    pub fn options(&self) -> &RedisClientOptions {
        &self.0.parts.options
    }

    /// How keys and tags are named.
    pub fn names(&self) -> &Names {
        &self.0.parts.names
    }

    /// Its attempts to connect, how often the server was taken to be down, how often a timer has shown that
    /// this process was not running or a runtime of it was blocked, and the number of push messages.
    pub fn figures(&self) -> [u64; 4] {
        let ClientCore { attempts, outages, stalls, pushes, .. } = &*self.0.parts;
        [attempts, &outages.count, stalls, pushes].map(|count| count.load(Ordering::Relaxed))
    }

    /// How many connections it has opened.
    pub fn opened(&self) -> u64 {
        self.0.parts.opened.load(Ordering::Relaxed)
    }

    /// Notified when the server answers again after an outage.
    pub fn is_back(&self) -> Arc<Notify> {
        Arc::clone(&self.0.parts.outages.is_back)
    }
}

// Shows the address of the server, but neither user nor password.
bellwether::debug_fields! { RedisClient => |it|
    options = it.options(), is_tracked = it.is_tracked(), is_down = it.is_down()
}

/// Without a runtime there is neither a connection nor a timer.
fn in_runtime() -> Result<(), StoreError> {
    Handle::try_current().map(drop).map_err(|_| {
        let message =
            "redis: there is no Tokio runtime here (`#[tokio::main]`, `Runtime::block_on`)";
        StoreError::new(StoreErrorKind::Misconfigured, message)
    })
}

/// A write, which a replica refuses, of a name that is not used.
static PROBE: LazyLock<RedisScript> =
    LazyLock::new(|| RedisScript::new("return redis.call('DEL', KEYS[1])"));
