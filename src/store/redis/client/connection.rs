//! Connections: all requests share one, and it knows whether it is usable.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::select;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::dial::Driver;
use super::reconnect::Failovers;
use super::request::{Outgoing, RedisRequest, ScriptForm};
use super::tracking_observer::TrackingObserver;

/// A connection to a server. Clones send over one socket.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) socket: MultiplexedConnection,
    /// Held for its drop.
    pub(super) _driver: Arc<Driver>,
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

    /// Sends it, and waits for the reply.
    ///
    /// A server that does not know a script (after a restart or `SCRIPT FLUSH`) is sent its text.
    pub(super) async fn send(&mut self, outgoing: Outgoing<'_>) -> Result<Value, RedisError> {
        match outgoing {
            Outgoing::One(request) => self.send_one(request).await,
            Outgoing::Asking(request) => self.send_asking(request).await,
            Outgoing::Batch(requests) => self.send_batch(requests).await.map(Value::Array),
        }
    }

    async fn send_one(&mut self, request: &RedisRequest<'_>) -> Result<Value, RedisError> {
        let mut form = request.form;
        loop {
            let command = request.packed(form, self.declares_all);
            match self.state.reply(command.query_async(&mut self.socket)).await {
                Err(error) if form == ScriptForm::Hash && is_unknown_script(&error) => {
                    form = ScriptForm::Text
                }
                reply => return reply,
            }
        }
    }

    /// Sends `ASKING` and the request as one pipeline, because the next command on the connection
    /// uses up `ASKING`, whichever request it is of.
    async fn send_asking(&mut self, request: &RedisRequest<'_>) -> Result<Value, RedisError> {
        let mut form = request.form;
        loop {
            let command = request.packed(form, self.declares_all);
            let replies = self.send_pipeline([redis::cmd("ASKING"), command]).await?;
            let replies = replies.into_iter().map(Value::extract_error);
            match replies.last().unwrap_or(Ok(Value::Nil)) {
                Err(error) if form == ScriptForm::Hash && is_unknown_script(&error) => {
                    form = ScriptForm::Text
                }
                reply => return reply,
            }
        }
    }

    async fn send_batch(
        &mut self,
        requests: &[&RedisRequest<'_>],
    ) -> Result<Vec<Value>, RedisError> {
        let declares_all = self.declares_all;
        let commands = requests.iter().map(|request| request.packed(request.form, declares_all));
        let mut replies = self.send_pipeline(commands).await?;
        let unknown = replies.iter().enumerate().filter(|(_, reply)| is_unknown_in_batch(reply));
        let unknown: Vec<_> = unknown.map(|(place, _)| place).collect();
        if !unknown.is_empty() {
            let by_text =
                unknown.iter().map(|at| requests[*at].packed(ScriptForm::Text, declares_all));
            let again = self.send_pipeline(by_text).await?;
            unknown.into_iter().zip(again).for_each(|(place, reply)| replies[place] = reply);
        }
        Ok(replies)
    }

    /// The replies to commands that are sent as one pipeline, errors among them.
    async fn send_pipeline(
        &mut self,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> Result<Vec<Value>, RedisError> {
        let mut pipeline = redis::pipe();
        commands.into_iter().for_each(|command| _ = pipeline.add_command(command));
        pipeline.ignore_errors();
        self.state.reply(pipeline.query_async(&mut self.socket)).await
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

    /// Waits for a reply until the connection ends. Without this, a request that is queued at that
    /// moment could stay unanswered as long as there is a clone. Over RESP2 the end is not
    /// reported, and only the caller's timeout ends the wait.
    async fn reply<T>(
        &self,
        reply: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let sent_at = Instant::now();
        let reply = select! {
            biased;
            reply = reply => reply,
            () = self.ended() => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        };
        if reply.is_ok() {
            self.confirm(sent_at);
        }
        reply
    }

    async fn ended(&self) {
        let end = self.end.notified();
        if !self.has_ended.load(Ordering::Acquire) {
            end.await;
        }
    }
}
