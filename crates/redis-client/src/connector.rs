//! The connector: opens connections and sets them up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bb8_redis::bb8;
use redis::aio::MultiplexedConnection;
use redis::{ProtocolVersion, PushInfo, RedisError, Value, from_redis_value};
use tokio::select;
use tokio::time::{Instant, sleep, timeout};

use super::address::ServerAddress;
use super::connect_error::{ConnectError, DialStep};
use super::connection::{Connection, ConnectionState};
use super::destination::Destination;
use super::dial::{Dialed, Dialer, PushSender};
use super::node_record::NodeRecord;
use super::push_handler::{PushHandler, PushReceiver};
use super::reconnect::{Failovers, ReconnectBackoff};
use super::script::RedisScript;
use super::server_clock::ServerClock;
use bellwether::adapter::jitter;
use bellwether::warn_throttled;

/// Makes the connections of a pool.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) dialer: Dialer,
    pub(super) destination: Destination,
    pub(super) protocol: ProtocolVersion,
    /// How long a command may take.
    pub(super) timeout: Duration,
    /// How long an attempt to connect may take.
    pub(super) connect_timeout: Duration,
    /// The scripts that are loaded on connecting.
    pub(super) scripts: Arc<[RedisScript]>,
    pub(super) attempts: Arc<AtomicU64>,
    pub(super) backoff: ReconnectBackoff,
    pub(super) failovers: Arc<Failovers>,
    /// Of the node that it connects to.
    pub(super) record: Arc<NodeRecord>,
    /// Set if the server's time is needed: it is read on connecting.
    pub(super) clock: Option<Arc<ServerClock>>,
    /// Set for tracked connections.
    pub(super) handler: Option<PushHandler>,
}

/// A connection that was made.
struct Made {
    connection: Connection,
    /// When tracking was requested, if the server reports changes.
    tracked_at: Option<Instant>,
}

impl Connector {
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
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        let (mut connection, protocol) = self.open(number, step).await?;
        if let Some(clock) = &self.clock {
            read_clock(&mut connection.socket, clock).await?;
        }
        let tracked_at = match (&self.handler, protocol) {
            (Some(handler), ProtocolVersion::RESP3) => track(&mut connection, handler).await?,
            // Over RESP2 the server may accept tracking, but cannot send the messages.
            (Some(handler), _) => {
                handler.is_tracked.store(false, Ordering::Relaxed);
                None
            }
            (None, _) => None,
        };
        // A user without the permission to load scripts still runs them by their text.
        if !self.scripts.is_empty()
            && let Err(error) = RedisScript::load(&self.scripts, &mut connection.socket).await
        {
            tracing::debug!(target: "bellwether::store", %error, "the server refuses to load the scripts beforehand");
        }
        Ok(Made { connection, tracked_at })
    }

    /// Connects by RESP3, or by RESP2 if the server refuses.
    async fn open(
        &self,
        number: u64,
        step: &DialStep,
    ) -> Result<(Connection, ProtocolVersion), ConnectError> {
        // A failover from here on may change the address.
        let begun_after = self.failovers.count();
        let address = &self.destination.address().await?;
        self.record.connects_to(address);
        let open = |protocol| self.open_by(protocol, address, number, begun_after, step);
        let (mut connection, protocol) = match open(self.protocol).await {
            Err(error)
                if self.protocol == ProtocolVersion::RESP3 && error.is_about_the_protocol() =>
            {
                (open(ProtocolVersion::RESP2).await?, ProtocolVersion::RESP2)
            }
            opened => (opened?, self.protocol),
        };
        self.destination.verify(&mut connection.socket, address).await?;
        self.failovers.watch(&connection.driver);
        Ok((connection, protocol))
    }

    async fn open_by(
        &self,
        protocol: ProtocolVersion,
        address: &ServerAddress,
        number: u64,
        begun_after: u64,
        step: &DialStep,
    ) -> Result<Connection, ConnectError> {
        let (node, observer) = match &self.handler {
            Some(handler) => (handler.node, handler.observer.clone()),
            None => (0, None),
        };
        let state = Arc::new(ConnectionState::new(node, number, observer));
        let pushes = (protocol == ProtocolVersion::RESP3).then(|| {
            let state = Arc::clone(&state);
            let receiver = PushReceiver { state, handler: self.handler.clone() };
            Arc::new(move |push: PushInfo| receiver.receive(&push)) as PushSender
        });
        let Dialed { socket, driver, has_credentials } =
            self.dialer.dial(address, protocol, pushes, step).await?;
        let failovers = Arc::clone(&self.failovers);
        Ok(Connection {
            socket,
            driver,
            has_credentials,
            state,
            failovers,
            begun_after,
            declares_all: true,
        })
    }

    /// Tells the observer that a connection that was made reports changes from now on.
    fn tell(&self, made: &Made) {
        let Made { connection, tracked_at } = made;
        let observer = self.handler.as_ref().and_then(|handler| handler.observer.as_ref());
        if let (Some(observer), Some(sent_at)) = (observer, *tracked_at) {
            let is_broken = || connection.is_broken();
            let ConnectionState { node, number, .. } = *connection.state;
            observer.connected(node, number, sent_at, &is_broken);
        }
    }
}

/// Enables client tracking. A server that refuses is used without it. Returns when the request was
/// sent, unless it was refused.
async fn track(
    connection: &mut Connection,
    handler: &PushHandler,
) -> Result<Option<Instant>, RedisError> {
    let mut ask = redis::pipe();
    ask.cmd("CLIENT").arg("TRACKING").arg("ON").cmd("HELLO").ignore_errors();
    let sent_at = Instant::now();
    let replies: Vec<Value> = ask.query_async(&mut connection.socket).await?;
    let mut replies = replies.into_iter().map(Value::extract_error);
    let refused = replies.next().and_then(Result::err);
    handler.is_tracked.store(refused.is_none(), Ordering::Relaxed);
    if let Some(error) = refused {
        warn_throttled!(
            target: "bellwether::store",
            %error,
            "redis refuses client tracking"
        );
        return Ok(None);
    }
    let server = replies.next().and_then(Result::ok);
    connection.declares_all = !server.is_some_and(|server| tracks_declared_names(&server));
    Ok(Some(sent_at))
}

/// Whether a server, by its `HELLO`, tracks the names that a script declares instead of those that
/// it reads: Redis before 7.2. For a node of a cluster the result is false, because it refuses
/// names that are not declared while their slot moves.
fn tracks_declared_names(hello: &Value) -> bool {
    let field = |wanted: &str| {
        let mut fields = hello.as_map_iter()?;
        let (_, value) = fields.find(
            |(name, _)| matches!(name, Value::BulkString(name) if name == wanted.as_bytes()),
        )?;
        from_redis_value::<String>(value.clone()).ok()
    };
    let version = field("version").and_then(|version| {
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??))
    });
    version.is_some_and(|version| version < (7, 2)) && field("mode").as_deref() != Some("cluster")
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

impl bb8::ManageConnection for Connector {
    type Connection = Connection;
    type Error = ConnectError;

    /// Connects, if the backoff permits it. It has a timeout of its own, because the pool goes on
    /// with it when no request waits for it any more.
    async fn connect(&self) -> Result<Connection, ConnectError> {
        self.backoff.may_begin(Instant::now())?;
        let step = DialStep::new(ANSWER);
        let made = step.within(self.connect_timeout, self.make_first(&step)).await;
        match &made {
            Ok(made) => {
                self.backoff.succeeded();
                self.tell(made);
            }
            Err(error) => self.backoff.failed(error, Instant::now(), jitter()),
        }
        made.map(|made| made.connection)
    }

    /// Connections are not probed: see [`has_broken`](bb8::ManageConnection::has_broken).
    async fn is_valid(&self, _: &mut Connection) -> Result<(), ConnectError> {
        Ok(())
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        connection.is_broken()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_tracked = self.handler.is_some();
        f.debug_struct("Connector").field("is_tracked", &is_tracked).finish_non_exhaustive()
    }
}

/// What is awaited until the address of the server is known.
const ANSWER: &str = "answer of a sentinel";

/// How long an attempt to connect may take before another one is made beside it. So a server that
/// was cut off is in use within a second of its return.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A script, because the user is only permitted the commands that scripts need.
const READ_CLOCK: &str = "return redis.call('TIME')";

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(version: &str, mode: &str) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = [("server", "redis"), ("version", version), ("mode", mode)];
        Value::Map(fields.into_iter().map(|(name, value)| (text(name), text(value))).collect())
    }

    #[test]
    fn single_servers_before_7_2_track_what_is_declared() {
        for (version, mode, expected) in [
            ("6.2.14", "standalone", true),
            ("7.0.15", "standalone", true),
            ("7.0.15", "cluster", false),
            ("7.2.0", "standalone", false),
            ("8.2.3", "standalone", false),
            ("10.0.0", "standalone", false),
            ("of late", "standalone", false),
        ] {
            assert_eq!(tracks_declared_names(&hello(version, mode)), expected, "{version} {mode}");
        }
        assert!(!tracks_declared_names(&Value::Okay));
    }
}
