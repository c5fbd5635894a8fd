//! Connections: all requests share one, and it knows whether it is usable.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::select;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::dial::Driver;
use super::reconnect::Failovers;
use super::request::{RedisRequest, ScriptForm};
use super::tracking_observer::TrackingObserver;

/// A connection to a server. Clones send over one socket.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) socket: MultiplexedConnection,
    /// It ends when the last clone is dropped.
    pub(super) driver: Arc<Driver>,
    pub(super) state: Arc<ConnectionState>,
    pub(super) failovers: Arc<Failovers>,
    /// The number of failovers when it was begun.
    pub(super) begun_after: u64,
    /// Whether all names of a script are declared. Redis before 7.2 tracks the declared names, and
    /// would report changes that no caller waits for.
    pub(super) declares_all: bool,
}

/// Whether a connection is usable. Its clones and its push receiver share this.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) number: u64,
    is_broken: AtomicBool,
    /// Whether it has ended, so that no reply will come.
    has_ended: AtomicBool,
    end: Notify,
    /// Notified about a tracked connection.
    observer: Option<Arc<dyn TrackingObserver>>,
}

impl Connection {
    /// Takes it out of use: the next request opens another one. Requests that are under way on it
    /// still end by themselves.
    pub(super) fn give_up(&self) {
        self.state.give_up();
    }

    pub(super) fn is_broken(&self) -> bool {
        self.state.is_broken.load(Ordering::Relaxed) || self.failovers.count() != self.begun_after
    }

    /// Sends a request, and waits for its reply until the connection ends. Without this, a request
    /// that is queued at that moment could stay unanswered as long as there is a clone. Over RESP2
    /// the end is not reported, and only the caller's timeout ends the wait.
    ///
    /// A server that does not know a script (after a restart or `SCRIPT FLUSH`) is sent its text.
    pub(super) async fn send(&mut self, request: &RedisRequest<'_>) -> Result<Value, RedisError> {
        let mut form = ScriptForm::Hash;
        loop {
            let command = request.packed(form, self.declares_all);
            let sent_at = Instant::now();
            let reply = select! {
                biased;
                reply = command.query_async(&mut self.socket) => reply,
                () = self.state.ended() => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
            };
            match reply {
                Err(error) if form == ScriptForm::Hash && is_unknown_script(&error) => {
                    form = ScriptForm::Text
                }
                Err(error) => return Err(error),
                Ok(value) => {
                    self.state.confirm(sent_at);
                    return Ok(value);
                }
            }
        }
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

impl ConnectionState {
    pub(super) fn new(number: u64, observer: Option<Arc<dyn TrackingObserver>>) -> Self {
        let is_broken = AtomicBool::new(false);
        let has_ended = AtomicBool::new(false);
        Self { number, is_broken, has_ended, end: Notify::new(), observer }
    }

    fn give_up(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
        if let Some(observer) = &self.observer {
            observer.disconnected(self.number);
        }
    }

    /// It has answered a request that was sent at this moment.
    fn confirm(&self, sent_at: Instant) {
        if let Some(observer) = &self.observer {
            observer.confirmed(self.number, sent_at);
        }
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        self.give_up();
        self.has_ended.store(true, Ordering::Release);
        self.end.notify_waiters();
    }

    async fn ended(&self) {
        let end = self.end.notified();
        if !self.has_ended.load(Ordering::Acquire) {
            end.await;
        }
    }
}
