//! Connections: all requests share one, and it knows whether it is usable.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::{io, mem};

use futures_util::FutureExt;
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{ErrorKind, Pipeline, PushInfo, RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::client_core::ServerEvent;
use super::node_state::NodeState;
use super::one_task::OneTask;
use super::request::RedisRequest;
use super::silence::LastHeard;
use super::window::{Place, Window};

/// A connection to a server. It ends when this is dropped.
pub(super) struct Connection {
    pub(super) socket: MultiplexedConnection,
    pub(super) _tasks: JoinSet<()>,
    pub(super) state: Arc<ConnectionState>,
    /// The number of failovers when it was begun.
    pub(super) begun_after: u64,
    /// When tracking was requested, if the server reports changes over it.
    pub(super) tracked_at: Option<Instant>,
}

/// Whether a connection is usable. Its push receiver shares this.
pub(super) struct ConnectionState {
    pub(super) node: Arc<NodeState>,
    pub(super) number: u64,
    /// Whether it is to report changes.
    is_tracked: bool,
    is_broken: AtomicBool,
    /// Whether requests are sent over it. Then the node is told when it breaks.
    pub(super) is_in_use: AtomicBool,
    /// Judges it for requests that were dropped.
    pub(super) watch: OneTask,
    /// Closed when it has ended.
    ended: Semaphore,
    /// When bytes last arrived.
    pub(super) heard: Arc<LastHeard>,
    /// When a reply last arrived.
    replied: LastHeard,
    window: Window,
}

impl Connection {
    pub(super) fn is_broken(&self) -> bool {
        let state = &self.state;
        state.is_broken.load(Ordering::Relaxed) || state.node.failovers.count() != self.begun_after
    }

    /// Sends a request, and waits for the reply.
    ///
    /// A server that does not know a script (after a restart or `SCRIPT FLUSH`) is sent its text, in the same
    /// place of the window: requests that wait behind it are sent when the server knows it.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; the request may have been sent.
    pub(super) async fn send(&self, request: &RedisRequest<'_>) -> Result<Value, RedisError> {
        let _place = self.state.enter(request).await?;
        match self.exchange(request, false).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.exchange(request, true).await
            }
            exchanged => exchanged,
        }
    }

    /// A request is one to three commands: `ASKING` before it, because the next command on the
    /// connection uses that up, whichever request it is of, and `TIME` after it.
    async fn exchange(
        &self,
        request: &RedisRequest<'_>,
        by_text: bool,
    ) -> Result<Value, RedisError> {
        let mut socket = self.socket.clone();
        let command = request.packed(by_text, || self.state.node.lapses_at());
        let is_plain = !request.is_asking && !request.is_timed;
        // Pinned here, because a future that is passed on takes its memory once more in each function.
        let replied = pin!(async {
            if is_plain {
                return socket.send_packed_command(&command).await?.extract_error();
            }
            let mut pipeline = Pipeline::with_capacity(3);
            if request.is_asking {
                pipeline.cmd("ASKING").ignore();
            }
            pipeline.add_command(command);
            if request.is_timed {
                pipeline.cmd("TIME");
            }
            pipeline.ignore_errors();
            folded(pipeline.query_async(&mut socket).await?, request.is_timed)
        });
        self.state.reply(replied).await
    }
}

/// Waits until a moment. Each runtime that polls it times it, because the one before may have ended.
pub(super) async fn passed(deadline: Instant) {
    let mut runtime = Handle::current().id();
    let mut timer = pin!(sleep_until(deadline));
    let poll = |context: &mut Context<'_>| {
        let current = Handle::current().id();
        if mem::replace(&mut runtime, current) != current {
            timer.set(sleep_until(deadline));
        }
        timer.as_mut().poll(context)
    };
    poll_fn(poll).await;
}

/// The error of a request whose connection has ended, or is not used any more.
fn reset() -> RedisError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

/// The reply to a request, of the replies to its commands.
fn folded(replies: Vec<Value>, is_timed: bool) -> Result<Value, RedisError> {
    let replies: Result<Vec<_>, _> = replies.into_iter().map(Value::extract_error).collect();
    let mut replies = replies?;
    Ok(if is_timed { Value::Array(replies) } else { replies.pop().unwrap_or(Value::Nil) })
}

impl ConnectionState {
    pub(super) fn new(node: Arc<NodeState>, number: u64, is_tracked: bool) -> Self {
        Self {
            node,
            number,
            is_tracked,
            is_broken: AtomicBool::default(),
            is_in_use: AtomicBool::default(),
            watch: OneTask::default(),
            ended: Semaphore::new(0),
            heard: Arc::default(),
            replied: LastHeard::default(),
            window: Window::default(),
        }
    }

    /// Takes it out of use: the next request opens another one, and so do those that wait for room. Requests
    /// that are under way on it still end by themselves.
    pub(super) fn give_up(&self) {
        let was_broken = self.is_broken.swap(true, Ordering::Relaxed);
        self.window.close();
        if !was_broken && self.is_in_use.load(Ordering::Relaxed) {
            self.node.broke();
        }
        if self.is_tracked {
            let (node, connection) = (self.node.place, self.number);
            self.node.parts.tell(ServerEvent::Disconnected { node, connection });
        }
    }

    /// Waits until there is room for a request in the window of those under way. While a crowd waits there, the node
    /// learns of it: a silence may then be long without meaning that the server is down.
    async fn enter(&self, request: &RedisRequest<'_>) -> Result<Place<'_>, RedisError> {
        let is_crowded = |keys, since: Instant| self.node.waits(keys, since.max(self.heard.last()));
        let trip = self.node.reply_times.trip();
        let place = self.window.enter(request, trip, is_crowded);
        self.until_end(pin!(place.map(|place| place.ok_or_else(reset)))).await
    }

    /// Waits for the reply to a request.
    async fn reply<T>(
        &self,
        replied: impl Future<Output = Result<T, RedisError>> + Unpin,
    ) -> Result<T, RedisError> {
        let sent_at = Instant::now();
        let reply = self.until_end(replied).await;
        match &reply {
            Ok(_) => self.note_reply(sent_at, false),
            // The server's own.
            Err(error) if error.code().is_some() => self.note_reply(sent_at, true),
            Err(_) => {}
        }
        reply
    }

    /// Waits for a future, or until the connection ends. Without the end, a request that is queued at that
    /// moment could stay unanswered as long as there is a clone.
    async fn until_end<T>(
        &self,
        future: impl Future<Output = Result<T, RedisError>> + Unpin,
    ) -> Result<T, RedisError> {
        if self.ended.is_closed() {
            return Err(reset());
        }
        select! {
            biased;
            done = future => done,
            // It has no permits.
            _ = self.ended.acquire() => Err(reset()),
        }
    }

    /// A request that was sent then has its reply.
    fn note_reply(&self, sent_at: Instant, is_error: bool) {
        let now = Instant::now();
        self.replied.note(now);
        self.node.reply_times.note(now - sent_at);
        if self.is_tracked && !is_error {
            let (node, connection) = (self.node.place, self.number);
            self.node.parts.tell(ServerEvent::Confirmed { node, connection, sent_at });
        }
    }

    /// When bytes and a reply last arrived.
    pub(super) fn last(&self) -> [Instant; 2] {
        [self.heard.last(), self.replied.last()]
    }

    /// The connection has ended, or counts as ended: requests that are under way on it fail as lost.
    pub(super) fn end(&self) {
        self.give_up();
        self.ended.close();
    }
}

/// Receives the push messages of a connection. It is dropped when that ends, also with its runtime.
pub(super) struct PushReceiver(pub(super) Arc<ConnectionState>);

impl AsyncPushSender for PushReceiver {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        if self.0.is_tracked {
            self.0.node.parts.receive(self.0.node.place, &push);
        }
        Ok(())
    }
}

impl Drop for PushReceiver {
    fn drop(&mut self) {
        self.0.end();
        // Messages may have been lost, and no more will come.
        if self.0.is_tracked {
            self.0.node.parts.wake_where(|_| true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::join;
    use tokio::runtime::Builder;
    use tokio::time::advance;

    use super::*;
    use crate::client_core::{ClientCore, ClientSetup};
    use crate::options::RedisClientOptions;

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn state() -> ConnectionState {
        let options = RedisClientOptions::new("redis://h:1", "shop").expect("options");
        let server = options.servers.addresses[0].clone();
        let parts = Arc::new(ClientCore::new(options, ClientSetup::default()));
        ConnectionState::new(Arc::new(NodeState::new(parts, 0, server)), 0, false)
    }

    async fn send(
        state: &ConnectionState,
        reply: impl Future<Output = ()>,
    ) -> Result<(), RedisError> {
        send_of(state, vec![b"a".to_vec()], reply).await
    }

    async fn send_of(
        state: &ConnectionState,
        names: Vec<Vec<u8>>,
        reply: impl Future<Output = ()>,
    ) -> Result<(), RedisError> {
        let request = RedisRequest::command("MGET", names, [], "testing");
        let _place = state.enter(&request).await?;
        state.reply(pin!(reply.map(Ok))).await
    }

    #[test]
    fn a_timer_whose_runtime_has_ended_fires_in_another() {
        let runtime = || {
            let mut builder = Builder::new_current_thread();
            builder.enable_time().start_paused(true).build().expect("a runtime")
        };
        let first = runtime();
        let mut timer = Box::pin(passed(Instant::now() + TIMEOUT));
        assert!(first.block_on(async { timer.as_mut().now_or_never() }).is_none());
        drop(first);
        runtime().block_on(timer);
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_end_with_the_connection_and_later_ones_at_once() {
        let state = state();
        let began = Instant::now();
        let lost = async || {
            let sent = send(&state, pending()).await;
            sent.is_err_and(|error| error.is_connection_dropped())
        };
        let (first, second, ()) = join!(lost(), lost(), async { state.end() });
        assert!(first && second && lost().await);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_room_ends_with_the_connection_too() {
        let state = state();
        let large = RedisRequest::command("GET", [vec![0; 1 << 20]], [], "testing");
        let place = state.enter(&large).await;
        let (second, ()) = join!(send(&state, ready(())), async { state.end() });
        assert!(place.is_ok() && second.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_room_leaves_a_connection_that_is_given_up() {
        let state = state();
        let large = RedisRequest::command("GET", [vec![0; 1 << 20]], [], "testing");
        let place = state.enter(&large).await;
        let (second, ()) = join!(send(&state, ready(())), async { state.give_up() });
        assert!(place.is_ok() && second.is_err_and(|error| error.is_connection_dropped()));
    }

    /// Polls requests without replies, so many ms after another, and tells the bound then.
    async fn bound_of(requests: usize, keys: usize, every: u64) -> Duration {
        let state = state();
        advance(TIMEOUT).await;
        let mut under_way = Vec::new();
        for _ in 0..requests {
            let names = (0..keys).map(|key| format!("{{{key}}}").into_bytes()).collect();
            let mut sent = Box::pin(send_of(&state, names, pending()));
            assert!(sent.as_mut().now_or_never().is_none());
            under_way.push(sent);
            advance(Duration::from_millis(every)).await;
        }
        state.node.silence_bound()
    }

    #[tokio::test(start_paused = true)]
    async fn only_keys_that_come_at_once_are_a_burst() {
        let cases = [(64, 1, 0, 1), (65, 1, 0, 10), (3, 32, 0, 10), (500, 1, 1, 1), (50, 8, 1, 10)];
        for (requests, keys, every, timeouts) in cases {
            let bound = bound_of(requests, keys, every).await;
            assert_eq!(
                bound,
                timeouts * Duration::from_millis(250),
                "{requests} of {keys} every {every} ms"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_the_server_is_a_reply_too() {
        let state = state();
        advance(TIMEOUT).await;
        let full = redis::parse_redis_value(b"-OOM full\r\n").and_then(Value::extract_error);
        assert!(state.reply(ready(full)).await.is_err());
        assert_eq!(state.last()[1], Instant::now());
    }

    #[test]
    fn a_request_has_its_own_reply_and_the_time_if_it_needs_that() {
        let [reply, time] = [1, 9].map(Value::Int);
        assert_eq!(folded(vec![reply.clone()], false), Ok(reply.clone()));
        let timed = vec![reply, time];
        assert_eq!(folded(timed.clone(), true), Ok(Value::Array(timed)));
    }

    #[test]
    fn an_error_stays_as_it_is() {
        let error = || redis::parse_redis_value(b"-OOM full\r\n").expect("an error reply");
        for (replies, is_timed) in [
            (vec![error()], false),
            (vec![error(), Value::Int(9)], true),
            (vec![Value::Int(1), error()], true),
        ] {
            let error = folded(replies, is_timed).expect_err("an error");
            assert_eq!(error.code(), Some("OOM"));
        }
    }
}
