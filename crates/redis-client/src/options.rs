//! Options of a Redis client.

use std::sync::Arc;
use std::time::Duration;

use super::address::{Servers, ServersKind};
use super::credentials::{CredentialsProvider, Login};
use super::dial::Dialer;
#[cfg(feature = "tls")]
use super::tls::{RedisTls, TlsConnector};
use super::url::RedisUrl;
use bellwether::ConfigError;
use bellwether::adapter::{FirstError, namespace_of, within};

/// The address of a Redis server, and how to connect to it and send to it. What connects with them fails if
/// one of them is wrong, by the error of the first.
///
/// ```
/// # fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use bellwether_redis_client::RedisClientOptions;
///
/// let options = RedisClientOptions::new("redis://127.0.0.1:6379", "shop")?
///     .timeout(Duration::from_millis(100));
/// # let _ = options;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct RedisClientOptions {
    pub(super) servers: Servers,
    pub(super) dialer: Dialer,
    /// For the sentinels.
    pub(super) sentinel_login: Option<Arc<Login>>,
    namespace: String,
    /// How long a request may take.
    pub(super) timeout: Duration,
    /// How long connecting may take.
    pub(super) connect_timeout: Duration,
    /// Whether the server may be asked for push messages, which only RESP3 has.
    pub(super) is_resp3: bool,
    pub(super) down_after: u32,
    pub(super) probe_every: Duration,
    /// Of these options, and of those that have these as a part.
    #[doc(hidden)]
    pub wrong: FirstError,
}

impl RedisClientOptions {
    /// Options for the address of a server or a cluster, and for a namespace.
    ///
    /// All names on the server begin with `bw:<namespace>:`. Services share entries and locks if they
    /// have the same namespace. It has no default, because two services must not share by accident.
    ///
    /// The address is one of these:
    /// - `redis://[user:password@]host[:port][/database]`, or `valkey://`;
    /// - `redis-cluster://[user:password@]host[:port][,host[:port]...]`, or `valkey-cluster://`, for a
    ///   cluster by one or more of its nodes. The others are discovered;
    /// - `redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/database]` for the
    ///   primary of a service by its sentinels. The credentials of the sentinels follow:
    ///   `?sentinel_user=user&sentinel_password=password`. Give all sentinels, because no others are
    ///   discovered;
    /// - `rediss://`, `rediss-cluster://` or `rediss+sentinel://`, or `valkeys` in place of `rediss`,
    ///   with the same parts, for TLS to all servers with the defaults of `RedisTls`. They need the
    ///   feature `tls`;
    /// - `unix:///path[?db=database&user=user&pass=password]`.
    ///
    /// Special characters in user and password are percent-encoded.
    ///
    /// # Errors
    /// If it is not such an address. The message repeats no part of it, because any part may hold a
    /// password. If the namespace is not 1 to 64 characters of `A-Z a-z 0-9 _ . -`.
    pub fn new(url: &str, namespace: &str) -> Result<Self, ConfigError> {
        let url = RedisUrl::parse(url)?;
        let dialer = Dialer {
            login: url.login.map(Login::new),
            database: url.database,
            #[cfg(feature = "simulated-network")]
            network: None,
            #[cfg(feature = "tls")]
            tls: url.is_encrypted.then(|| Arc::new(TlsConnector::new(RedisTls::default()))),
        };
        Ok(Self {
            servers: url.servers,
            dialer,
            sentinel_login: url.sentinel_login.map(Login::new),
            namespace: namespace_of(namespace)?,
            timeout: Duration::from_millis(250),
            connect_timeout: Duration::from_secs(5),
            is_resp3: true,
            down_after: 5,
            probe_every: Duration::from_millis(250),
            wrong: FirstError::default(),
        })
    }

    /// Connects to the servers of a simulation.
    #[cfg(feature = "simulated-network")]
    #[doc(hidden)]
    pub fn network(mut self, network: super::simulated::SimulatedNetwork) -> Self {
        self.dialer.network = Some(network);
        self
    }

    /// Sets what is trusted and presented by TLS. `connect` fails if the address is not one of TLS,
    /// because then nothing would be encrypted.
    ///
    /// Default: `RedisTls::default()`, which trusts the authorities of the system and presents nothing.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: RedisTls) -> Self {
        let reason = "the address must begin with `rediss://`";
        let encrypts = self.dialer.tls.as_ref().ok_or(ConfigError::Tls { reason }).map(drop);
        let checked = tls.wrong.result().and(encrypts);
        let connector = checked.map(|()| Some(Arc::new(TlsConnector::new(tls))));
        self.wrong.set(&mut self.dialer.tls, connector);
        self
    }

    /// Sets where user and password come from, for those that change or must not be in an address.
    ///
    /// Default: those in the address, or none.
    pub fn credentials(mut self, provider: impl CredentialsProvider) -> Self {
        self.dialer.login = Some(Login::new(provider));
        self
    }

    /// Sets where user and password for the sentinels come from. `connect` fails if the address is
    /// not one of sentinels, because then it would have no effect.
    ///
    /// Default: those in the address, or none. Sentinels have users of their own.
    pub fn sentinel_credentials(mut self, provider: impl CredentialsProvider) -> Self {
        let has_sentinels = matches!(self.servers.kind, ServersKind::Sentinel { .. });
        let reason = "the address must begin with `redis+sentinel://`";
        let login = has_sentinels.then(|| Some(Login::new(provider)));
        let setting = "sentinel credentials";
        let login = login.ok_or(ConfigError::NoEffect { setting, reason });
        self.wrong.set(&mut self.sentinel_login, login);
        self
    }

    /// Sets how long a server may be silent while a request is under way: then it counts as down for this
    /// request. `connect` fails if it is not from 1 ms to 60 s.
    ///
    /// Only silence counts. While bytes arrive, a request waits for its turn, however many are before it; the
    /// [wait](bellwether::Wait) and the deadlines of callers bound that. The bound is eight times the longest
    /// reply of the last seconds, between this timeout and ten times that, because a server that works
    /// through a burst of a fleet is silent to each process for a while (as the retransmission timer of TCP,
    /// RFC 6298). When more than 64 keys are asked for at once, it is ten times this timeout. When half of it has passed, another connection is begun. If the server answers that one
    /// alone, it replaces the silent one. A stall of this process is counted in the statistics, and not held
    /// against the server.
    ///
    /// Default: 250 ms. A healthy Redis answers within one millisecond, and a caller can bear a
    /// quarter of a second once.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let timeout = within("timeout of the store", timeout, SHORTEST, LONGEST);
        self.wrong.set(&mut self.timeout, timeout);
        self
    }

    /// Sets how long connecting may take: the connection itself, TLS, the login, the scripts, and the
    /// checks of `connect`.
    ///
    /// A request waits for a connection until the server is silent for the [`timeout`](Self::timeout). The
    /// attempt to connect goes on, and a later request uses the connection. Meanwhile another attempt is made
    /// once a second, because packets may be lost. `connect` fails if it is not from 1 ms to 60 s.
    ///
    /// Default: 5 s. On a busy machine, a handshake takes much longer than a command.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        let timeout = within("time for connecting of the store", timeout, SHORTEST, LONGEST);
        self.wrong.set(&mut self.connect_timeout, timeout);
        self
    }

    /// Sets after how many failures in a row the server is taken to be down (circuit breaker). Then
    /// operations fail at once with [`StoreErrorKind::Down`](bellwether::store::StoreErrorKind::Down), without
    /// a request, except for [probes](Self::probe_every).
    ///
    /// A failure is silence for the [`timeout`](Self::timeout), no connection, or the reply of a server that is not ready
    /// (`LOADING`, `BUSY`, `MASTERDOWN`...). A refusal is no failure: a full server still serves
    /// hits. `connect` fails if it is not from 1 to 1,000,000.
    ///
    /// Default: 5. One lost connection fails a few operations, a dead server fails all.
    pub fn down_after(mut self, failures: u32) -> Self {
        let failures = within("failures until the store is down", failures, 1, 1_000_000);
        self.wrong.set(&mut self.down_after, failures);
        self
    }

    /// Sets how often one operation is sent as a probe to a server that is taken to be down. If the
    /// server answers, all operations are sent again.
    ///
    /// Every store has its own interval, up to a fifth shorter or longer than this, so that the
    /// processes of a fleet do not probe in step. The pauses between attempts to connect are at most
    /// half of it. `connect` fails if it is not from 100 ms to 60 s.
    ///
    /// Default: 250 ms, so that a server that is back is in use within a second. Even for a fleet
    /// of hundreds of processes, one command per interval and process is a negligible load.
    pub fn probe_every(mut self, interval: Duration) -> Self {
        let least = Duration::from_millis(100);
        let interval = within("probe interval of the store", interval, least, LONGEST);
        self.wrong.set(&mut self.probe_every, interval);
        self
    }

    /// Uses RESP2, for servers and proxies that refuse RESP3. Then the server reports no changes: a near
    /// cache keeps no copies, and the waiters for a lock are told by messages, as those of a store always
    /// are. Those of a `Redlock` poll then.
    ///
    /// A server that refuses RESP3 or `CLIENT TRACKING` is detected without this option.
    pub fn resp2(self) -> Self {
        Self { is_resp3: false, ..self }
    }

    /// The address of the server, or those of the seeds of a cluster, or those of the sentinels with
    /// the name of the service, without users and passwords.
    pub fn address(&self) -> String {
        self.servers.to_string()
    }

    /// Whether the address is that of a cluster.
    pub fn is_cluster(&self) -> bool {
        self.servers.kind == ServersKind::Cluster
    }

    /// What all names on the server begin with, after `bw:`.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// How long a request may take.
    pub fn request_timeout(&self) -> Duration {
        self.timeout
    }
}

// Shows the address of the server, but neither user nor password.
bellwether::debug_fields! { RedisClientOptions => |it| address = it.address(), namespace = it.namespace }

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(60);
