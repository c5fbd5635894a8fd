//! The connector: opens connections and sets them up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::select;
use tokio::time::{Instant, sleep, timeout};

use super::address::ServerAddress;
use super::client_core::{ServerEvent, Tracking};
use super::connection::{Connection, ConnectionState, PushReceiver};
use super::dial::{DialStep, Dialed, PushSender};
use super::node_state::NodeState;
use super::sentinel::verify;
use super::server_error::ServerError;
use bellwether::warn_throttled;

/// Makes one of the connections of a node.
pub(super) struct Connector {
    pub(super) node: Arc<NodeState>,
    /// The number of the connection in the node. The first one, 0, has client tracking; the other one, 1, is for
    /// large values.
    pub(super) number: usize,
}

impl Connector {
    /// Opens a connection.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub(super) async fn connect(&self) -> Result<Connection, ServerError> {
        let step = DialStep::new(ANSWER);
        let limit = self.node.parts.options.connect_timeout;
        step.within(limit, self.make_first(&step)).await
    }

    /// Notes that a connection is used from now on, after another one or not. No request may be sent over
    /// it before.
    pub(super) fn adopt(&self, connection: &Connection, was_open: bool) {
        if let Some(sent_at) = connection.tracked_at {
            let (node, number) = (self.node.place, connection.state.number);
            let is_broken = &|| connection.is_broken();
            let connected = ServerEvent::Connected { node, connection: number, sent_at, is_broken };
            self.node.parts.tell(connected);
        }
        connection.state.is_in_use.store(true, Ordering::Relaxed);
        self.node.opened(self.number, was_open);
    }

    /// The first connection of two attempts. One goes on until it ends, because a busy server takes
    /// its time. The other one is begun again and again, because what the first has sent may be lost;
    /// its errors end nothing.
    async fn make_first(&self, step: &DialStep) -> Result<Connection, ServerError> {
        let others = async {
            loop {
                sleep(AGAIN_AFTER).await;
                let other = DialStep::new(ANSWER);
                if let Ok(Ok(made)) = timeout(AGAIN_AFTER, self.make(&other)).await {
                    return made;
                }
            }
        };
        select! {
            biased;
            made = self.make(step) => made,
            made = others => Ok(made),
        }
    }

    async fn make(&self, step: &DialStep) -> Result<Connection, ServerError> {
        let node = &self.node;
        let number = node.parts.attempts.fetch_add(1, Ordering::Relaxed);
        // A failover from here on may change the address.
        let begun_after = node.failovers.count();
        let address = &node.address().await?;
        node.connects_to(address);
        let mut is_resp3 = node.parts.options.is_resp3;
        let mut dialed = self.dial(address, is_resp3, number, step).await;
        let spoken = node.has_spoken_resp3.load(Ordering::Relaxed);
        if is_resp3 && dialed.as_ref().is_err_and(|error| error.is_about_the_protocol(spoken)) {
            is_resp3 = false;
            dialed = self.dial(address, is_resp3, number, step).await;
        }
        let (state, (mut socket, tasks)) = dialed?;
        node.has_spoken_resp3.store(is_resp3, Ordering::Relaxed);
        if node.sentinels.is_some() {
            verify(&mut socket, address).await?;
        }
        let tracked_at = self.track(&mut socket, is_resp3).await?;
        if self.number == 0 {
            self.read_time(&mut socket).await?;
        }
        node.parts.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Connection { socket, _tasks: tasks, state, begun_after, tracked_at })
    }

    async fn dial(
        &self,
        address: &ServerAddress,
        is_resp3: bool,
        number: u64,
        step: &DialStep,
    ) -> Result<(Arc<ConnectionState>, Dialed), ServerError> {
        let state = ConnectionState::new(Arc::clone(&self.node), number, self.is_tracked());
        let state = Arc::new(state);
        let pushes = is_resp3.then(|| Arc::new(PushReceiver(Arc::clone(&state))) as PushSender);
        let failovers = Arc::clone(&self.node.failovers);
        let until = async move { failovers.switched.notified().await };
        let heard = [&state.heard, &self.node.heard].map(Arc::clone);
        let dialer = &self.node.parts.options.dialer;
        Ok((state, dialer.dial(address, pushes, heard, until, step).await?))
    }

    fn is_tracked(&self) -> bool {
        self.number == 0 && self.node.parts.setup.tracking != Tracking::Nothing
    }

    /// Enables client tracking, if it is wanted. A server that refuses is used without it. Returns
    /// when the request was sent, unless it was refused.
    async fn track(
        &self,
        socket: &mut MultiplexedConnection,
        is_resp3: bool,
    ) -> Result<Option<Instant>, RedisError> {
        if !self.is_tracked() {
            return Ok(None);
        }
        let sent_at = Instant::now();
        // Over RESP2 the server may accept tracking, but cannot send the messages.
        let is_tracked = is_resp3 && {
            let mut ask = redis::cmd("CLIENT");
            ask.arg("TRACKING").arg("ON");
            if self.node.parts.setup.tracking == Tracking::Namespace {
                ask.arg("BCAST").arg("PREFIX").arg(self.node.parts.names.prefix());
            }
            match ask.query_async::<()>(socket).await {
                Ok(()) => true,
                Err(error) if error.code().is_none() => return Err(error),
                Err(error) => {
                    warn_throttled!(
                        target: "bellwether::store", %error, "redis refuses client tracking"
                    );
                    false
                }
            }
        };
        self.node.parts.is_tracked.store(is_tracked, Ordering::Relaxed);
        Ok(is_tracked.then_some(sent_at))
    }

    /// Reads the server's time. A user without the permission for that takes it from other replies.
    async fn read_time(&self, socket: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let asked_at = Instant::now();
        let time = redis::cmd("TIME").query_async::<(u64, u64)>(socket).await;
        self.node.reply_times.connected(asked_at.elapsed());
        match time {
            Ok((seconds, micros)) => {
                let now = seconds.saturating_mul(1_000_000).saturating_add(micros);
                self.node.clock.note(asked_at, now);
            }
            Err(error) if error.code().is_none() => return Err(error),
            Err(error) => {
                tracing::debug!(target: "bellwether::store", %error, "the server refuses to give its time")
            }
        }
        Ok(())
    }
}

/// What is awaited until the address of the server is known.
const ANSWER: &str = "answer of a sentinel";

/// How long an attempt to connect may take before another one is made beside it. So a server that
/// was cut off is in use within a second of its return.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
