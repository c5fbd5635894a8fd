use std::collections::VecDeque;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::adapter::locked;
use super::connection::{Connection, LastHeard};
use super::server_error::ServerError;

pub(crate) struct Connector {
    pub(crate) node: Node,
    pub(crate) network: Arc<Network>,
}

/// What a network makes of the attempts to connect, one after the other.
pub(crate) struct Network {
    ends: Mutex<VecDeque<DialOutcome>>,
    attempts: AtomicUsize,
    is_dialled: AtomicBool,
    /// The number of the last connection that was cut.
    cut: AtomicUsize,
}

#[derive(Clone, Copy)]
pub(crate) enum DialOutcome {
    Opens,
    Fails,
    /// The runtime ends meanwhile.
    IsDropped,
}

impl Network {
    pub(crate) fn of(ends: &[DialOutcome]) -> Arc<Self> {
        Arc::new(Self {
            ends: Mutex::new(ends.iter().copied().collect()),
            attempts: AtomicUsize::new(0),
            is_dialled: AtomicBool::new(false),
            cut: AtomicUsize::new(0),
        })
    }

    pub(crate) fn cut(&self, connection: usize) {
        self.cut.store(connection, Ordering::Release);
    }

    pub(crate) fn has_cut(&self, connection: usize) -> bool {
        connection <= self.cut.load(Ordering::Acquire)
    }
}

impl Connector {
    pub(crate) async fn connect(&self) -> Result<Connection, ServerError> {
        let network = &self.network;
        assert!(!network.is_dialled.swap(true, Ordering::AcqRel), "two attempts at once");
        let number = network.attempts.fetch_add(1, Ordering::AcqRel) + 1;
        let end = locked(&network.ends).pop_front().expect("no further attempt");
        network.is_dialled.store(false, Ordering::Release);
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
