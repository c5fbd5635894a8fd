//! Links: connections that know whether they are broken, and hear of changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io};

use bb8_redis::bb8;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ProtocolVersion, PushInfo, PushKind, RedisError, Value,
};
use tokio::select;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::names::Names;
use super::near::Near;
use super::reconnect::{Attempts, Moves};
use super::script::Source;
use super::server_clock::ServerClock;
use crate::jitter::jitter;
use crate::log_throttle::warn_throttled;
use crate::store::Watchers;

/// A connection that everybody shares: clones send over one socket.
#[derive(Clone, Debug)]
pub(super) struct Link {
    connection: MultiplexedConnection,
    /// What it speaks: only by RESP3 can it hear of changes.
    protocol: ProtocolVersion,
    health: Arc<Health>,
    moves: Arc<Moves>,
    /// How many moves had been noted when it was begun.
    moved: u64,
}

/// Whether a link is of use. Its clones share it with what listens to it.
#[derive(Debug)]
struct Health {
    number: u64,
    broken: AtomicBool,
    /// Whether the connection has ended, so that no reply will come.
    over: AtomicBool,
    end: Notify,
    /// Set for links that hear of changes: what must know when nothing comes any more.
    near: Option<Arc<Near>>,
}

impl Link {
    /// Takes it out of use: the pool makes another one for the next caller. What is under way on
    /// it still ends as it will.
    pub(super) fn give_up(&self) {
        self.health.give_up();
    }

    pub(super) fn is_broken(&self) -> bool {
        self.health.is_broken() || self.moves.count() != self.moved
    }

    /// Asks, until the connection ends: a question that is handed over at that moment may stay in
    /// its queue, unanswered, for as long as anybody has a clone. Without pushes (RESP2) nothing is
    /// heard of the end, and the caller's time is what is left.
    pub(super) async fn ask(&mut self, question: &Question<'_>) -> Result<Value, RedisError> {
        let sent_at = Instant::now();
        let reply = select! {
            biased;
            reply = question.put(&mut self.connection) => reply,
            () = self.health.ended() => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        };
        if reply.is_ok() {
            self.health.confirm(sent_at);
        }
        reply
    }
}

/// What a server is asked.
#[derive(Debug)]
pub(super) enum Question<'a> {
    Command(Cmd),
    Script { source: &'a Source, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>> },
}

impl Question<'_> {
    async fn put(&self, connection: &mut MultiplexedConnection) -> Result<Value, RedisError> {
        match self {
            Self::Command(command) => command.query_async(connection).await,
            Self::Script { source, keys, args } => source.run(connection, keys, args).await,
        }
    }
}

impl Health {
    fn new(number: u64, near: Option<Arc<Near>>) -> Self {
        let (broken, over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { number, broken, over, end: Notify::new(), near }
    }

    /// Takes the link out of use.
    fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
        if let Some(near) = &self.near {
            near.deafen(self.number);
        }
    }

    /// It has answered a question that was sent at this moment.
    fn confirm(&self, sent_at: Instant) {
        if let Some(near) = &self.near {
            near.confirm(self.number, sent_at);
        }
    }

    /// The connection is no more.
    fn end(&self) {
        self.give_up();
        self.over.store(true, Ordering::Release);
        self.end.notify_waiters();
    }

    async fn ended(&self) {
        let end = self.end.notified();
        if !self.over.load(Ordering::Acquire) {
            end.await;
        }
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }
}

/// Makes the links of a pool.
pub(super) struct Links {
    pub(super) client: Client,
    pub(super) protocol: ProtocolVersion,
    pub(super) timeout: Duration,
    /// What the server is told as soon as it is connected to.
    pub(super) scripts: Arc<[Source]>,
    pub(super) made: Arc<AtomicU64>,
    pub(super) attempts: Attempts,
    pub(super) moves: Arc<Moves>,
    /// Set where the server's time matters: it is told as soon as there is a connection.
    pub(super) clock: Option<Arc<ServerClock>>,
    /// Set for links that hear of changes.
    pub(super) ears: Option<Ears>,
}

/// Where what a link hears goes.
#[derive(Clone, Debug)]
pub(super) struct Ears {
    pub(super) names: Names,
    pub(super) watchers: Watchers,
    pub(super) near: Option<Arc<Near>>,
    /// Whether the server tells us anything.
    pub(super) open: Arc<AtomicBool>,
    /// How many messages came.
    pub(super) heard: Arc<AtomicU64>,
}

impl Ears {
    fn hear(&self, push: &PushInfo) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Invalidate, [Value::Array(names)]) => {
                names.iter().for_each(|name| self.hear_name(name));
            }
            // Without names: the server dropped everything it had, or what it tracked.
            (PushKind::Invalidate, _) => {
                self.near.as_ref().inspect(|near| near.change_all());
                self.watchers.tell_all();
            }
            // Messages may have been lost, and none will come any more.
            (PushKind::Disconnection, _) => self.watchers.tell_all(),
            _ => {}
        }
    }

    fn hear_name(&self, name: &Value) {
        if let Value::BulkString(name) = name
            && let Some(digest) = self.names.digest_of(name)
        {
            if Names::is_of_entry(name) {
                self.near.as_ref().inspect(|near| near.change(&digest));
            }
            self.watchers.tell(&digest);
        }
    }
}

/// What the pushes of one link come to. It goes with the connection, however that ends: its runtime
/// may end before it.
struct Listener {
    health: Arc<Health>,
    ears: Option<Ears>,
}

impl Listener {
    fn hear(&self, push: &PushInfo) -> Result<(), redis::aio::SendError> {
        if push.kind == PushKind::Disconnection {
            self.health.end();
        }
        if let Some(ears) = &self.ears {
            ears.hear(push);
        }
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.health.end();
    }
}

impl Links {
    /// A link by RESP3, or by RESP2 if the server answers anything but yes: if it is not the
    /// protocol it minds, it says so again.
    async fn open(&self, number: u64) -> Result<Link, RedisError> {
        match self.open_by(self.protocol, number).await {
            Err(error) if self.protocol == ProtocolVersion::RESP3 && !error.is_io_error() => {
                self.open_by(ProtocolVersion::RESP2, number).await
            }
            opened => opened,
        }
    }

    async fn open_by(&self, protocol: ProtocolVersion, number: u64) -> Result<Link, RedisError> {
        let near = self.ears.as_ref().and_then(|ears| ears.near.clone());
        let health = Arc::new(Health::new(number, near));
        let (moves, moved) = (Arc::clone(&self.moves), self.moves.count());
        // Our own budget is around every operation; a second one here would only cost a timer.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        if protocol == ProtocolVersion::RESP3 {
            let listener = Listener { health: Arc::clone(&health), ears: self.ears.clone() };
            config = config.set_push_sender(move |push| listener.hear(&push));
        }
        let info = self.client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(protocol);
        let client = Client::open(info.set_redis_settings(settings))?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Link { connection, protocol, health, moves, moved })
    }

    /// Asks to be told of changes. A server that refuses is a server of which nothing is heard.
    async fn listen(&self, link: &mut Link, ears: &Ears) -> Result<(), RedisError> {
        let mut track = redis::cmd("CLIENT");
        track.arg("TRACKING").arg("ON");
        let sent_at = Instant::now();
        let refused = match track.query_async::<Value>(&mut link.connection).await {
            Err(error) if error.is_io_error() => return Err(error),
            Err(error) => Some(error),
            Ok(_) => None,
        };
        ears.open.store(refused.is_none(), Ordering::Relaxed);
        if let (None, Some(near)) = (&refused, &ears.near) {
            near.listen(link.health.number, sent_at, || link.is_broken());
        }
        if let Some(error) = refused {
            warn_throttled!(%error, "redis tells nothing of changes: losers will poll");
        }
        Ok(())
    }

    async fn make(&self, number: u64) -> Result<Link, RedisError> {
        let mut link = self.open(number).await?;
        if let Some(clock) = &self.clock {
            read_clock(&mut link, clock).await?;
        }
        let Some(ears) = &self.ears else {
            return Ok(link);
        };
        match link.protocol {
            ProtocolVersion::RESP3 => self.listen(&mut link, ears).await?,
            // The server may agree to tell, but could not.
            _ => ears.open.store(false, Ordering::Relaxed),
        }
        // A user without the right to load them still runs them by their text.
        if let Err(error) = Source::load(&self.scripts, &mut link.connection).await {
            tracing::debug!(%error, "the server does not take the scripts beforehand");
        }
        Ok(link)
    }
}

/// Asks for the server's time. A server that refuses tells it with other replies, or never.
async fn read_clock(link: &mut Link, clock: &ServerClock) -> Result<(), RedisError> {
    let asked_at = Instant::now();
    let mut read = redis::cmd("EVAL");
    read.arg(READ_CLOCK).arg(0);
    match read.query_async::<(u64, u64)>(&mut link.connection).await {
        Ok((seconds, micros)) => {
            clock.note(asked_at, seconds.saturating_mul(1_000_000).saturating_add(micros));
        }
        Err(error) if error.is_io_error() => return Err(error),
        Err(error) => tracing::debug!(%error, "the server does not tell its time"),
    }
    Ok(())
}

impl bb8::ManageConnection for Links {
    type Connection = Link;
    type Error = RedisError;

    /// One attempt, if it is time for one. It ends in time even if nobody waits for it any more:
    /// the pool has no other place.
    async fn connect(&self) -> Result<Link, RedisError> {
        self.attempts.may_begin(Instant::now())?;
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let made = timeout(self.timeout, self.make(number)).await;
        let made = made.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        match &made {
            Ok(_) => self.attempts.succeeded(),
            Err(error) => self.attempts.failed(error, Instant::now(), jitter()),
        }
        made
    }

    /// Links are not asked: see [`has_broken`](bb8::ManageConnection::has_broken).
    async fn is_valid(&self, _: &mut Link) -> Result<(), RedisError> {
        Ok(())
    }

    fn has_broken(&self, link: &mut Link) -> bool {
        link.is_broken()
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("hears", &self.ears.is_some()).finish_non_exhaustive()
    }
}

/// A script, because the user is allowed what scripts need, and no other command.
const READ_CLOCK: &str = "return redis.call('TIME')";

/// How many commands may wait for the socket before their callers do.
const QUEUE: usize = 1024;
