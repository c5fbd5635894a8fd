use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::network::Network;
use super::one_task::OneTask;
use super::request::RedisRequest;
use super::server_error::ConnectionLost;

pub(crate) struct Connection {
    pub(crate) number: usize,
    pub(crate) network: Arc<Network>,
    pub(crate) state: Arc<ConnectionState>,
}

#[derive(Default)]
pub(crate) struct ConnectionState {
    is_broken: AtomicBool,
    pub(crate) is_in_use: AtomicBool,
    pub(crate) watch: OneTask,
}

#[derive(Default)]
pub(crate) struct LastHeard;

impl LastHeard {
    pub(crate) fn last(&self) -> Instant {
        Instant::now()
    }
}

/// No timer fires here.
pub(crate) async fn passed(_until: Instant) {
    pending().await
}

impl Connection {
    pub(crate) fn is_broken(&self) -> bool {
        self.state.is_broken.load(Ordering::Relaxed)
    }

    pub(crate) async fn send(&self, _request: &RedisRequest<'_>) -> Result<usize, ConnectionLost> {
        assert!(self.state.is_in_use.load(Ordering::Relaxed), "nothing knows that it is in use");
        if self.network.has_cut(self.number) { Err(ConnectionLost) } else { Ok(self.number) }
    }
}

impl ConnectionState {
    pub(crate) fn give_up(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {}

    pub(crate) fn last(&self) -> [Instant; 2] {
        [Instant::now(); 2]
    }
}
