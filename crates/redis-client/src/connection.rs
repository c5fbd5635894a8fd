//! Connections: all requests share one, and it knows whether it is usable.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::{io, mem};

use redis::aio::{MultiplexedConnection, SendError};
use redis::{ErrorKind, Pipeline, PushInfo, RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::events::ServerEvent;
use super::node_record::NodeRecord;
use super::request::RedisRequest;

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
    pub(super) node: Arc<NodeRecord>,
    pub(super) number: u64,
    /// Whether it is to report changes.
    is_tracked: bool,
    is_broken: AtomicBool,
    /// Whether requests are sent over it. Then the node is told when it breaks.
    pub(super) is_in_use: AtomicBool,
    has_ended: AtomicBool,
    /// Notified when it has ended.
    ended: Notify,
}

impl Connection {
    pub(super) fn is_broken(&self) -> bool {
        let state = &self.state;
        state.is_broken.load(Ordering::Relaxed) || state.node.failovers.count() != self.begun_after
    }

    /// Sends a request, and waits for the reply until the deadline. `asks` says whether its slot is one
    /// that the node is importing.
    ///
    /// A server that does not know a script (after a restart or `SCRIPT FLUSH`) is sent its text.
    pub(super) async fn send(
        &self,
        request: &RedisRequest<'_>,
        asks: bool,
        deadline: Instant,
    ) -> Result<Value, RedisError> {
        match self.exchange(request, asks, false, deadline).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.exchange(request, asks, true, deadline).await
            }
            exchanged => exchanged,
        }
    }

    /// A request is one to three commands: `ASKING` before it, because the next command on the
    /// connection uses that up, whichever request it is of, and `TIME` after it.
    async fn exchange(
        &self,
        request: &RedisRequest<'_>,
        asks: bool,
        by_text: bool,
        deadline: Instant,
    ) -> Result<Value, RedisError> {
        let mut socket = self.socket.clone();
        let command = request.packed(by_text);
        if !asks && !request.is_timed {
            let reply = self.state.reply(socket.send_packed_command(&command), deadline).await?;
            return reply.extract_error();
        }
        let mut pipeline = Pipeline::with_capacity(3);
        if asks {
            pipeline.cmd("ASKING").ignore();
        }
        pipeline.add_command(command);
        if request.is_timed {
            pipeline.cmd("TIME");
        }
        pipeline.ignore_errors();
        let replies = self.state.reply(pipeline.query_async(&mut socket), deadline).await?;
        folded(replies, request.is_timed)
    }
}

/// Waits until a request is late. Each runtime that polls it times it, because the one before may have
/// ended.
async fn passed(deadline: Instant) {
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

/// The reply to a request, of the replies to its commands.
fn folded(replies: Vec<Value>, is_timed: bool) -> Result<Value, RedisError> {
    let replies: Result<Vec<_>, _> = replies.into_iter().map(Value::extract_error).collect();
    let mut replies = replies?;
    Ok(if is_timed { Value::Array(replies) } else { replies.pop().unwrap_or(Value::Nil) })
}

impl ConnectionState {
    pub(super) fn new(node: Arc<NodeRecord>, number: u64, is_tracked: bool) -> Self {
        let [is_broken, is_in_use, has_ended] = [false; 3].map(AtomicBool::new);
        let ended = Notify::new();
        Self { node, number, is_tracked, is_broken, is_in_use, has_ended, ended }
    }

    /// Takes it out of use: the next request opens another one. Requests that are under way on it
    /// still end by themselves.
    pub(super) fn give_up(&self) {
        let was_broken = self.is_broken.swap(true, Ordering::Relaxed);
        if !was_broken && self.is_in_use.load(Ordering::Relaxed) {
            self.node.broke();
        }
        if self.is_tracked {
            let (node, connection) = (self.node.place, self.number);
            self.node.parts.tell(ServerEvent::Disconnected { node, connection });
        }
    }

    /// Waits for a reply until the deadline, or until the connection ends. A reply counts, even if it is
    /// late. Without the end, a request that is queued at that moment could stay unanswered as long as
    /// there is a clone. Over RESP2 the end is not reported, and only the deadline ends the wait.
    async fn reply<T>(
        &self,
        reply: impl Future<Output = Result<T, RedisError>>,
        deadline: Instant,
    ) -> Result<T, RedisError> {
        let sent_at = self.is_tracked.then(Instant::now);
        // It is notified from here on, also before it is polled.
        let ended = self.ended.notified();
        if self.has_ended.load(Ordering::Acquire) {
            return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
        }
        let reply = select! {
            biased;
            reply = reply => reply?,
            () = passed(deadline) => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            () = ended => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        };
        if let Some(sent_at) = sent_at {
            let (node, connection) = (self.node.place, self.number);
            self.node.parts.tell(ServerEvent::Confirmed { node, connection, sent_at });
        }
        Ok(reply)
    }

    /// The connection has ended.
    fn end(&self) {
        self.give_up();
        self.has_ended.store(true, Ordering::Release);
        self.ended.notify_waiters();
    }
}

/// Receives the push messages of a connection. It is dropped when that ends, also with its runtime.
pub(super) struct PushReceiver(pub(super) Arc<ConnectionState>);

impl PushReceiver {
    pub(super) fn receive(&self, push: &PushInfo) -> Result<(), SendError> {
        if self.0.is_tracked {
            self.0.node.parts.receive(self.0.node.place, push);
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

    use futures_util::FutureExt;
    use tokio::join;
    use tokio::runtime::Builder;

    use super::*;
    use crate::options::RedisClientOptions;
    use crate::parts::{ClientParts, ClientSetup};

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn state() -> ConnectionState {
        let options = RedisClientOptions::new("redis://h:1", "shop").expect("options");
        let server = options.servers.addresses[0].clone();
        let parts = Arc::new(ClientParts::new(options, ClientSetup::default()));
        ConnectionState::new(Arc::new(NodeRecord::new(parts, 0, server)), 0, false)
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_without_a_reply_ends_at_its_own_deadline() {
        let state = state();
        let began = Instant::now();
        let late = async |after| {
            let error = state.reply(pending::<Result<(), _>>(), began + after).await;
            assert!(error.is_err_and(|error| error.is_timeout()) && began.elapsed() >= after);
            began.elapsed() - after < TIMEOUT / 100
        };
        let ends = join!(late(TIMEOUT * 2), late(TIMEOUT), late(TIMEOUT * 3));
        assert_eq!(ends, (true, true, true));
    }

    #[test]
    fn a_request_whose_runtime_has_ended_keeps_its_deadline_in_another() {
        let runtime = || {
            let mut builder = Builder::new_current_thread();
            builder.enable_time().start_paused(true).build().expect("a runtime")
        };
        let (state, first) = (state(), runtime());
        let deadline = Instant::now() + TIMEOUT;
        let mut request = Box::pin(state.reply(pending::<Result<(), _>>(), deadline));
        assert!(first.block_on(async { request.as_mut().now_or_never() }).is_none());
        drop(first);
        assert!(runtime().block_on(request).is_err_and(|error| error.is_timeout()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_counts_even_if_it_is_late() {
        assert_eq!(state().reply(ready(Ok(7)), Instant::now() - TIMEOUT).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_end_with_the_connection_and_later_ones_at_once() {
        let state = state();
        let began = Instant::now();
        let lost = async || {
            let error = state.reply(pending::<Result<(), _>>(), began + TIMEOUT).await;
            error.is_err_and(|error| error.is_connection_dropped())
        };
        let (first, second, ()) = join!(lost(), lost(), async { state.end() });
        assert!(first && second && lost().await);
        assert_eq!(began.elapsed(), Duration::ZERO);
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
