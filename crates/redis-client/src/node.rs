//! Nodes: a server with its connections and its circuit breaker.

use std::sync::Arc;

use super::address::ServerAddress;
use super::client_core::ClientCore;
use super::connector::Connector;
use super::node_state::NodeState;
use super::request::{RedisRequest, Replied};
use super::server_error::ServerError;
use super::shared_connection::{SharedConnection, share_time};
use bellwether::StoreError;
use bellwether::stats::NodeEvent;

/// A server with its connections and its circuit breaker.
pub(super) struct RedisNode {
    pub(super) state: Arc<NodeState>,
    is_of_cluster: bool,
    connection: Arc<SharedConnection>,
    /// For [large](RedisRequest::is_large) requests, which would hold up the short ones behind them. It is
    /// opened for the first of them.
    large: Arc<SharedConnection>,
}

impl RedisNode {
    pub(super) fn new(parts: &Arc<ClientCore>, address: ServerAddress, place: u16) -> Self {
        let state = Arc::new(NodeState::new(Arc::clone(parts), place, address));
        let connection =
            |number| SharedConnection::new(Connector { node: Arc::clone(&state), number });
        Self {
            is_of_cluster: parts.options.is_cluster(),
            connection: connection(0),
            large: connection(1),
            state,
        }
    }

    /// Sends a request, unless the node is taken to be down.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; what was sent may have been executed, or be executed later.
    pub(super) async fn send(&self, request: &RedisRequest<'_>) -> Result<Replied, ServerError> {
        let NodeState { breaker, counters, .. } = &*self.state;
        let ticket = breaker.admit().inspect_err(|down| counters.failed(down.kind()))?;
        counters.add(NodeEvent::Request);
        let connection = if request.is_large() { &self.large } else { &self.connection };
        let error = match connection.send(request).await {
            Ok(replied) => {
                breaker.answered(ticket);
                return Ok(replied);
            }
            Err(error) if self.is_of_cluster => error.in_cluster(),
            Err(error) => error,
        };
        match &error {
            ServerError::Redirected(_) => counters.add(NodeEvent::Redirection),
            error => counters.failed(error.kind()),
        }
        if !error.is_outage() {
            breaker.answered(ticket);
        } else if breaker.failed(ticket, &self.reported(request.error(&error))) {
            counters.add(NodeEvent::Outage);
        }
        Err(error)
    }

    /// An error for the caller. In a cluster, it says of which node it is.
    pub(super) fn reported(&self, error: StoreError) -> StoreError {
        if !self.is_of_cluster {
            return error;
        }
        let message = format!("{error} (node {})", self.state.address);
        StoreError::new(error.kind(), message).with_source(error)
    }

    /// Opens the connection for short requests, unless it is open.
    ///
    /// # Errors
    /// That of the attempt.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        // An attempt ends before, and its error says what was missing.
        let limit = 2 * self.state.parts.options.connect_timeout;
        let opened = share_time(limit, self.connection.open()).await;
        opened.map(drop).map_err(|error| self.reported(error.during(CONNECTING, None)))
    }

    pub(super) fn is_down(&self) -> bool {
        self.state.breaker.is_open()
    }
}

pub(super) const CONNECTING: &str = "connecting";
