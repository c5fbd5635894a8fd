//! Nodes: a server with its connections and its circuit breaker.

use std::mem;
use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::runtime::Handle;

use super::address::ServerAddress;
use super::breaker::{Admission, Breaker, ProbeTicket};
use super::client_core::ClientCore;
use super::connector::Connector;
use super::node_state::{NodeState, RedisNodeStats};
use super::request::{RedisRequest, Replied};
use super::server_error::ServerError;
use super::shared_connection::{SharedConnection, share_time};
use super::slots::InSlot;
use bellwether::StoreError;
use bellwether::adapter::jitter;

/// A server with its connections and its circuit breaker.
pub(super) struct RedisNode {
    pub(super) state: Arc<NodeState>,
    is_of_cluster: bool,
    breaker: Breaker,
    connections: Box<[Arc<SharedConnection>]>,
    /// For [large](RedisRequest::is_large) requests, which would hold up the short ones behind them. It is
    /// opened for the first of them.
    large: Arc<SharedConnection>,
}

/// Why a node gave no usable reply.
pub(super) struct NodeError {
    /// None if the node is taken to be down, and nothing was sent.
    pub(super) error: Option<ServerError>,
    /// The error for the caller.
    pub(super) reported: StoreError,
}

impl RedisNode {
    pub(super) fn new(parts: &Arc<ClientCore>, address: ServerAddress, place: u16) -> Self {
        let state = Arc::new(NodeState::new(Arc::clone(parts), place, address));
        let connection =
            |number| SharedConnection::new(Connector { node: Arc::clone(&state), number });
        Self {
            is_of_cluster: parts.options.is_cluster(),
            breaker: Breaker::new(parts.options.rules(jitter()), Arc::clone(&parts.outages)),
            connections: (0..parts.connections()).map(connection).collect(),
            large: connection(parts.connections()),
            state,
        }
    }

    /// Sends a request, unless the node is taken to be down.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; what was sent may have been executed, or be executed later. If it is the
    /// probe of a node that is taken to be down, a `PING` takes its place.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: &RedisRequest<'_>,
    ) -> Result<Replied, NodeError> {
        let admission = self.breaker.admit().map_err(|reported| {
            self.state.counters.failed(reported.kind());
            NodeError { error: None, reported }
        })?;
        self.send_admitted(admission, self.connection(request), request).await
    }

    async fn send_admitted(
        self: &Arc<Self>,
        admission: Admission<'_>,
        connection: &Arc<SharedConnection>,
        request: &RedisRequest<'_>,
    ) -> Result<Replied, NodeError> {
        let counters = &self.state.counters;
        counters.sent(1);
        let left = admission.probe().map(|probe| LeftProbe { node: self, connection, probe });
        let sent = connection.send(request).await;
        mem::forget(left);
        let error = match sent {
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
            _ => counters.failed(failed.reported.kind()),
        }
        if !failed.error.as_ref().is_some_and(ServerError::is_outage) {
            admission.answered();
        } else if admission.failed(&failed.reported) {
            counters.went_down();
        }
        Err(failed)
    }

    /// The connection for a request. Short ones for one key share one.
    fn connection(&self, request: &RedisRequest<'_>) -> &Arc<SharedConnection> {
        match &*self.connections {
            _ if request.is_large() => &self.large,
            [only] => only,
            several => &several[usize::from(request.slot()) % several.len()],
        }
    }

    fn error(&self, reported: StoreError, error: ServerError) -> NodeError {
        let reported = match self.is_of_cluster {
            true => StoreError::new(
                reported.kind(),
                format!("{reported} (node {})", self.state.address),
            )
            .with_source(reported),
            false => reported,
        };
        NodeError { error: Some(error), reported }
    }

    /// Opens the connections that are not open.
    ///
    /// # Errors
    /// That of the first that fails.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        // An attempt ends before, and its error says what was missing.
        let limit = 2 * self.state.parts.options.connect_timeout;
        let all = self.connections.iter().map(|connection| share_time(limit, connection.open()));
        let reported =
            |error: ServerError| self.error(error.during(CONNECTING, None), error).reported;
        try_join_all(all).await.map(drop).map_err(reported)
    }

    pub(super) fn is_down(&self) -> bool {
        self.breaker.is_open()
    }

    /// What it was sent and what came of it. None before sentinels have named a server.
    pub(super) fn stats(&self) -> Option<RedisNodeStats> {
        self.state.stats(self.is_down())
    }
}

/// A probe whose caller leaves, if this is dropped. It goes on as a `PING`. Otherwise callers that all leave
/// early would never find that the node answers again: some leave because the node refuses another
/// part of what they ask for, since only one request may be the probe.
struct LeftProbe<'a> {
    node: &'a Arc<RedisNode>,
    connection: &'a Arc<SharedConnection>,
    probe: ProbeTicket,
}

impl Drop for LeftProbe<'_> {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let Self { node, connection, probe } = *self;
        let (node, connection) = (Arc::clone(node), Arc::clone(connection));
        runtime.spawn(async move {
            let ping = RedisRequest::command("PING", [], [], PROBING).urgent();
            // Its error says what the breaker knows then.
            _ = node.send_admitted(node.breaker.resume(probe), &connection, &ping).await;
        });
    }
}

const PROBING: &str = "looking whether redis answers again";

pub(super) const CONNECTING: &str = "connecting";
