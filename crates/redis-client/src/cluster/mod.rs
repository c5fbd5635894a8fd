//! A cluster: sends each request to the node that owns its slot.
//!
//! ```text
//! Cluster::run ──► SlotTable::owner ──► RedisNode::send
//!      ▲                                   │ error
//!      └── Journey ◄── redirect::redirection ┘
//! ```
//!
//! A redirection (`MOVED`, `ASK`) is followed at once, and a request to a slot that is moving is
//! repeated after a pause, as long as the timeout of the request lasts. Each node has connections and a
//! circuit breaker of its own. The slot table is refreshed by one task at a time: after a redirection
//! or a lost node, and once a minute. No request waits for that unless its own node is lost.

mod discovery;
mod redirect;
mod refresh_schedule;
mod slot_table;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::runtime::Handle;
use tokio::time::Instant;

use self::discovery::discover;
use self::redirect::{Journey, Redirection, redirection};
use self::refresh_schedule::RefreshSchedule;
use self::slot_table::SlotTable;
use super::address::ServerAddress;
use super::breaker::Breaker;
use super::client_core::ClientCore;
use super::node::{CONNECTING, RedisNode};
use super::request::{RedisRequest, Replied};
use super::server_error::ServerError;
use super::shared_connection::share_time;
use super::slots::{InSlot, SLOTS};
use bellwether::StoreError;
use bellwether::adapter::{jitter, locked};
use bellwether::store::StoreErrorKind;

/// A cluster.
pub(super) struct Cluster {
    pub(super) table: SlotTable,
    parts: Arc<ClientCore>,
    schedule: RefreshSchedule,
    /// The circuit breaker of the whole cluster, which opens when it takes no requests
    /// (`CLUSTERDOWN`) or when no node can be reached. The breakers of nodes do not count that.
    pub(super) breaker: Breaker,
    /// The error of the last refresh, if it failed. Never held across an `.await`.
    last_error: Mutex<Option<StoreError>>,
}

/// Why a request has no reply.
struct Undelivered {
    reported: StoreError,
    /// Whether the whole cluster takes no requests.
    is_of_cluster: bool,
}

impl Cluster {
    pub(super) fn new(parts: Arc<ClientCore>) -> Self {
        let timeout = parts.options.timeout;
        let every = REFRESH.mul_f64(0.8 + 0.4 * jitter());
        Self {
            breaker: Breaker::new(parts.options.down_after, PROBE, &parts.outages),
            table: SlotTable::new(Arc::clone(&parts)),
            schedule: RefreshSchedule::new(timeout + timeout, every),
            last_error: Mutex::default(),
            parts,
        }
    }

    /// Runs a request on the owner of its slot.
    ///
    /// # Errors
    /// Those of the node, after all redirections.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; the request may have been executed, or be executed later.
    pub(super) async fn run(
        self: &Arc<Self>,
        request: &RedisRequest<'_>,
        deadline: Instant,
    ) -> Result<Replied, StoreError> {
        use StoreErrorKind::{Down, TimedOut, Unreachable};
        let ticket = self.breaker.admit().map_err(|down| request.error(&down))?;
        if self.schedule.is_due(deadline - self.parts.options.timeout) {
            self.refresh_soon(None);
        }
        let outcome = self.deliver(request, deadline).await;
        match &outcome {
            Err(Undelivered { reported, is_of_cluster: true }) if reported.kind() != Down => {
                _ = self.breaker.failed(ticket, reported);
            }
            // A node that does not answer says nothing about the cluster.
            Err(error) if matches!(error.reported.kind(), Down | TimedOut | Unreachable) => {}
            _ => self.breaker.answered(ticket),
        }
        outcome.map_err(|error| error.reported)
    }

    /// Sends a request from node to node until one has answered it.
    async fn deliver(
        self: &Arc<Self>,
        request: &RedisRequest<'_>,
        deadline: Instant,
    ) -> Result<Replied, Undelivered> {
        let mut journey = Journey::new(deadline, self.parts.options.timeout);
        loop {
            let (node, asks) = match journey.next.take() {
                Some(next) => next,
                None => (self.owner(request, journey.deadline).await?, false),
            };
            let asking = asks.then(|| request.asking());
            match node.send(asking.as_ref().unwrap_or(request)).await {
                Ok(Replied { value, is_repeated }) => {
                    let is_repeated = is_repeated || journey.may_be_repeated;
                    return Ok(Replied { value, is_repeated });
                }
                Err(error) => self.go_on(&mut journey, request, &node, &error).await?,
            }
        }
    }

    /// Decides where a request goes after an error of a node.
    async fn go_on(
        self: &Arc<Self>,
        journey: &mut Journey,
        request: &RedisRequest<'_>,
        node: &Arc<RedisNode>,
        error: &ServerError,
    ) -> Result<(), Undelivered> {
        let step = redirection(error, &node.state.address);
        let goes_on = match step {
            Redirection::Follow { slot, ref to } => {
                let owner = self.table.node(to);
                // A managed cluster may have replaced the server behind the address.
                if owner.state.address == node.state.address {
                    node.state.failovers.note();
                }
                self.table.assign(slot, &owner);
                self.refresh_soon(Some(Arc::clone(&owner)));
                journey.follow(owner, false).await
            }
            Redirection::AskOnce { slot, ref to } => {
                // The answer must not be copied, because the connection to the owner does not report
                // its changes.
                self.parts.owners.renew(slot);
                journey.follow(self.table.node(to), true).await
            }
            Redirection::Repeat => journey.await_move().await,
            Redirection::AwaitCluster => {
                // It serves its slots no longer, although it answers. Another node may own them for a while, and
                // then this one has missed changes, and has copied what lacks those that it acknowledged.
                node.state.stands_by();
                self.refresh_soon(None);
                journey.pause().await
            }
            Redirection::AskAnother => {
                self.has_successor(journey, request.slot(), node, error).await
            }
            Redirection::Fail => false,
        };
        if goes_on {
            return Ok(());
        }
        let is_of_cluster = step == Redirection::AwaitCluster;
        Err(Undelivered { reported: node.reported(request.error(error)), is_of_cluster })
    }

    /// Whether a request has another owner after a refresh, because its node does not serve its
    /// slots. A node that has said so itself is asked again after a pause.
    async fn has_successor(
        self: &Arc<Self>,
        journey: &mut Journey,
        slot: u16,
        node: &Arc<RedisNode>,
        error: &ServerError,
    ) -> bool {
        journey.note_lost(error);
        // The node does not answer, or was not asked. Another one may have taken its slots.
        if matches!(error, ServerError::Other(StoreErrorKind::TimedOut | StoreErrorKind::Down, _)) {
            self.refresh_soon(None);
            return false;
        }
        self.refreshed(journey.deadline).await;
        let has_answered = matches!(error, ServerError::Reported(error) if error.code().is_some());
        let owner = self.table.owner(slot);
        owner.is_some_and(|owner| !Arc::ptr_eq(&owner, node))
            || has_answered && journey.pause().await
    }

    /// The owner of the slot of a request. Without one, waits for a refresh.
    async fn owner(
        self: &Arc<Self>,
        request: &RedisRequest<'_>,
        deadline: Instant,
    ) -> Result<Arc<RedisNode>, Undelivered> {
        let owner = || self.table.owner(request.slot());
        if let Some(node) = owner() {
            return Ok(node);
        }
        self.refreshed(deadline).await;
        owner().ok_or_else(|| self.without_owner(request.doing))
    }

    /// Waits for a refresh, until the deadline at most.
    async fn refreshed(self: &Arc<Self>, deadline: Instant) {
        self.refresh_soon(None);
        self.schedule.ended(deadline).await;
    }

    fn without_owner(&self, doing: &str) -> Undelivered {
        let last_error = locked(&self.last_error).clone();
        let reported = match last_error {
            Some(error) => {
                let message = format!("redis, {doing}: {error}");
                StoreError::new(error.kind(), message).with_source(error)
            }
            None => StoreError::new(
                StoreErrorKind::NotReady,
                format!("redis, {doing}: no node of the cluster owns its slot"),
            ),
        };
        Undelivered { reported, is_of_cluster: true }
    }

    /// Connects to all nodes that own slots.
    ///
    /// # Errors
    /// If no node can be reached, if slots have no owner, or if an owner cannot be reached.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.table.coverage() == 0 {
            // An attempt ends before, and its error says what was missing.
            let limit = 2 * self.parts.options.connect_timeout;
            share_time(limit, self.refresh(None, Instant::now() + limit)).await;
        }
        let missing = SLOTS - self.table.coverage();
        if missing == SLOTS {
            return Err(self.without_owner(CONNECTING).reported);
        }
        if missing > 0 {
            let message =
                format!("redis, {CONNECTING}: {missing} slots of the cluster have no owner");
            return Err(StoreError::new(StoreErrorKind::NotReady, message));
        }
        let owners = self.table.owners();
        try_join_all(owners.iter().map(|(_, node)| node.connect())).await.map(drop)
    }

    /// The address of a node that is not known to be down, which differs from call to call.
    pub(super) fn any_node(&self) -> Option<ServerAddress> {
        self.in_order(None).into_iter().next()
    }

    /// Starts a task that refreshes the slot table, unless there is one. It asks `first` first.
    fn refresh_soon(self: &Arc<Self>, first: Option<Arc<RedisNode>>) {
        if Handle::try_current().is_err() {
            return;
        }
        let cluster = Arc::clone(self);
        self.schedule.refresh(Instant::now(), async move {
            cluster.refresh(first, Instant::now() + cluster.parts.options.timeout).await;
        });
    }

    async fn refresh(&self, first: Option<Arc<RedisNode>>, deadline: Instant) {
        let addresses = self.in_order(first).into_iter();
        let nodes = addresses.map(|address| move || self.table.node(&address));
        let found = discover(nodes, deadline).await;
        match &found {
            Ok(ranges) => self.table.install(ranges),
            Err(error) => {
                tracing::debug!(target: "bellwether::store", %error, "the slots of the cluster are not known")
            }
        }
        *locked(&self.last_error) = found.err();
    }

    /// The addresses to ask for slots: nodes that own some, those that are down after the others, then
    /// the seeds, and last the replicas.
    fn in_order(&self, first: Option<Arc<RedisNode>>) -> Vec<ServerAddress> {
        let mut nodes: Vec<_> = self.table.owners().into_iter().map(|(_, node)| node).collect();
        let middle = (jitter() * nodes.len() as f64) as usize % nodes.len().max(1);
        nodes.rotate_left(middle);
        nodes.sort_by_key(|node| node.is_down());
        let nodes = first.into_iter().chain(nodes).map(|node| node.state.address.clone());
        let seeds = self.parts.options.servers.addresses.iter().cloned();
        let mut known = HashSet::new();
        let all = nodes.chain(seeds).chain(self.table.replicas());
        all.filter(|address| known.insert(address.clone())).collect()
    }
}

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

/// How often a cluster that takes no requests is probed. It is usually back within a second.
const PROBE: Duration = Duration::from_millis(100);

/// How often the slot table is refreshed without a reason. The table of a process that sends
/// requests is corrected by redirections, so this finds only replicas and nodes without requests.
const REFRESH: Duration = Duration::from_secs(60);
