//! Connections: all requests share one, and it knows whether it is usable.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use super::dial::Driver;
use super::in_flight::{InFlight, Unanswered};
use super::reconnect::Failovers;
use super::request::{RedisRequest, ScriptForm};
use super::tracking_observer::TrackingObserver;

/// A connection to a server. Clones send over one socket.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) socket: MultiplexedConnection,
    /// It ends when the last clone is dropped.
    pub(super) driver: Arc<Driver>,
    /// Whether it has authenticated. If the server does not accept that any more, another connection
    /// has to be opened, with the credentials of that time.
    pub(super) has_credentials: bool,
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
    in_flight: Arc<InFlight>,
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

    /// Sends a request, and waits for its reply until the deadline, or until the connection ends.
    /// Without the latter, a request that is queued at that moment could stay unanswered as long as
    /// there is a clone. Over RESP2 the end is not reported, and only the deadline ends the wait.
    /// `None` if the deadline has passed.
    ///
    /// A server that does not know a script (after a restart or `SCRIPT FLUSH`) is sent its text.
    pub(super) async fn send(
        &self,
        request: &RedisRequest<'_>,
        deadline: Instant,
    ) -> Option<Result<Value, RedisError>> {
        let mut form = ScriptForm::Hash;
        let mut socket = self.socket.clone();
        loop {
            let command = request.packed(form, self.declares_all);
            let sent_at = self.state.observer.is_some().then(Instant::now);
            let reply = command.query_async(&mut socket);
            let reply = match self.state.in_flight.reply(deadline, reply).await {
                Ok(reply) => reply,
                Err(Unanswered::Ended) => {
                    Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
                }
                Err(Unanswered::Late) => return None,
            };
            match reply {
                Err(error) if form == ScriptForm::Hash && is_unknown_script(&error) => {
                    form = ScriptForm::Text
                }
                Err(error) => return Some(Err(error)),
                Ok(value) => {
                    sent_at.inspect(|sent_at| self.state.confirm(*sent_at));
                    return Some(Ok(value));
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
        Self { number, is_broken, in_flight: Arc::default(), observer }
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
        self.in_flight.end();
    }
}
