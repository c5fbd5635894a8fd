//! The connector: opens connections and sets them up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ProtocolVersion, PushInfo, RedisError};
use tokio::select;
use tokio::time::{Instant, sleep, timeout};

use super::address::ServerAddress;
use super::connect_error::{ConnectError, DialStep};
use super::connection::{Connection, ConnectionState, PushReceiver};
use super::destination::Destination;
use super::dial::{Dialed, Dialer, PushSender};
use super::events::{Events, ServerEvent, Tracking};
use super::failovers::Failovers;
use super::losses::NodeLosses;
use super::node_record::NodeRecord;
use super::options::RedisClientOptions;
use super::script::RedisScript;
use super::server_clock::ServerClock;
use bellwether::warn_throttled;

/// Makes the connections of a client. Each connection of a node has a copy of its own.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) dialer: Dialer,
    pub(super) destination: Destination,
    pub(super) protocol: ProtocolVersion,
    /// How long a command may take.
    pub(super) timeout: Duration,
    /// How long an attempt to connect may take.
    pub(super) connect_timeout: Duration,
    /// The longest pause after attempts that fail.
    pub(super) longest_pause: Duration,
    /// The scripts that the first connection of a node loads.
    pub(super) scripts: Arc<[RedisScript]>,
    pub(super) failovers: Arc<Failovers>,
    /// Of the node that it connects to.
    pub(super) record: Arc<NodeRecord>,
    pub(super) losses: Arc<NodeLosses>,
    /// The place of the node.
    pub(super) node: u16,
    /// The number of the connection in the node. The first one has client tracking.
    pub(super) number: usize,
    /// Set if the server's time is needed: it is read on connecting.
    pub(super) clock: Option<Arc<ServerClock>>,
    pub(super) events: Arc<Events>,
}

/// A connection, and when tracking was requested, if the server reports changes over it.
type Made = (Connection, Option<Instant>);

impl Connector {
    /// The template for the connections to the servers of these options.
    pub(super) fn new(
        options: &RedisClientOptions,
        scripts: Arc<[RedisScript]>,
        clock: Option<Arc<ServerClock>>,
        events: Arc<Events>,
    ) -> Self {
        let failovers = Arc::<Failovers>::default();
        Self {
            dialer: options.dialer().clone(),
            destination: Destination::new(options, &failovers),
            protocol: options.protocol(),
            timeout: options.request_timeout(),
            connect_timeout: options.connect_limit(),
            longest_pause: options.longest_backoff(),
            scripts,
            failovers,
            record: Arc::default(),
            losses: Arc::new(NodeLosses::new(Arc::clone(&events), 0, 0)),
            node: 0,
            number: 0,
            clock,
            events,
        }
    }

    /// Opens a connection.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub(super) async fn connect(&self) -> Result<Connection, ConnectError> {
        let step = DialStep::new(ANSWER);
        let made = step.within(self.connect_timeout, self.make_first(&step)).await;
        let (connection, tracked_at) = made?;
        if let Some(sent_at) = tracked_at {
            let ConnectionState { node, number, .. } = *connection.state;
            let is_broken = &|| connection.is_broken();
            let connected = ServerEvent::Connected { node, connection: number, sent_at, is_broken };
            self.events.tell(connected);
        }
        Ok(connection)
    }

    /// The first connection of two attempts. One goes on until it ends, because a busy server takes
    /// its time. The other one is begun again and again, because what the first has sent may be lost;
    /// its errors end nothing.
    async fn make_first(&self, step: &DialStep) -> Result<Made, ConnectError> {
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

    async fn make(&self, step: &DialStep) -> Result<Made, ConnectError> {
        let number = self.events.attempts.fetch_add(1, Ordering::Relaxed);
        // A failover from here on may change the address.
        let begun_after = self.failovers.count();
        let address = &self.destination.address().await?;
        self.record.connects_to(address);
        let mut protocol = self.protocol;
        let mut dialed = self.dial(address, protocol, number, step).await;
        if protocol == ProtocolVersion::RESP3
            && dialed.as_ref().is_err_and(ConnectError::is_about_the_protocol)
        {
            protocol = ProtocolVersion::RESP2;
            dialed = self.dial(address, protocol, number, step).await;
        }
        let (state, Dialed { mut socket, driver, has_credentials }) = dialed?;
        self.destination.verify(&mut socket, address).await?;
        self.failovers.watch(&driver);
        if let Some(clock) = &self.clock {
            read_clock(&mut socket, clock).await?;
        }
        let tracked_at = self.track(&mut socket, protocol).await?;
        // A user without the permission to load scripts still runs them by their text.
        if self.number == 0
            && let Err(error) = RedisScript::load(&self.scripts, &mut socket).await
        {
            tracing::debug!(target: "bellwether::store", %error, "the server refuses to load the scripts beforehand");
        }
        let failovers = Arc::clone(&self.failovers);
        let connection =
            Connection { socket, _driver: driver, has_credentials, state, failovers, begun_after };
        Ok((connection, tracked_at))
    }

    async fn dial(
        &self,
        address: &ServerAddress,
        protocol: ProtocolVersion,
        number: u64,
        step: &DialStep,
    ) -> Result<(Arc<ConnectionState>, Dialed), ConnectError> {
        let events = self.is_tracked().then(|| Arc::clone(&self.events));
        let state = Arc::new(ConnectionState::new(self.node, number, events));
        let pushes = (protocol == ProtocolVersion::RESP3).then(|| {
            let receiver = PushReceiver(Arc::clone(&state));
            Arc::new(move |push: PushInfo| receiver.receive(&push)) as PushSender
        });
        Ok((state, self.dialer.dial(address, protocol, pushes, step).await?))
    }

    fn is_tracked(&self) -> bool {
        self.number == 0 && self.events.tracking != Tracking::Nothing
    }

    /// Enables client tracking, if it is wanted. A server that refuses is used without it. Returns
    /// when the request was sent, unless it was refused.
    async fn track(
        &self,
        socket: &mut MultiplexedConnection,
        protocol: ProtocolVersion,
    ) -> Result<Option<Instant>, RedisError> {
        if !self.is_tracked() {
            return Ok(None);
        }
        let sent_at = Instant::now();
        // Over RESP2 the server may accept tracking, but cannot send the messages.
        let is_tracked = protocol == ProtocolVersion::RESP3 && {
            let mut ask = redis::cmd("CLIENT");
            match ask.arg("TRACKING").arg("ON").query_async::<()>(socket).await {
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
        self.events.is_tracked.store(is_tracked, Ordering::Relaxed);
        Ok(is_tracked.then_some(sent_at))
    }
}

/// Reads the server's time. If the server refuses, the time is taken from other replies.
async fn read_clock(
    socket: &mut MultiplexedConnection,
    clock: &ServerClock,
) -> Result<(), RedisError> {
    let asked_at = Instant::now();
    let mut read = redis::cmd("EVAL");
    read.arg(READ_CLOCK).arg(0);
    match read.query_async::<(u64, u64)>(socket).await {
        Ok((seconds, micros)) => {
            clock.note(asked_at, seconds.saturating_mul(1_000_000).saturating_add(micros));
        }
        Err(error) if error.is_io_error() => return Err(error),
        Err(error) => {
            tracing::debug!(target: "bellwether::store", %error, "the server refuses to give its time")
        }
    }
    Ok(())
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What is awaited until the address of the server is known.
const ANSWER: &str = "answer of a sentinel";

/// How long an attempt to connect may take before another one is made beside it. So a server that
/// was cut off is in use within a second of its return.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A script, because the user is only permitted the commands that scripts need.
const READ_CLOCK: &str = "return redis.call('TIME')";
