//! A connection that is replaced when it breaks, with a timeout for each request.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bb8_redis::bb8::{Pool, RunError};
use redis::RedisError;
use tokio::time::{Instant, timeout_at};
use tokio::{select, task_local};

use super::connection::{Connection, SendError};
use super::connector::Connector;
use super::losses::NodeLosses;
use super::reconnect::{Failovers, ReconnectBackoff};
use super::redirect::is_lost;
use super::request::{Outgoing, Replied};
use super::request_error::RequestError;

task_local! {
    static CONNECT_TIME: ConnectTime;
}

/// The time of a `connect`, which all its requests share. They may take longer than those of
/// callers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectTime {
    limit: Duration,
    pub(super) until: Instant,
}

impl ConnectTime {
    /// Runs a `connect` of this task.
    pub(super) async fn share<T>(limit: Duration, connect: impl Future<Output = T>) -> T {
        CONNECT_TIME.scope(Self { limit, until: Instant::now() + limit }, connect).await
    }

    /// That of this task, if it is in a `connect`.
    pub(super) fn of_task() -> Option<Self> {
        CONNECT_TIME.try_with(Self::clone).ok()
    }
}

/// A connection to a server, replaced when it breaks. Requests share it: each is sent over a clone.
#[derive(Debug)]
pub(super) struct SharedConnection {
    /// Opens the connection: one attempt at a time, however many requests need it.
    pool: Pool<Connector>,
    /// A clone of the pool's connection, because a checkout would be the most expensive step of a
    /// request. Held to clone it, never across an `.await`.
    current: RwLock<Option<Arc<Connection>>>,
    backoff: ReconnectBackoff,
    failovers: Arc<Failovers>,
    timeout: Duration,
    /// Its number among the connections of its node.
    number: usize,
    losses: Arc<NodeLosses>,
}

impl SharedConnection {
    pub(super) fn new(connector: Connector, number: usize, losses: Arc<NodeLosses>) -> Self {
        let timeout = connector.timeout;
        let backoff = connector.backoff.clone();
        let failovers = Arc::clone(&connector.failovers);
        // The connection tracks whether it is broken, and the backoff when to try again. An attempt
        // has a limit of its own, and a request its deadline.
        let pool = Pool::builder()
            .max_size(1)
            .test_on_check_out(false)
            .retry_connection(false)
            .connection_timeout(Duration::MAX)
            .max_lifetime(None)
            .idle_timeout(None)
            .error_sink(Box::new(backoff.clone()))
            .build_unchecked(connector);
        let current = RwLock::new(None);
        Self { pool, current, backoff, failovers, timeout, number, losses }
    }

    /// Sends it, and connects first if necessary, all before the deadline.
    ///
    /// A request that a replica refuses is sent once more over another connection, because the
    /// address may lead to another server after a failover. So is one that is refused because the
    /// server does not accept the credentials of the connection any more.
    ///
    /// A request that is lost with its connection is sent once more over another one. So it may be
    /// executed twice, and every operation tolerates that: a lease is granted again to the same
    /// claim, and after a commit that is superseded by its own entry, a lookup finds that entry.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; the request may have been sent.
    pub(super) async fn send(
        &self,
        outgoing: Outgoing<'_>,
        deadline: Instant,
    ) -> Result<Replied, RequestError> {
        let mut lost = None;
        let mut is_refused = false;
        loop {
            let connection = match (self.open(deadline).await, lost.take()) {
                (Ok(connection), before) => {
                    lost = before;
                    connection
                }
                // Whether it was executed before it was lost is unknown, so this is its error.
                (Err(_), Some(lost)) => return Err(self.reported(lost)),
                (Err(error), None) => return Err(error),
            };
            let is_repeated = lost.is_some();
            let error = match connection.send(outgoing, deadline).await {
                Ok(value) => return Ok(Replied { value, is_repeated }),
                Err(SendError::Failed(error)) => error,
                // A reply that stopped halfway would block all later replies.
                Err(SendError::Late) => {
                    connection.give_up();
                    return Err(self.late());
                }
            };
            if !is_lost(&error) {
                let error = self.reported(error);
                if error.is_of_unauthenticated() && connection.has_credentials {
                    connection.give_up();
                }
                // Nothing was executed. The next connection may lead to the primary, and has the
                // credentials of this time.
                if error.is_of_connection() && connection.is_broken() && !is_refused {
                    is_refused = true;
                    continue;
                }
                return Err(error);
            }
            connection.give_up();
            if is_repeated {
                return Err(self.reported(error));
            }
            tracing::debug!(target: "bellwether::store", %error, "sending again over another connection");
            lost = Some(error);
        }
    }

    /// The connection, which is opened first if necessary.
    pub(super) async fn open(&self, deadline: Instant) -> Result<Arc<Connection>, RequestError> {
        match self.current() {
            Some(connection) => Ok(connection),
            None => {
                let opened = timeout_at(deadline, self.connect()).await;
                opened.unwrap_or_else(|_| Err(self.late()))
            }
        }
    }

    fn late(&self) -> RequestError {
        RequestError::TimedOut(ConnectTime::of_task().map_or(self.timeout, |time| time.limit))
    }

    fn reported(&self, error: RedisError) -> RequestError {
        let error = RequestError::Reported(error);
        if error.is_of_replica() {
            self.failovers.note();
        }
        error
    }

    /// The connection, unless it is broken.
    fn current(&self) -> Option<Arc<Connection>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        current.filter(|connection| !connection.is_broken())
    }

    /// Opens another connection, or fails as soon as an attempt has failed.
    async fn connect(&self) -> Result<Arc<Connection>, RequestError> {
        let failure = self.backoff.next_failure();
        let connection = select! {
            biased;
            connection = self.check_out() => connection?,
            error = failure.wait() => return Err(RequestError::Unconnected(error)),
        };
        let connection = Arc::new(connection);
        self.note_opened(&connection);
        let current = Some(Arc::clone(&connection));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
        Ok(connection)
    }

    /// Notes that a connection was opened, unless another request has noted that. No request may be
    /// sent over it before.
    fn note_opened(&self, connection: &Connection) {
        let former = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let is_noted = |former: &Arc<Connection>| Arc::ptr_eq(&former.state, &connection.state);
        if !former.as_ref().is_some_and(is_noted) {
            connection.state.tell_when_broken(&self.losses);
            self.losses.opened(self.number, former.is_some());
        }
    }

    async fn check_out(&self) -> Result<Connection, RequestError> {
        loop {
            let guard = self.pool.get().await.map_err(|error| match error {
                RunError::TimedOut => self.late(),
                RunError::User(error) => RequestError::Unconnected(error),
            })?;
            // The guard is dropped at once, because other requests share the connection. If that is
            // broken, the pool then drops it and opens another one.
            if !guard.is_broken() {
                return Ok(Connection::clone(&guard));
            }
        }
    }
}
