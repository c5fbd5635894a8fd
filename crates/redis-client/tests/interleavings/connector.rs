use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connection::{Connection, LastHeard};
use super::network::{DialOutcome, Network};
use super::server_error::ServerError;

pub(crate) struct Connector {
    pub(crate) node: Node,
    pub(crate) network: Arc<Network>,
}

impl Connector {
    pub(crate) async fn connect(&self) -> Result<Connection, ServerError> {
        let network = &self.network;
        let (number, end) = network.attempt();
        match end {
            DialOutcome::Opens => {
                Ok(Connection { number, network: Arc::clone(network), state: Arc::default() })
            }
            DialOutcome::Fails => Err(ServerError::Refused),
            DialOutcome::IsDropped => pending().await,
        }
    }

    pub(crate) fn adopt(&self, connection: &Connection, _was_open: bool) {
        connection.state.is_in_use.store(true, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Node {
    pub(crate) parts: Parts,
    pub(crate) failovers: Failovers,
    pub(crate) heard: LastHeard,
    pub(crate) breaker: Breaker,
}

/// The server is never taken to be down here.
#[derive(Default)]
pub(crate) struct Breaker;

impl Breaker {
    pub(crate) fn outage(&self) -> Option<()> {
        None
    }

    pub(crate) fn answered(&self, (): ()) {}
}

impl Node {
    pub(crate) fn longest_without_reply(&self) -> Duration {
        Duration::from_secs(1)
    }

    pub(crate) fn silence_bound(&self) -> Duration {
        Duration::MAX
    }
}

#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) options: Options,
}

impl Parts {
    pub(crate) fn stalled(&self) {}

    pub(crate) fn replaced(&self) {}
}

#[derive(Default)]
pub(crate) struct Options {
    pub(crate) timeout: Duration,
    pub(crate) probe_every: Duration,
    pub(crate) dialer: Dialer,
}

#[derive(Default)]
pub(crate) struct Dialer {
    pub(crate) login: Option<()>,
}

#[derive(Default)]
pub(crate) struct Failovers;

impl Failovers {
    pub(crate) fn note(&self) {}
}
