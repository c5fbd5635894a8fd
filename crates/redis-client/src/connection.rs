//! Connections: all requests share one, and it knows whether it is usable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::{io, mem};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use super::dial::Driver;
use super::in_flight::{InFlight, Unanswered};
use super::losses::NodeLosses;
use super::reconnect::Failovers;
use super::request::{Outgoing, RedisRequest, ScriptForm};
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
    /// The place of its node.
    pub(super) node: u16,
    pub(super) number: u64,
    is_broken: AtomicBool,
    in_flight: Arc<InFlight>,
    /// Notified about a tracked connection.
    observer: Option<Arc<dyn TrackingObserver>>,
    /// Told when it breaks. Set when it is in use.
    losses: OnceLock<Arc<NodeLosses>>,
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

    /// Sends it, and waits for the reply until the deadline.
    ///
    /// A server that does not know a script (after a restart or `SCRIPT FLUSH`) is sent its text.
    pub(super) async fn send(
        &self,
        outgoing: Outgoing<'_>,
        deadline: Instant,
    ) -> Result<Value, SendError> {
        match outgoing {
            Outgoing::One(request) if request.is_timed => {
                let mut replies = self.send_batch(&[request], deadline).await?;
                Ok(replies.pop().unwrap_or(Value::Nil).extract_error()?)
            }
            Outgoing::One(request) => self.send_one(request, deadline).await,
            Outgoing::Asking(request) => self.send_asking(request, deadline).await,
            Outgoing::Batch(requests) => {
                self.send_batch(requests, deadline).await.map(Value::Array)
            }
        }
    }

    async fn send_one(
        &self,
        request: &RedisRequest<'_>,
        deadline: Instant,
    ) -> Result<Value, SendError> {
        let mut form = request.form;
        let mut socket = self.socket.clone();
        loop {
            let command = request.packed(form, self.declares_all);
            match self.state.reply(command.query_async(&mut socket), deadline).await {
                Err(SendError::Failed(error))
                    if form == ScriptForm::Hash && is_unknown_script(&error) =>
                {
                    form = ScriptForm::Text;
                }
                reply => return reply,
            }
        }
    }

    /// Sends `ASKING` and the request as one pipeline, because the next command on the connection
    /// uses up `ASKING`, whichever request it is of.
    async fn send_asking(
        &self,
        request: &RedisRequest<'_>,
        deadline: Instant,
    ) -> Result<Value, SendError> {
        let mut form = request.form;
        loop {
            let command = request.packed(form, self.declares_all);
            let commands = [redis::cmd("ASKING"), command].into_iter().chain(time_for([request]));
            let replies = self.send_pipeline(commands, deadline).await?;
            // The first is that of `ASKING`.
            let mut replies: Vec<_> = replies.into_iter().skip(1).collect();
            add_time([request], &mut replies);
            match replies.into_iter().next().unwrap_or(Value::Nil).extract_error() {
                Err(error) if form == ScriptForm::Hash && is_unknown_script(&error) => {
                    form = ScriptForm::Text;
                }
                reply => return Ok(reply?),
            }
        }
    }

    async fn send_batch(
        &self,
        requests: &[&RedisRequest<'_>],
        deadline: Instant,
    ) -> Result<Vec<Value>, SendError> {
        let declares_all = self.declares_all;
        let commands = requests.iter().map(|request| request.packed(request.form, declares_all));
        let commands = commands.chain(time_for(requests.iter().copied()));
        let mut replies = self.send_pipeline(commands, deadline).await?;
        add_time(requests.iter().copied(), &mut replies);
        let unknown = replies.iter().enumerate().filter(|(_, reply)| is_unknown_in_batch(reply));
        let unknown: Vec<_> = unknown.map(|(place, _)| place).collect();
        if !unknown.is_empty() {
            let by_text =
                unknown.iter().map(|at| requests[*at].packed(ScriptForm::Text, declares_all));
            let again = self.send_pipeline(by_text, deadline).await?;
            unknown.into_iter().zip(again).for_each(|(place, reply)| replies[place] = reply);
        }
        replies.truncate(requests.len());
        Ok(replies)
    }

    /// The replies to commands that are sent as one pipeline, errors among them.
    async fn send_pipeline(
        &self,
        commands: impl IntoIterator<Item = Cmd>,
        deadline: Instant,
    ) -> Result<Vec<Value>, SendError> {
        let pipeline = pipeline_of(commands.into_iter());
        let mut socket = self.socket.clone();
        self.state.reply(pipeline.query_async(&mut socket), deadline).await
    }
}

/// A pipeline whose replies may be errors.
fn pipeline_of(commands: impl Iterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.size_hint().0);
    commands.for_each(|command| _ = pipeline.add_command(command));
    pipeline.ignore_errors();
    pipeline
}

/// Why there is no reply.
#[derive(Debug)]
pub(super) enum SendError {
    /// The deadline has passed.
    Late,
    /// The client or the server reports an error.
    Failed(RedisError),
}

impl From<RedisError> for SendError {
    fn from(error: RedisError) -> Self {
        Self::Failed(error)
    }
}

/// Reads the server's time if any of the requests needs it.
fn time_for<'a>(requests: impl IntoIterator<Item = &'a RedisRequest<'a>>) -> Option<Cmd> {
    requests.into_iter().any(|request| request.is_timed).then(|| redis::cmd("TIME"))
}

/// Adds the last reply, that of `TIME`, to those of the requests that need it. An error stays as it
/// is.
fn add_time<'a>(requests: impl IntoIterator<Item = &'a RedisRequest<'a>>, replies: &mut [Value]) {
    let Some((time, replies)) = replies.split_last_mut() else { return };
    for (request, reply) in requests.into_iter().zip(replies) {
        if request.is_timed && !matches!(reply, Value::ServerError(_)) {
            *reply = match &*time {
                Value::ServerError(error) => Value::ServerError(error.clone()),
                time => Value::Array(vec![mem::replace(reply, Value::Nil), time.clone()]),
            };
        }
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The same for a reply in a batch.
fn is_unknown_in_batch(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

impl ConnectionState {
    pub(super) fn new(node: u16, number: u64, observer: Option<Arc<dyn TrackingObserver>>) -> Self {
        let is_broken = AtomicBool::new(false);
        let losses = OnceLock::new();
        Self { node, number, is_broken, in_flight: Arc::default(), observer, losses }
    }

    /// From now on it is in use, and these losses are told when it breaks.
    pub(super) fn tell_when_broken(&self, losses: &Arc<NodeLosses>) {
        // Requests that open it together all say so.
        _ = self.losses.set(Arc::clone(losses));
    }

    fn give_up(&self) {
        let was_broken = self.is_broken.swap(true, Ordering::Relaxed);
        if !was_broken && let Some(losses) = self.losses.get() {
            losses.broke();
        }
        if let Some(observer) = &self.observer {
            observer.disconnected(self.node, self.number);
        }
    }

    /// Waits for a reply until the deadline, or until the connection ends. Without the latter, a
    /// request that is queued at that moment could stay unanswered as long as there is a clone. Over
    /// RESP2 the end is not reported, and only the deadline ends the wait.
    async fn reply<T>(
        &self,
        reply: impl Future<Output = Result<T, RedisError>>,
        deadline: Instant,
    ) -> Result<T, SendError> {
        let sent_at = self.observer.is_some().then(Instant::now);
        let reply = match self.in_flight.reply(deadline, reply).await {
            Ok(reply) => reply?,
            Err(Unanswered::Ended) => {
                let ended = RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
                return Err(ended.into());
            }
            Err(Unanswered::Late) => return Err(SendError::Late),
        };
        sent_at.inspect(|sent_at| self.confirm(*sent_at));
        Ok(reply)
    }

    /// It has answered a request that was sent at this moment.
    fn confirm(&self, sent_at: Instant) {
        if let Some(observer) = &self.observer {
            observer.confirmed(self.node, self.number, sent_at);
        }
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        self.give_up();
        self.in_flight.end();
    }
}
