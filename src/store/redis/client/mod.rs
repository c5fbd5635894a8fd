//! The Redis client: requests to a server, sent over shared connections that are replaced when they
//! break, within a time, and not at all while the server is down.
//!
//! ```text
//! RedisClient::run ──► SharedConnection::send ──► Connection::send ──► redis
//!  breaker, node        timeout, reconnect,        hash or text,
//!  and connection       once more if lost          end of the connection
//! ```
//!
//! A client has one connection that is told of changes (client tracking), and perhaps plain ones. It
//! is where a request finds its node: by the [slot] of its names, once there are several nodes.

mod breaker;
mod connection;
mod connector;
mod health;
mod names;
mod options;
mod push_handler;
mod reconnect;
mod request;
mod request_error;
mod script;
mod server_clock;
mod shared_connection;
mod slot;
mod value;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

pub use self::options::RedisOptions;
pub use self::request::RedisRequest;
pub use self::script::RedisScript;
pub use self::value::RedisValue;

pub(super) use self::push_handler::TrackingObserver;
pub(super) use self::request::Route;
pub(super) use self::request_error::{Refusal, RequestError, refusal};
pub(super) use self::server_clock::ServerClock;

use self::connector::Connector;
use self::health::Health;
use self::names::Names;
use self::push_handler::PushHandler;
use self::reconnect::{Failovers, ReconnectBackoff};
use self::shared_connection::SharedConnection;
use crate::error::StoreError;
use crate::jitter::jitter;
use crate::key::Digest;
use crate::store::{Watch, Watchers};

/// A client of one Redis or Valkey server, for stores, locks and other protocols made of scripts. A
/// handle: clones share its connections.
///
/// It connects when it is first used. A connection that breaks is replaced, and a request that was
/// lost with it is sent once more. Every request ends within the
/// [timeout](RedisOptions::timeout); while the server is [down](RedisOptions::down_after), requests
/// fail at once.
#[derive(Clone)]
pub struct RedisClient(Arc<ClientState>);

struct ClientState {
    options: RedisOptions,
    health: Health,
    names: Names,
    watchers: Watchers,
    /// Whether the server reports changes.
    is_tracked: Arc<AtomicBool>,
    node: NodeConnections,
    attempts: Arc<AtomicU64>,
    pushes: Arc<AtomicU64>,
}

/// The connections to one server.
#[derive(Debug)]
struct NodeConnections {
    tracked: SharedConnection,
    plain: Box<[SharedConnection]>,
}

/// What a client has beside its options.
#[derive(Debug, Default)]
pub(super) struct Setup {
    /// Which scripts a server is told when it is connected to.
    pub(super) scripts: Arc<[RedisScript]>,
    /// Told of every change that the server reports.
    pub(super) watchers: Watchers,
    pub(super) observer: Option<Arc<dyn TrackingObserver>>,
    /// Fed with the server's time when it is connected to.
    pub(super) clock: Option<Arc<ServerClock>>,
    /// How many connections are not tracked.
    pub(super) plain: u32,
}

impl RedisClient {
    /// A client that connects when it is first used. The server is told these scripts beforehand, and
    /// the watchers are told of changes of what scripts have read.
    pub fn new(
        options: RedisOptions,
        scripts: impl IntoIterator<Item = RedisScript>,
        watchers: Watchers,
    ) -> Self {
        let scripts = scripts.into_iter().collect();
        Self::with(options, Setup { scripts, watchers, ..Setup::default() })
    }

    pub(super) fn with(options: RedisOptions, setup: Setup) -> Self {
        let Setup { scripts, watchers, observer, clock, plain } = setup;
        let names = Names::new(options.namespace_name());
        let is_tracked = Arc::new(AtomicBool::new(options.is_tracked()));
        let (attempts, pushes): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
        let handler = PushHandler {
            names: names.clone(),
            watchers: watchers.clone(),
            observer,
            is_tracked: Arc::clone(&is_tracked),
            pushes: Arc::clone(&pushes),
        };
        let connector = Connector {
            client: options.client().clone(),
            protocol: options.protocol(),
            timeout: options.request_timeout(),
            scripts,
            attempts: Arc::clone(&attempts),
            backoff: ReconnectBackoff::new(options.longest_backoff()),
            failovers: Arc::new(Failovers::default()),
            clock,
            handler: None,
        };
        let connect = |handler| {
            let backoff = ReconnectBackoff::new(options.longest_backoff());
            SharedConnection::new(Connector { handler, backoff, ..connector.clone() })
        };
        let plain = (0..plain).map(|_| connect(None)).collect();
        let node = NodeConnections { tracked: connect(Some(handler)), plain };
        let health = Health::new(options.rules(jitter()));
        let state =
            ClientState { options, health, names, watchers, is_tracked, node, attempts, pushes };
        Self(Arc::new(state))
    }

    /// Runs a request, and reads its reply.
    ///
    /// # Errors
    /// Those of the server and of the way to it; [`Unreachable`](crate::StoreErrorKind::Unreachable)
    /// if a request that is to be executed [once](RedisRequest::once) was sent twice and found nothing
    /// to do; [`Malformed`](crate::StoreErrorKind::Malformed) if
    /// `read` finds no sense in the reply, and [`Down`](crate::StoreErrorKind::Down) if it was not
    /// sent because the server is taken to be down.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; the request may have been executed, or be executed later.
    pub async fn run<T>(
        &self,
        request: &RedisRequest<'_>,
        read: impl FnOnce(RedisValue) -> Option<T>,
    ) -> Result<T, StoreError> {
        debug_assert!(request.key.is_none() || request.is_of_one_slot(), "{request:?}");
        let ClientState { health, node, .. } = &*self.0;
        let admission = health.admit()?;
        let replied = node.connection(request.route).send(request).await;
        let replied = replied.map_err(|error| request.error(&error));
        health.note(admission, &replied);
        request.read(replied?, read)
    }

    /// Hints that something changes that a script has read for a key.
    pub fn watch(&self, digest: Digest) -> Watch {
        if self.is_tracked() { self.0.watchers.watch(digest) } else { Watch::silent() }
    }

    /// Whether the server reports changes, as far as is known: it is found out on connecting.
    pub fn is_tracked(&self) -> bool {
        self.0.is_tracked.load(Ordering::Relaxed)
    }

    /// Whether the server is taken to be down, because so many requests in a row have failed
    /// ([`RedisOptions::down_after`]). It is until a request gets through, so a client that is not
    /// used stays so.
    pub fn is_down(&self) -> bool {
        self.0.health.is_down()
    }

    /// What it is made from.
    pub fn options(&self) -> &RedisOptions {
        &self.0.options
    }

    /// The name `bw:<namespace>:{<digest>}<suffix>`, one of a key. A change of it is told to the
    /// [watches](Self::watch) of the key.
    pub fn name(&self, digest: &Digest, suffix: &str) -> Vec<u8> {
        self.0.names.name(digest, suffix)
    }

    /// The name `bw:<namespace>:<what>:{<digest>}`, one of a key whose changes are told to no watch.
    pub fn unwatched_name(&self, what: &str, digest: &Digest) -> Vec<u8> {
        self.0.names.unwatched_name(what, digest)
    }

    /// The name `bw:<namespace>:<what>:{<tag>}` that all keys share which fall into one slot with this
    /// one, and the number of that slot, below [`SLOTS`](Self::SLOTS).
    pub fn shared_name(&self, what: &str, digest: &Digest) -> (Vec<u8>, u16) {
        self.0.names.shared_name(what, digest)
    }

    /// How many slots there are.
    pub const SLOTS: usize = slot::SLOTS;

    /// How often it was tried to connect.
    pub(super) fn attempts(&self) -> u64 {
        self.0.attempts.load(Ordering::Relaxed)
    }

    pub(super) fn outages(&self) -> u64 {
        self.0.health.outages()
    }

    /// How many messages of the server came that it was not asked for.
    pub(super) fn pushes(&self) -> u64 {
        self.0.pushes.load(Ordering::Relaxed)
    }

    /// Tells one task when the server answers again, after having been taken to be down.
    pub(super) fn is_back(&self) -> Arc<Notify> {
        self.0.health.is_back()
    }
}

impl NodeConnections {
    fn connection(&self, route: Route) -> &SharedConnection {
        match route {
            Route::Plain(number) => self.plain.get(number).unwrap_or(&self.tracked),
            Route::Tracked => &self.tracked,
        }
    }
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisClient")
            .field("options", &self.0.options)
            .field("is_tracked", &self.is_tracked())
            .field("is_down", &self.is_down())
            .finish()
    }
}
