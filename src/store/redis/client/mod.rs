//! The Redis client: sends requests over shared connections. It replaces broken connections, sets a
//! timeout for each request, and sends none while the server is down.
//!
//! ```text
//! RedisClient::run ──► SharedConnection::send ──► Connection::send ──► redis
//!  breaker, node        timeout, reconnect,        hash or text,
//!  and connection       once more if lost          end of the connection
//! ```
//!
//! A client has one connection with client tracking, and perhaps plain ones. With several nodes, it
//! would choose the node of a request by the [slot] of its names.

mod address;
mod breaker;
mod connect_error;
mod connection;
mod connector;
mod credentials;
mod destination;
mod dial;
mod health;
mod in_flight;
mod login;
mod names;
mod options;
mod push_handler;
mod reconnect;
mod request;
mod request_error;
mod rights;
mod script;
mod sentinel;
mod server_clock;
mod shared_connection;
mod slot;
#[cfg(feature = "tls")]
mod tls;
mod tracking_observer;
mod url;
mod value;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

pub use self::credentials::{CredentialsProvider, PasswordFile, RedisCredentials};
pub use self::options::RedisOptions;
pub use self::request::RedisRequest;
pub use self::script::RedisScript;
#[cfg(feature = "tls")]
pub use self::tls::RedisTls;
pub use self::value::RedisValue;

pub(super) use self::request::Route;
pub(super) use self::request_error::RequestError;
pub(super) use self::server_clock::ServerClock;
pub(super) use self::tracking_observer::TrackingObserver;

use self::connector::Connector;
use self::destination::Destination;
use self::health::Health;
use self::names::Names;
use self::push_handler::PushHandler;
use self::reconnect::{Failovers, ReconnectBackoff};
use self::shared_connection::SharedConnection;
use crate::error::StoreError;
use crate::jitter::jitter;
use crate::key::Digest;
use crate::store::{Watch, Watchers};

/// A client of one Redis or Valkey server, for stores, locks and other protocols made of scripts.
///
/// A handle: clones share its connections.
///
/// It connects at its first use. A broken connection is replaced, and a request that was lost with
/// it is sent once more. Every request ends within the [timeout](RedisOptions::timeout). While the
/// server is [down](RedisOptions::down_after), requests fail at once.
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

/// The parts of a client in addition to its options.
#[derive(Debug, Default)]
pub(super) struct Setup {
    /// The scripts that are loaded on connecting.
    pub(super) scripts: Arc<[RedisScript]>,
    /// Notified of every change that the server reports.
    pub(super) watchers: Watchers,
    pub(super) observer: Option<Arc<dyn TrackingObserver>>,
    /// Set to the server's time on connecting.
    pub(super) clock: Option<Arc<ServerClock>>,
    /// The number of connections without tracking.
    pub(super) plain: u32,
}

impl RedisClient {
    /// A client that connects at its first use, and then loads these scripts. The watchers are
    /// notified of changes of the names that scripts have read.
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
        let failovers = Arc::<Failovers>::default();
        let destination = Destination::new(&options, &failovers);
        let connector = Connector {
            dialer: options.dialer().clone(),
            destination,
            protocol: options.protocol(),
            timeout: options.request_timeout(),
            scripts,
            attempts: Arc::clone(&attempts),
            backoff: ReconnectBackoff::new(options.longest_backoff()),
            failovers,
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

    /// Runs a request, and reads its reply with `read`.
    ///
    /// # Errors
    /// Those of the server and of the connection to it, and:
    /// - [`Down`](crate::StoreErrorKind::Down) if the server is taken to be down; the request was
    ///   not sent.
    /// - [`Malformed`](crate::StoreErrorKind::Malformed) if `read` returns `None`.
    /// - [`Unreachable`](crate::StoreErrorKind::Unreachable) if a request with
    ///   [`once`](RedisRequest::once) was sent twice and found nothing to do.
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
        match node.connection(request.route).send(request).await {
            Ok(replied) => {
                health.answered(admission);
                request.read(replied, read)
            }
            Err(error) => {
                let reported = request.error(&error);
                match error.is_outage() {
                    true => health.failed(admission, &reported),
                    false => health.answered(admission),
                }
                Err(reported)
            }
        }
    }

    /// Hints that a name of a key has changed which a script has read. Silent without client
    /// tracking.
    pub fn watch(&self, digest: Digest) -> Watch {
        if self.is_tracked() { self.0.watchers.watch(digest) } else { Watch::silent() }
    }

    /// Whether the server reports changes (client tracking). Until the first connection, this is
    /// what the options request.
    pub fn is_tracked(&self) -> bool {
        self.0.is_tracked.load(Ordering::Relaxed)
    }

    /// Whether the server is taken to be down, because [`RedisOptions::down_after`] requests in a
    /// row have failed. This ends with the next request that is answered, so it stays true while
    /// the client is not used.
    pub fn is_down(&self) -> bool {
        self.0.health.is_down()
    }

    /// The options that it was made with.
    pub fn options(&self) -> &RedisOptions {
        &self.0.options
    }

    /// The name `bw:<namespace>:{<digest>}<suffix>` of a key. A change of it is reported to the
    /// [watches](Self::watch) of the key.
    pub fn name(&self, digest: &Digest, suffix: &str) -> Vec<u8> {
        self.0.names.name(digest, suffix)
    }

    /// The name `bw:<namespace>:<what>:{<digest>}` of a key. Its changes are reported to no watch.
    pub fn unwatched_name(&self, what: &str, digest: &Digest) -> Vec<u8> {
        self.0.names.unwatched_name(what, digest)
    }

    /// The name `bw:<namespace>:<what>:{<tag>}` that all keys of one hash slot share, and the
    /// number of that slot, below [`SLOTS`](Self::SLOTS).
    pub fn shared_name(&self, what: &str, digest: &Digest) -> (Vec<u8>, u16) {
        self.0.names.shared_name(what, digest)
    }

    /// The name `bw:<namespace>:tag:{<digest>}` of a tag.
    pub(super) fn tag_name(&self, tag: &Digest) -> Vec<u8> {
        self.0.names.tag_name(tag)
    }

    /// The number of hash slots.
    pub const SLOTS: usize = slot::SLOTS;

    /// The number of attempts to connect.
    pub(super) fn attempts(&self) -> u64 {
        self.0.attempts.load(Ordering::Relaxed)
    }

    pub(super) fn outages(&self) -> u64 {
        self.0.health.outages()
    }

    /// The number of push messages.
    pub(super) fn pushes(&self) -> u64 {
        self.0.pushes.load(Ordering::Relaxed)
    }

    /// Notified when the server answers again after an outage. One waiting task is woken.
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

/// Shows the address of the server, but neither user nor password.
impl fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisClient")
            .field("options", &self.0.options)
            .field("is_tracked", &self.is_tracked())
            .field("is_down", &self.is_down())
            .finish()
    }
}
