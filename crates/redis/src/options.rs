//! Options of a store.

use std::sync::Arc;
use std::time::Duration;

use super::RedisStore;
use super::outbox::ledger::KeepingRules;
use super::store::StoreParts;
use bellwether::adapter::within;
use bellwether::{ConfigError, StoreError};
#[cfg(feature = "tls")]
use bellwether_redis_client::RedisTls;
use bellwether_redis_client::{CredentialsProvider, RedisClientOptions};

/// The address of a Redis server, and the options of the store in it.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use bellwether_redis::RedisOptions;
///
/// let store = RedisOptions::new("redis://127.0.0.1:6379", "shop")?
///     .timeout(Duration::from_millis(100))?
///     .connect()
///     .await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
///
/// The options of the client are those of [`RedisClientOptions`], with the same names.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    pub(super) client: RedisClientOptions,
    pub(super) name: Option<Arc<str>>,
    /// The bytes of the near tier.
    pub(super) near: Option<usize>,
    pub(super) near_ttl: Duration,
    pub(super) keeping: KeepingRules,
}

/// Those of a store without a near tier.
impl From<RedisClientOptions> for RedisOptions {
    fn from(client: RedisClientOptions) -> Self {
        let keeping = KeepingRules::default();
        Self { client, name: None, near: None, near_ttl: Duration::from_secs(30), keeping }
    }
}

impl RedisOptions {
    /// Options for an address and a namespace: see [`RedisClientOptions::new`].
    ///
    /// # Errors
    /// If one of them is invalid.
    pub fn new(url: &str, namespace: &str) -> Result<Self, ConfigError> {
        RedisClientOptions::new(url, namespace).map(Self::from)
    }

    /// Sets what is trusted and presented by TLS: see [`RedisClientOptions::tls`].
    ///
    /// # Errors
    /// If the address is not one of TLS.
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: RedisTls) -> Result<Self, ConfigError> {
        Ok(Self { client: self.client.tls(tls)?, ..self })
    }

    /// Sets where user and password come from: see [`RedisClientOptions::credentials`].
    #[must_use]
    pub fn credentials(self, provider: impl CredentialsProvider) -> Self {
        Self { client: self.client.credentials(provider), ..self }
    }

    /// Sets where user and password for the sentinels come from: see
    /// [`RedisClientOptions::sentinel_credentials`].
    ///
    /// # Errors
    /// If the address is not one of sentinels.
    pub fn sentinel_credentials(
        self,
        provider: impl CredentialsProvider,
    ) -> Result<Self, ConfigError> {
        Ok(Self { client: self.client.sentinel_credentials(provider)?, ..self })
    }

    /// Sets how long one request may take, 250 ms by default: see [`RedisClientOptions::timeout`].
    ///
    /// # Errors
    /// If it is not from 1 ms to 60 s.
    pub fn timeout(self, timeout: Duration) -> Result<Self, ConfigError> {
        Ok(Self { client: self.client.timeout(timeout)?, ..self })
    }

    /// Sets how long connecting may take, 5 s by default: see
    /// [`RedisClientOptions::connect_timeout`].
    ///
    /// # Errors
    /// If it is not from 1 ms to 60 s.
    pub fn connect_timeout(self, timeout: Duration) -> Result<Self, ConfigError> {
        Ok(Self { client: self.client.connect_timeout(timeout)?, ..self })
    }

    /// Sets after how many failures in a row the server is taken to be down, 5 by default: see
    /// [`RedisClientOptions::down_after`].
    ///
    /// # Errors
    /// If it is not from 1 to 1,000,000.
    pub fn down_after(self, failures: u32) -> Result<Self, ConfigError> {
        Ok(Self { client: self.client.down_after(failures)?, ..self })
    }

    /// Sets how often a server that is taken to be down is sent a probe, 250 ms by default: see
    /// [`RedisClientOptions::probe_every`].
    ///
    /// # Errors
    /// If it is not from 100 ms to 60 s.
    pub fn probe_every(self, interval: Duration) -> Result<Self, ConfigError> {
        Ok(Self { client: self.client.probe_every(interval)?, ..self })
    }

    /// Uses RESP2, for servers and proxies that refuse RESP3: see [`RedisClientOptions::resp2`].
    #[must_use]
    pub fn resp2(self) -> Self {
        Self { client: self.client.resp2(), ..self }
    }

    /// Sets the number of connections to each server, 1 by default: see
    /// [`RedisClientOptions::connections`].
    ///
    /// # Errors
    /// If it is not from 1 to 64.
    pub fn connections(self, connections: u32) -> Result<Self, ConfigError> {
        Ok(Self { client: self.client.connections(connections)?, ..self })
    }

    /// Names the store in metrics and log messages.
    ///
    /// Default: its namespace.
    #[must_use]
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Keeps copies of the entries that this process reads (client-side caching), in at most this
    /// many bytes. A hit on a copy sends no command. The server reports when an entry changes, and
    /// its copy is dropped.
    ///
    /// An invalidation by this process holds here when it has returned. One by another process
    /// holds here when the push message has arrived, usually within a millisecond. If the
    /// connection for these messages breaks, all copies are dropped. If the server reports no
    /// changes ([`resp2`](Self::resp2)), nothing is copied.
    ///
    /// A connection can die without a sign. So a copy is served only if the connection has answered
    /// a request that was sent within one second plus the [`timeout`](Self::timeout), 1.25 s by
    /// default. Otherwise the caller does a lookup. So no copy is served for longer than that after
    /// its invalidation has returned. This also holds for a copy that was not read for hours, and
    /// for a process that was stopped.
    ///
    /// While copies are read, the server is sent a `PING` every half second. An idle process sends
    /// nothing, and its first read costs a lookup. Time is that of the system's monotonic clock. On
    /// Linux and macOS that clock stands still while the machine is suspended, so the bound counts
    /// time awake.
    ///
    /// A copy counts its key, its encoded value, as much again for its decoded value (so that a hit
    /// decodes nothing), and 512 bytes for the tables. Entries that are read often stay. All
    /// lookups use the one connection with client tracking.
    ///
    /// In a cluster, each node reports the changes of its slots. The copies of a slot are dropped
    /// when it gets another owner, and when the connection to its owner breaks. Each node that owns
    /// slots is sent a script instead of the `PING`, because a node that was cut off from the others
    /// still answers that.
    ///
    /// Default: off. A copy is a hundred times faster than a lookup. It takes memory on both sides,
    /// and it can lag behind.
    ///
    /// # Errors
    /// If it is not from 64 KiB to 1 TiB.
    pub fn near(mut self, bytes: usize) -> Result<Self, ConfigError> {
        self.near = Some(within("bytes of the near tier", bytes, LEAST_NEAR, MOST_NEAR)?);
        Ok(self)
    }

    /// Sets for how long a copy in the [`near`](Self::near) tier is served before the next lookup,
    /// even if the server has reported no change. A copy never outlives its entry.
    ///
    /// Default: 30 s. It bounds the age of an answer if all else fails. One lookup per key in half
    /// a minute costs very little.
    ///
    /// # Errors
    /// If it is not from 1 ms to one hour, or if there is no near tier yet: then it would have no
    /// effect.
    pub fn near_ttl(mut self, ttl: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_millis(1), Duration::from_secs(60 * 60)];
        let setting = "ttl of the near tier";
        self.near_ttl = within(setting, ttl, least, most)?;
        if self.near.is_none() {
            return Err(ConfigError::NoEffect { setting, reason: "set `near` first" });
        }
        Ok(self)
    }

    /// Sets how many failed invalidations are kept in this process and repeated until they succeed:
    /// one per key or tag, hard or soft. Zero keeps none: then the caller has to repeat an
    /// invalidation that fails.
    ///
    /// The error says [whether it is kept](bellwether::StoreError::is_kept). While it is, this process
    /// serves nothing of its key or tag: an operation that reads it repeats the invalidation first,
    /// or fails as that does. Commits of loads that began before do the same.
    ///
    /// One more than these is dropped, and its error says so. Then all that was stored before counts
    /// as absent in this process, and other processes are not told.
    ///
    /// With zero, nothing is re-asserted either, and after an error this process may serve what the
    /// invalidation should have removed.
    ///
    /// Default: 10,000. Each takes about 150 bytes while it is kept.
    ///
    /// # Errors
    /// If it is more than 1,000,000.
    pub fn kept_invalidations(mut self, most: usize) -> Result<Self, ConfigError> {
        self.keeping.most = within("kept invalidations of the store", most, 0, MOST_KEPT)?;
        Ok(self)
    }

    /// Sets from how long before the loss of a server the invalidations by this process are
    /// re-asserted: repeated before their keys and tags are read from the server that is used next, and
    /// all of them by a task that starts with the next request to it, of whichever key.
    ///
    /// A failover loses what the promoted replica did not have, and a restart what was not written
    /// to the disk. So invalidations are remembered after they were acknowledged: as many as are
    /// [kept](Self::kept_invalidations), for ten minutes at most. They are re-asserted when a request
    /// gets no reply in time, when a connection breaks, when sentinels name another primary, and when a
    /// slot of a cluster gets another owner.
    ///
    /// To re-assert an invalidation costs a load of its key, and of each entry with its tag. To re-assert
    /// the expiry of an HTTP response with variants removes the variants, also those that were loaded
    /// since. That costs a load for each, and their stale windows are lost.
    ///
    /// Default: 10 s, many times what a replica usually lags behind. Zero re-asserts none.
    ///
    /// # Errors
    /// If it is more than ten minutes.
    pub fn reassert_window(mut self, window: Duration) -> Result<Self, ConfigError> {
        let longest = Duration::from_secs(600);
        let setting = "window of the store for invalidations to re-assert";
        self.keeping.window = within(setting, window, Duration::ZERO, longest)?;
        Ok(self)
    }

    /// Connects, and checks that the server answers and permits what the scripts need.
    ///
    /// # Errors
    /// If the server or a node of the cluster cannot be reached or is not ready, if slots of the
    /// cluster have no owner, if a single server is a replica or a node of a cluster, or if the user
    /// lacks a permission. The error names that.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        self.connect_lazily().checked().await
    }

    /// A store that connects at its first use, for services that start before their Redis.
    pub fn connect_lazily(self) -> RedisStore {
        let Self { client, name, near, near_ttl, keeping } = self;
        let name = name.unwrap_or_else(|| client.namespace().into());
        let near = near.map(|bytes| (bytes, near_ttl));
        RedisStore(Arc::new(StoreParts::new(client, name, near, keeping)))
    }

    /// The address of the server, or those of the seeds of a cluster, or those of the sentinels with
    /// the name of the service, without users and passwords.
    pub fn address(&self) -> String {
        self.client.address()
    }

    /// Whether the address is that of a cluster.
    pub fn is_cluster(&self) -> bool {
        self.client.is_cluster()
    }
}

const LEAST_NEAR: usize = 64 * 1024;
const MOST_NEAR: usize = 1 << if usize::BITS > 40 { 40 } else { 31 };

const MOST_KEPT: usize = 1_000_000;
