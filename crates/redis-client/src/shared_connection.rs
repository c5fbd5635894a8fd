//! A connection that is replaced when it breaks or is silent.

use std::future::ready;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio::{select, task_local};

use super::connection::{Connection, passed};
use super::connector::Connector;
use super::one_task::OneTask;
use super::request::{RedisRequest, Replied};
use super::retry_pauses::RetryPauses;
use super::server_error::ServerError;
use super::shared_task::{SharedTask, start};
use super::silence::{Judgement, Silence};
use bellwether::adapter::locked;

task_local! {
    static CONNECT_TIME: (Duration, Instant);
}

/// Runs a `connect`, whose requests share a time. They may take longer than those of callers.
pub(super) async fn share_time<T>(limit: Duration, connect: impl Future<Output = T>) -> T {
    CONNECT_TIME.scope((limit, Instant::now() + limit), connect).await
}

/// The time of the `connect` that this task is in, and when it is over.
pub(super) fn connect_time() -> Option<(Duration, Instant)> {
    CONNECT_TIME.try_with(Clone::clone).ok()
}

/// A connection to a server, opened for the first request and replaced when it breaks. All requests
/// share it.
///
/// ```text
///  request ──► attempt ──────► open ──breaks, request──► attempt
///              ▲     └─fails─► an error
///              └──── request, after the pause
/// ```
///
/// There is one attempt at a time, which goes on without the requests that wait for it. After a failed
/// one there is a pause, in which requests fail at once, with its error. While an open connection is
/// [silent](super::silence), another one is begun, to take its place.
pub(super) struct SharedConnection {
    connector: Connector,
    /// Held for a few steps, never across an `.await`.
    slot: Mutex<ConnectionSlot>,
    /// Begins another connection, because the open one is silent.
    probing: OneTask,
}

#[derive(Default)]
struct ConnectionSlot {
    /// The last attempt to connect, and what has come of it.
    attempt: Option<SharedTask<Attempted>>,
    /// How many attempts have failed in a row.
    failures: u32,
    /// Whether a connection was open before.
    was_open: bool,
}

/// A connection, or the error of requests until another attempt is made.
type Attempted = Result<Arc<Connection>, (ServerError, Instant)>;

impl ConnectionSlot {
    fn has(&self, connection: &Arc<Connection>) -> bool {
        let last = self.attempt.as_ref().and_then(|attempt| attempt.peek());
        matches!(last, Some(Some(Ok(open))) if Arc::ptr_eq(open, connection))
    }
}

impl SharedConnection {
    pub(super) fn new(connector: Connector) -> Arc<Self> {
        Arc::new(Self { connector, slot: Mutex::default(), probing: OneTask::default() })
    }

    /// Sends it, and connects first if necessary. It takes as long as the server is not
    /// [silent](super::silence).
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
        self: &Arc<Self>,
        request: &RedisRequest<'_>,
    ) -> Result<Replied, ServerError> {
        let (mut lost, mut is_refused) = (None, false);
        loop {
            let connection = match self.open().await {
                Ok(connection) => connection,
                // Whether it was executed before it was lost is unknown, so that is its error.
                Err(error) => return Err(lost.unwrap_or(error)),
            };
            let sent = pin!(connection.send(request));
            let error = match self.while_heard(Some(&connection), sent).await {
                Ok(Ok(value)) => return Ok(Replied { value, is_repeated: lost.is_some() }),
                Ok(Err(error)) => error,
                Err(silent) => {
                    connection.state.give_up();
                    return Err(silent);
                }
            };
            let error = ServerError::Reported(error);
            let is_lost = error.is_lost();
            if error.is_of_replica() {
                self.connector.node.failovers.note();
            }
            let is_unauthenticated = error.is_about_credentials() && self.authenticates();
            if is_lost || is_unauthenticated {
                connection.state.give_up();
            }
            if is_lost && lost.is_none() {
                tracing::debug!(target: "bellwether::store", %error, "sending again over another connection");
                lost = Some(error);
                continue;
            }
            // Nothing was executed. The next connection may lead to the primary, and has the
            // credentials of this time.
            if is_lost
                || is_refused
                || !(error.is_of_replica() || is_unauthenticated)
                || !connection.is_broken()
            {
                return Err(error);
            }
            is_refused = true;
        }
    }

    /// The connection, which is opened first if necessary.
    ///
    /// # Cancel safety
    /// Dropping it leaves an attempt to connect, which goes on.
    pub(super) async fn open(self: &Arc<Self>) -> Result<Arc<Connection>, ServerError> {
        loop {
            let attempt = match self.connection()? {
                Ok(connection) => return Ok(connection),
                Err(attempt) => attempt,
            };
            self.while_heard(None, attempt).await?;
        }
    }

    /// Waits for a reply, or for an attempt to connect, until the server is silent.
    ///
    /// # Errors
    /// If it is. The error has the time.
    async fn while_heard<T>(
        self: &Arc<Self>,
        connection: Option<&Arc<Connection>>,
        mut reply: impl Future<Output = T> + Unpin,
    ) -> Result<T, ServerError> {
        let node = &self.connector.node;
        let (begun, mut stalls) = (Instant::now(), 0);
        let mut left = connection.map(|connection| Left { shared: self, connection, begun });
        let silence = |stalls| self.silence(connection, begun, stalls);
        // A `connect` has all of its time, and no more than that and one timeout.
        let connect_time = connect_time();
        let first_look = silence(stalls).first_look();
        let mut due = connect_time
            .map_or(first_look, |(_, until)| until.max(begun + node.parts.options.timeout));
        loop {
            select! {
                biased;
                reply = &mut reply => {
                    mem::forget(left.take());
                    return Ok(reply);
                }
                () = passed(due) => {}
            }
            if let Some((limit, _)) = connect_time {
                return Err(ServerError::late(limit));
            }
            let silence = silence(stalls);
            due = match silence.judge(due, Instant::now()) {
                Judgement::Wait(until) => until,
                Judgement::Stalled(until) => {
                    stalls += 1;
                    node.parts.stalled();
                    until
                }
                Judgement::Probe(until) => {
                    if let Some(silent) = connection {
                        self.probing.start(|| Arc::clone(self).probe(Arc::clone(silent)));
                    }
                    until
                }
                Judgement::Silent => {
                    mem::forget(left.take());
                    return Err(ServerError::late(silence.bound));
                }
            };
        }
    }

    /// What is known of a connection, or of an attempt to connect, while something waits for it.
    fn silence(
        &self,
        connection: Option<&Arc<Connection>>,
        begun: Instant,
        stalls: u32,
    ) -> Silence {
        let node = &self.connector.node;
        let last = connection.map(|connection| connection.state.last());
        let [since, replied] = last.map_or([begun; 2], |last| last.map(|last| last.max(begun)));
        let (node_heard, bound) = (node.heard.last(), node.silence_bound());
        let reply_until = replied + node.longest_without_reply();
        Silence { since, node_heard, bound, reply_until, stalls }
    }

    /// Judges a connection for requests that were dropped. Otherwise callers that all leave early would
    /// never find that it is dead.
    async fn watch(self: Arc<Self>, connection: Arc<Connection>, begun: Instant) {
        let node = &self.connector.node;
        sleep_until(begun + node.parts.options.timeout / 2).await;
        // What was dropped may have been the probe of a node that is taken to be down.
        let outage = node.breaker.outage();
        if connection.is_broken() || outage.is_none() && connection.state.last()[0] >= begun {
            return;
        }
        // What was dropped may not have been sent at all.
        let ping = RedisRequest::command("PING", [], [], "looking whether redis answers").urgent();
        let sent = pin!(connection.send(&ping));
        match (self.while_heard(Some(&connection), sent).await, outage) {
            (Ok(Ok(_)), Some(outage)) => node.breaker.answered(outage),
            (Ok(_), _) => {}
            (Err(_), _) => connection.state.give_up(),
        }
    }

    /// Begins another connection, since this one is silent. If the server answers over that one alone, it
    /// takes the place of this one, and what is under way on this one is sent again.
    async fn probe(self: Arc<Self>, silent: Arc<Connection>) {
        let connector = &self.connector;
        let begun = Instant::now();
        if !locked(&self.slot).has(&silent) {
            return;
        }
        let Ok(connection) = connector.connect().await else { return };
        // The server has served the silent one by now. What it sent may still have to be read here.
        let bound = silent.state.last()[0] + connector.node.silence_bound();
        sleep_until(bound.min(begun + connector.node.parts.options.timeout)).await;
        let mut slot = locked(&self.slot);
        if silent.state.last()[0] >= begun || !slot.has(&silent) {
            return;
        }
        // In this order: what breaks, and then what replaces it.
        silent.state.give_up();
        connector.adopt(&connection, true);
        slot.attempt = Some(start(ready(Ok(Arc::new(connection)))));
        drop(slot);
        connector.node.parts.replaced();
        silent.state.end();
    }

    /// Whether connections have credentials. If the server does not accept those any more, another
    /// connection has to be opened, with the credentials of that time.
    fn authenticates(&self) -> bool {
        self.connector.node.parts.options.dialer.login.is_some()
    }

    /// The connection. Without one, the attempt to connect that is under way, or a new one.
    ///
    /// # Errors
    /// That of the last attempt, until the pause after it is over.
    fn connection(
        self: &Arc<Self>,
    ) -> Result<Result<Arc<Connection>, SharedTask<Attempted>>, ServerError> {
        let mut slot = locked(&self.slot);
        if let Some(last) = &slot.attempt {
            match last.peek() {
                None => return Ok(Err(last.clone())),
                Some(Some(Ok(open))) if !open.is_broken() => return Ok(Ok(Arc::clone(open))),
                Some(Some(Err((error, again_at)))) if Instant::now() < *again_at => {
                    return Err(error.clone());
                }
                Some(_) => {}
            }
        }
        let attempt = start(Arc::clone(self).attempt());
        let former = slot.attempt.replace(attempt.clone());
        drop(slot);
        // Dropped after the lock, because this can end a connection.
        drop(former);
        Ok(Err(attempt))
    }

    async fn attempt(self: Arc<Self>) -> Attempted {
        let connector = &self.connector;
        match connector.connect().await {
            Ok(connection) => {
                let was_open = {
                    let mut slot = locked(&self.slot);
                    slot.failures = 0;
                    mem::replace(&mut slot.was_open, true)
                };
                connector.adopt(&connection, was_open);
                Ok(Arc::new(connection))
            }
            Err(error) => {
                tracing::debug!(target: "bellwether::store", %error, "no connection to redis");
                let failures = {
                    let mut slot = locked(&self.slot);
                    slot.failures = slot.failures.saturating_add(1);
                    slot.failures
                };
                let longest = connector.node.parts.options.probe_every / 2;
                let pause = RetryPauses::of_attempts(&error, longest).after(failures);
                Err((ServerError::Unconnected(Arc::new(error)), Instant::now() + pause))
            }
        }
    }
}

/// A request that waits for its reply. Dropping it leaves the connection to a watch, unless it has one.
struct Left<'a> {
    shared: &'a Arc<SharedConnection>,
    connection: &'a Arc<Connection>,
    begun: Instant,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        let Self { shared, connection, begun } = *self;
        let watch = || Arc::clone(shared).watch(Arc::clone(connection), begun);
        connection.state.watch.start(watch);
    }
}
