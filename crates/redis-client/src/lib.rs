//! A client of Redis and Valkey servers, for protocols made of scripts.
//!
//! A protocol consists of [scripts](RedisScript) on names. The client runs the scripts. It
//! connects, replaces broken connections, sets a timeout for each request, and stops requests to a
//! server that is down. It reports changes to [watches](RedisClient::watch). `RedisStore` of
//! `bellwether-redis` and the Redis locks of `bellwether-lock` use it.
//!
//! ```no_run
//! use bellwether::Key;
//! use bellwether::store::Watchers;
//! use bellwether_redis_client::{RedisClient, RedisClientOptions, RedisRequest, RedisScript};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let count = RedisScript::new(&["return redis.call('INCR', KEYS[1])"]);
//! let options = RedisClientOptions::new("redis://127.0.0.1:6379", "shop")?;
//! let client = RedisClient::new(options, [count.clone()], Watchers::default());
//! let key = Key::of("visits").with("front page");
//! let names = [client.name(&key.digest(), ":count")];
//! let request = RedisRequest::script(&count, names, [], "counting").of(&key);
//! let visits = client.run(&request, |reply| reply.whole()).await?;
//! # let _ = visits;
//! # Ok(())
//! # }
//! ```
//!
//! # The way of a request
//! ```text
//! RedisClient::run ──► RedisNode::send ──► SharedConnection::send ──► Connection::send ──► redis
//!  server, or node     breaker,       timeout, reconnect,        hash or text,
//!  of a cluster        connection     once more if lost          end of the connection
//! ```
//!
//! A node has one connection, and perhaps more for lookups. In a cluster, the node of a request is
//! the owner of the slot of its names.
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `tls` | no | `rediss://`: connections by TLS (`rustls`), with certificates of your own |

mod address;

mod breaker;
mod cluster;
mod connect_error;
mod connection;
mod connector;
mod credentials;
mod destination;
mod dial;
mod health;
mod in_flight;
mod login;
mod loss_observer;
mod losses;
mod names;
mod node;
mod node_record;
mod nodes;
mod options;
mod push_handler;
mod reconnect;
mod redirect;
mod request;
mod request_error;
mod retry_pauses;
mod rights;
mod routing;
mod script;
mod sentinel;
mod server_clock;
mod shared_connection;
mod slot;
mod stats;
mod subscriber;
#[cfg(feature = "tls")]
mod tls;
mod tracking_observer;
mod url;
mod value;
mod wake_ups;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::credentials::{CredentialsProvider, RedisCredentials};
pub use self::options::RedisClientOptions;
pub use self::request::RedisRequest;
pub use self::script::RedisScript;
#[cfg(feature = "tls")]
pub use self::tls::RedisTls;
pub use self::value::RedisValue;

pub use self::loss_observer::LossObserver;
pub use self::request::Route;
pub use self::routing::SlotGroup;
pub use self::server_clock::{ServerClock, ServerTime};
pub use self::slot::{InSlot, Ownership, SlotOwners};
pub use self::stats::RedisNodeStats;
pub use self::subscriber::MessageReader;
pub use self::tracking_observer::TrackingObserver;

use self::connector::Connector;
use self::destination::Destination;
use self::health::Outages;
use self::names::Names;
use self::node::NodeFactory;
use self::push_handler::PushHandler;
use self::reconnect::{Failovers, ReconnectBackoff};
use self::request::Replied;
use self::routing::Routing;
use self::shared_connection::ConnectTime;
use self::subscriber::Subscriber;
use bellwether::Digest;
use bellwether::StoreError;
use bellwether::adapter::jitter;
use bellwether::store::{Watch, Watchers};

/// A client of a Redis or Valkey server or cluster, for stores, locks and other protocols made of
/// scripts.
///
/// A handle: clones share its connections.
///
/// It connects at its first use. A broken connection is replaced, and a request that was lost with
/// it is sent once more. Every request ends within the [timeout](RedisClientOptions::timeout). While the
/// server is [down](RedisClientOptions::down_after), requests fail at once.
///
/// In a cluster, each node has connections of its own, and each request goes to the node that owns
/// the hash slot of its names. Redirections are followed within the timeout.
#[derive(Clone)]
pub struct RedisClient(Arc<ClientState>);

struct ClientState {
    options: RedisClientOptions,
    outages: Outages,
    names: Names,
    watchers: Watchers,
    /// Whether the server reports changes.
    is_tracked: Arc<AtomicBool>,
    /// Whether that is for the watches.
    tracks_watches: bool,
    routing: Routing,
    subscriber: Subscriber,
    attempts: Arc<AtomicU64>,
    pushes: Arc<AtomicU64>,
}

/// The parts of a client in addition to its options.
#[derive(Debug, Default)]
pub struct ClientSetup {
    /// The scripts that are loaded on connecting.
    pub scripts: Arc<[RedisScript]>,
    /// Notified of the messages of scripts.
    pub watchers: Watchers,
    /// Reads what a message says beyond a name.
    pub reader: Option<Arc<dyn MessageReader>>,
    /// What the server is to report changes for.
    pub tracking: Tracking,
    /// Told when a server may have lost writes.
    pub losses: Option<Arc<dyn LossObserver>>,
    /// Whether the server's time is read on connecting.
    pub reads_clock: bool,
    /// The number of connections for lookups only.
    pub lookups: u32,
    /// The table of the owners of slots, if the observer reads it.
    pub owners: Option<Arc<SlotOwners>>,
}

/// What the server is to report changes for (client tracking).
#[derive(Debug, Default)]
pub enum Tracking {
    /// For nothing.
    #[default]
    Nothing,
    /// For copies of what was read.
    Copies(Arc<dyn TrackingObserver>),
    /// For watches of the names that scripts have read.
    Watches,
}

impl RedisClient {
    /// A client that connects at its first use, and then loads these scripts. The watchers are
    /// notified of changes of the names that scripts have read.
    pub fn new(
        options: RedisClientOptions,
        scripts: impl IntoIterator<Item = RedisScript>,
        watchers: Watchers,
    ) -> Self {
        let scripts = scripts.into_iter().collect();
        let tracking = Tracking::Watches;
        Self::with(options, ClientSetup { scripts, watchers, tracking, ..ClientSetup::default() })
    }

    /// A client of these parts.
    pub fn with(options: RedisClientOptions, setup: ClientSetup) -> Self {
        let ClientSetup {
            scripts,
            watchers,
            reader,
            tracking,
            losses,
            reads_clock,
            lookups,
            owners,
        } = setup;
        let names = Names::new(options.namespace());
        let tracks_watches = matches!(tracking, Tracking::Watches);
        let tracks = options.is_tracked() && !matches!(tracking, Tracking::Nothing);
        let is_tracked = Arc::new(AtomicBool::new(tracks));
        let (observer, tracked) = match tracking {
            Tracking::Nothing => (None, Watchers::default()),
            Tracking::Copies(observer) => (Some(observer), Watchers::default()),
            Tracking::Watches => (None, watchers.clone()),
        };
        let (attempts, pushes): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
        let handler = PushHandler {
            names: names.clone(),
            watchers: tracked,
            node: 0,
            owners: options
                .is_cluster()
                .then(|| owners.unwrap_or_else(|| Arc::new(SlotOwners::new(true)))),
            observer,
            is_tracked: Arc::clone(&is_tracked),
            pushes: Arc::clone(&pushes),
        };
        let clock = reads_clock.then(Arc::default);
        let connector = connector(&options, scripts, clock, Arc::clone(&attempts));
        let outages = Outages::default();
        let factory = NodeFactory {
            connector,
            handler,
            tracks,
            rules: options.rules(jitter()),
            outages: outages.clone(),
            losses,
            lookups,
        };
        let routing = Routing::new(factory.clone(), &options);
        let subscriber = Subscriber::new(&factory, &routing, watchers.clone(), reader);
        let state = ClientState {
            options,
            outages,
            names,
            watchers,
            is_tracked,
            tracks_watches,
            routing,
            subscriber,
            attempts,
            pushes,
        };
        Self(Arc::new(state))
    }

    /// Runs a request, and reads its reply with `read`.
    ///
    /// # Errors
    /// Those of the server and of the connection to it, and:
    /// - [`Down`](bellwether::StoreErrorKind::Down) if the server is taken to be down; the request was
    ///   not sent.
    /// - [`Malformed`](bellwether::StoreErrorKind::Malformed) if `read` returns `None`.
    /// - [`Unreachable`](bellwether::StoreErrorKind::Unreachable) if a request with
    ///   [`once`](RedisRequest::once) was sent twice and found nothing to do.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; the request may have been executed, or be executed later.
    pub async fn run<T>(
        &self,
        request: &RedisRequest<'_>,
        read: impl FnOnce(RedisValue) -> Option<T>,
    ) -> Result<T, StoreError> {
        debug_assert!(!self.is_cluster() || request.is_of_one_slot(), "{request:?}");
        let deadline = self.deadline();
        request.read(self.0.routing.run(request, deadline).await?, read)
    }

    /// Runs several requests, and reads the reply to each with `read`. On a cluster, those for one node
    /// are sent as one pipeline. Each outcome is reported with the place of its request as soon as
    /// it is known, so no request waits for a node that it does not need.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), for each request.
    ///
    /// # Cancel safety
    /// Dropping it loses the replies that were not reported.
    pub async fn run_all<T>(
        &self,
        requests: &[RedisRequest<'_>],
        read: impl Fn(usize, RedisValue) -> Option<T>,
        mut done: impl FnMut(usize, Result<T, StoreError>),
    ) {
        let done = |place: usize, replied: Result<Replied, _>| {
            let read = |replied| requests[place].read(replied, |reply| read(place, reply));
            done(place, replied.and_then(read));
        };
        self.0.routing.run_all(requests, self.deadline(), done).await;
    }

    /// How many servers are in use: one, or the nodes of a cluster.
    pub fn server_count(&self) -> usize {
        self.0.routing.server_count()
    }

    /// Splits items, each in a slot, into groups that one command can have: all of them for a single
    /// server, and those of one slot for a cluster. For [`run_all`](Self::run_all).
    pub fn split<T>(&self, items: Vec<T>, slot: impl Fn(&T) -> u16) -> Vec<SlotGroup<T>> {
        self.0.routing.split(items, slot)
    }

    fn deadline(&self) -> Instant {
        let deadline = Instant::now() + self.0.options.request_timeout();
        ConnectTime::of_task().map_or(deadline, |time| deadline.max(time.until))
    }

    /// Whether it is a client of a cluster.
    pub fn is_cluster(&self) -> bool {
        self.0.options.is_cluster()
    }

    /// Reads or notes the time of the server that owns a name. In a cluster, each node has a clock
    /// of its own. Meanwhile the slot table is locked, so `then` must not use the client.
    pub fn with_clock<T>(&self, name: &impl InSlot, then: impl FnOnce(&ServerClock) -> T) -> T {
        self.0.routing.with_clock(name, then)
    }

    /// Hints that a key has changed: by the messages of scripts, see [`mark`](Self::mark), or because
    /// the server reports changes of the names that scripts have read. It is silent without both.
    pub fn watch(&self, digest: Digest) -> Watch {
        if self.is_subscribed() || self.0.tracks_watches && self.is_tracked() {
            self.0.watchers.watch(digest)
        } else {
            Watch::interrupted()
        }
    }

    /// Whether the server reports changes (client tracking). Until the first connection, this is
    /// what the options request.
    pub fn is_tracked(&self) -> bool {
        self.0.is_tracked.load(Ordering::Relaxed)
    }

    /// Whether the server, or any node of a cluster that owns slots, is taken to be down, because
    /// [`RedisClientOptions::down_after`] requests in a row have failed. This ends with the next request
    /// that is answered, so it stays true while the client is not used.
    pub fn is_down(&self) -> bool {
        self.0.routing.is_down()
    }

    /// Whether the server that owns a name is taken to be down.
    pub fn is_down_for(&self, name: &impl InSlot) -> bool {
        self.0.routing.is_down_for(name)
    }

    /// The options that it was made with.
    pub fn options(&self) -> &RedisClientOptions {
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

    /// The name `bw:<namespace>:<what>:{<tag>}` that all keys of one hash slot share.
    pub fn shared_name(&self, what: &str, digest: &Digest) -> Vec<u8> {
        self.0.names.shared_name(what, digest)
    }

    /// The name `bw:<namespace>:tag:{<digest>}` of a tag.
    pub fn tag_name(&self, tag: &Digest) -> Vec<u8> {
        self.0.names.tag_name(tag)
    }

    /// The number of attempts to connect.
    pub fn attempts(&self) -> u64 {
        self.0.attempts.load(Ordering::Relaxed)
    }

    /// How often the server was taken to be down.
    pub fn outages(&self) -> u64 {
        self.0.outages.count()
    }

    /// The number of push messages.
    pub fn pushes(&self) -> u64 {
        self.0.pushes.load(Ordering::Relaxed)
    }

    /// Notified when the server answers again after an outage.
    pub fn is_back(&self) -> Arc<Notify> {
        self.0.outages.is_back()
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

/// What connects to the servers of these options.
fn connector(
    options: &RedisClientOptions,
    scripts: Arc<[RedisScript]>,
    clock: Option<Arc<ServerClock>>,
    attempts: Arc<AtomicU64>,
) -> Connector {
    let failovers = Arc::<Failovers>::default();
    Connector {
        dialer: options.dialer().clone(),
        destination: Destination::new(options, &failovers),
        protocol: options.protocol(),
        timeout: options.request_timeout(),
        connect_timeout: options.connect_limit(),
        scripts,
        attempts,
        backoff: ReconnectBackoff::new(options.longest_backoff()),
        failovers,
        record: Arc::default(),
        clock,
        handler: None,
    }
}
