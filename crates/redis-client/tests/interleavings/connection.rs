use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::connector::Network;
use super::request::RedisRequest;
use super::server_error::ConnectionLost;

pub(crate) struct Connection {
    pub(crate) number: usize,
    pub(crate) network: Arc<Network>,
    pub(crate) state: ConnectionState,
}

#[derive(Default)]
pub(crate) struct ConnectionState {
    is_broken: AtomicBool,
    pub(crate) is_in_use: AtomicBool,
}

impl Connection {
    pub(crate) fn is_broken(&self) -> bool {
        self.state.is_broken.load(Ordering::Relaxed)
    }

    pub(crate) async fn send(
        &self,
        _request: &RedisRequest<'_>,
        _asks: bool,
        _deadline: Instant,
    ) -> Result<usize, ConnectionLost> {
        assert!(self.state.is_in_use.load(Ordering::Relaxed), "nothing knows that it is in use");
        if self.network.has_cut(self.number) { Err(ConnectionLost) } else { Ok(self.number) }
    }
}

impl ConnectionState {
    pub(crate) fn give_up(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }
}
