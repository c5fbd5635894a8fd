//! Nodes: a server with its connections and its circuit breaker.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::address::ServerAddress;
use super::breaker::BreakerRules;
use super::connector::Connector;
use super::destination::Destination;
use super::health::{Health, Outages};
use super::loss_observer::LossObserver;
use super::losses::NodeLosses;
use super::node_record::NodeRecord;
use super::push_handler::PushHandler;
use super::reconnect::{Failovers, ReconnectBackoff};
use super::redirect::{self, Redirection};
use super::request::{Outgoing, RedisRequest, Replied, Route};
use super::request_error::RequestError;
use super::server_clock::ServerClock;
use super::shared_connection::SharedConnection;
use crate::stats::RedisNodeStats;
use bellwether::StoreError;

/// A server with its connections and its circuit breaker.
pub(super) struct RedisNode {
    /// The address in a cluster. The first of those that lead to a single server.
    pub(super) address: ServerAddress,
    /// Its place among the nodes of a cluster.
    pub(super) place: u16,
    pub(super) clock: Arc<ServerClock>,
    is_of_cluster: bool,
    health: Health,
    pub(super) record: Arc<NodeRecord>,
    /// Counted on to replace all connections.
    failovers: Arc<Failovers>,
    first: SharedConnection,
    lookups: Box<[SharedConnection]>,
    losses: Arc<NodeLosses>,
    /// Whether anything was sent since [`was_used`](Self::was_used) was last called.
    used: AtomicBool,
}

/// Makes the nodes of a client.
#[derive(Clone)]
pub(super) struct NodeFactory {
    /// The connector of a single node. Nodes of a cluster get an address, a clock and a count of
    /// failovers of their own.
    pub(super) connector: Connector,
    pub(super) handler: PushHandler,
    /// Whether the server is to report changes.
    pub(super) tracks: bool,
    pub(super) rules: BreakerRules,
    pub(super) outages: Outages,
    pub(super) losses: Option<Arc<dyn LossObserver>>,
    /// The number of connections for lookups only.
    pub(super) lookups: u32,
}

/// Why a node gave no usable reply.
#[derive(Clone, Debug)]
pub(super) struct NodeError {
    /// None if the node is taken to be down, and nothing was sent.
    pub(super) error: Option<RequestError>,
    /// The error for the caller.
    pub(super) said: StoreError,
}

impl NodeFactory {
    /// The only node of a client.
    pub(super) fn single(&self, address: ServerAddress) -> RedisNode {
        let record = Arc::new(match &self.connector.destination {
            Destination::Server(server) => NodeRecord::of(server.clone()),
            Destination::Sentinel(_) => NodeRecord::default(),
        });
        self.make(address, 0, &Connector { record, ..self.connector.clone() })
    }

    /// A node of a cluster.
    pub(super) fn node(&self, address: ServerAddress, place: u16) -> RedisNode {
        let connector = Connector {
            destination: Destination::Server(address.clone()),
            failovers: Arc::default(),
            record: Arc::new(NodeRecord::of(address.clone())),
            clock: self.connector.clock.as_ref().map(|_| Arc::default()),
            ..self.connector.clone()
        };
        self.make(address, place, &connector)
    }

    fn make(&self, address: ServerAddress, place: u16, connector: &Connector) -> RedisNode {
        let owners = self.handler.owners.clone();
        let lookups = self.lookups as usize;
        let losses = NodeLosses::new(self.losses.clone(), place, owners, 1 + lookups);
        let losses = Arc::new(losses);
        let connect = |number, handler| {
            let backoff = ReconnectBackoff::new(connector.backoff.longest());
            let scripts = if number == 0 { Arc::clone(&connector.scripts) } else { Arc::default() };
            let connector = Connector { backoff, handler, scripts, ..connector.clone() };
            SharedConnection::new(connector, number, Arc::clone(&losses))
        };
        let clock = connector.clock.clone().unwrap_or_default();
        let failovers = Arc::clone(&connector.failovers);
        let lookups = (1..=lookups).map(|number| connect(number, None)).collect();
        let handler = self.tracks.then(|| PushHandler { node: place, ..self.handler.clone() });
        let first = connect(0, handler);
        RedisNode {
            health: Health::new(self.rules, self.outages.clone()),
            is_of_cluster: self.handler.owners.is_some(),
            used: AtomicBool::new(false),
            record: Arc::clone(&connector.record),
            address,
            place,
            clock,
            failovers,
            first,
            lookups,
            losses,
        }
    }
}

impl RedisNode {
    /// Sends it, unless the node is taken to be down.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; what was sent may have been executed, or be executed later.
    pub(super) async fn send(
        &self,
        route: Route,
        outgoing: Outgoing<'_>,
        deadline: Instant,
    ) -> Result<Replied, NodeError> {
        self.note_use();
        let admission = self.health.admit().map_err(|said| {
            self.record.counters.failed(said.kind());
            NodeError { error: None, said }
        })?;
        self.record.counters.sent(outgoing.requests());
        match self.connection(route).send(outgoing, deadline).await {
            Ok(replied) => {
                self.health.answered(admission);
                Ok(replied)
            }
            Err(error) => {
                let error = if self.is_of_cluster { error.in_cluster() } else { error };
                let is_outage = error.is_outage()
                    && !(self.is_of_cluster && is_of_slots(&error, &self.address));
                let failed = self.noted(outgoing.error(&error), error);
                if !is_outage {
                    self.health.answered(admission);
                } else if self.health.failed(admission, &failed.said) {
                    self.record.counters.went_down();
                }
                Err(failed)
            }
        }
    }

    /// The error of one request of a batch that a node of a cluster has answered.
    pub(super) fn error_in_batch(
        &self,
        request: &RedisRequest<'_>,
        error: RequestError,
    ) -> NodeError {
        let error = error.in_cluster();
        self.noted(request.error(&error), error)
    }

    /// Notes the error of a request.
    fn noted(&self, said: StoreError, error: RequestError) -> NodeError {
        match &error {
            RequestError::Redirected(_) => self.record.counters.redirected(),
            _ => self.record.counters.failed(said.kind()),
        }
        self.error(said, error)
    }

    fn error(&self, said: StoreError, error: RequestError) -> NodeError {
        let said = match self.is_of_cluster {
            true => StoreError::new(said.kind(), format!("{said} (node {})", self.address))
                .with_source(said),
            false => said,
        };
        NodeError { error: Some(error), said }
    }

    /// Opens the connections that are not open. `doing` describes that in the error.
    ///
    /// # Errors
    /// That of the first that fails.
    pub(super) async fn connect(
        &self,
        doing: &'static str,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let all = self.lookups.iter().chain([&self.first]);
        let opened = try_join_all(all.map(|connection| connection.open(deadline))).await;
        opened.map_err(|error| self.error(error.during(doing, None), error).said)?;
        Ok(())
    }

    /// Has all connections replaced, at most once a second.
    pub(super) fn reconnect(&self) {
        self.failovers.note();
    }

    pub(super) fn is_down(&self) -> bool {
        self.health.is_down()
    }

    /// What it was sent and what came of it. None before sentinels have named a server.
    pub(super) fn stats(&self) -> Option<RedisNodeStats> {
        self.record.stats(self.is_down())
    }

    /// Since when it is out of reach, after it was in use.
    pub(super) fn lost_at(&self) -> Option<Instant> {
        self.losses.lost_at()
    }

    /// Whether anything was sent since the last call.
    pub(super) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn note_use(&self) {
        // Read first, because threads that only read a flag do not contend for it.
        if self.is_of_cluster && !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    fn connection(&self, route: Route) -> &SharedConnection {
        match route {
            Route::Lookups(number) => self.lookups.get(number).unwrap_or(&self.first),
            Route::First => &self.first,
        }
    }
}

/// Whether an error is about slots, and not about the node.
fn is_of_slots(error: &RequestError, asked: &ServerAddress) -> bool {
    !matches!(redirect::redirection(error, asked), Redirection::AskAnother | Redirection::Fail)
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode").field("address", &self.address).finish_non_exhaustive()
    }
}
