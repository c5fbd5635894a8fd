//! Options of a store.

use std::sync::Arc;
use std::time::Duration;

use super::RedisStore;
use super::outbox::ledger::KeepingRules;
use super::store::{OUTAGE_TTL, StoreCore};
use bellwether::adapter::within;
use bellwether::{ConfigError, StoreError, delegate_options};
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
///     .timeout(Duration::from_millis(100))
///     .connect()
///     .await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
///
/// The options of a pool of your own (feature `bb8`) are the same:
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use bb8_redis::bb8::Pool;
/// use bb8_redis::redis::AsyncCommands;
/// use bellwether_redis::{RedisClientOptions, RedisOptions, RedisPoolManager};
///
/// let redis = RedisClientOptions::new("redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/shop", "shop")?;
/// let store = RedisOptions::from(redis.clone()).connect().await?;
/// let pool = Pool::builder().max_size(4).build(RedisPoolManager::new(redis)?).await?;
///
/// let mut connection = pool.get().await?;
/// let () = connection.set("visits", 1).await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
///
/// The options of the client are those of [`RedisClientOptions`], with the same names. What is wrong with one
/// of them is said by [`connect`](Self::connect).
#[derive(Clone, Debug)]
#[must_use]
pub struct RedisOptions {
    pub(super) client: RedisClientOptions,
    pub(super) name: Option<Arc<str>>,
    /// The bytes of the near tier.
    pub(super) near: Option<usize>,
    pub(super) near_ttl: Duration,
    pub(super) keeping: KeepingRules,
    pub(super) outage_ttl: Duration,
}

/// Those of a store without a near tier.
impl From<RedisClientOptions> for RedisOptions {
    fn from(client: RedisClientOptions) -> Self {
        Self {
            client,
            name: None,
            near: None,
            near_ttl: Duration::from_secs(30),
            keeping: KeepingRules::default(),
            outage_ttl: OUTAGE_TTL,
        }
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

    delegate_options! { client: "RedisClientOptions";
        #[cfg(feature = "tls")]
        tls(tls: RedisTls);
        credentials(provider: impl CredentialsProvider);
        sentinel_credentials(provider: impl CredentialsProvider);
        timeout(timeout: Duration);
        connect_timeout(timeout: Duration);
        down_after(failures: u32);
        probe_every(interval: Duration);
        resp2();
    }

    /// Names the store in metrics and log messages.
    ///
    /// Default: its namespace.
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Keeps copies of the entries that this process reads (client-side caching), in at most this
    /// many bytes. A hit on a copy sends no command. The server reports when an entry changes, and
    /// its copy is dropped.
    ///
    /// An invalidation by this process holds here when it has returned. One by another process
    /// holds here when the push message has arrived, usually within a millisecond. If the
    /// connection for these messages breaks, no copy is fresh any more. If the server reports no
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
    /// decodes nothing), or the length of that before it was compressed, and 512 bytes for the tables. Entries
    /// that are read often stay. All lookups use the one connection with client tracking.
    ///
    /// In a cluster, each node reports the changes of its slots. The copies of a slot are dropped
    /// when it gets another owner, and when the connection to its owner breaks. Each node that owns
    /// slots is sent a script instead of the `PING`, because a node that was cut off from the others
    /// still answers that. [`connect`](Self::connect) fails if it is not from 64 KiB to 1 TiB.
    ///
    /// Default: off. A copy is a hundred times faster than a lookup. It takes memory on both sides,
    /// and it can lag behind.
    pub fn near(mut self, bytes: usize) -> Self {
        let bytes = within("bytes of the near tier", bytes, LEAST_NEAR, MOST_NEAR).map(Some);
        self.client.wrong.set(&mut self.near, bytes);
        self
    }

    /// Sets for how long a copy in the [`near`](Self::near) tier is served before the next lookup,
    /// even if the server has reported no change. A copy never outlives its entry.
    /// [`connect`](Self::connect) fails if it is not from 1 ms to one hour, or if there is no near
    /// tier yet: then it would have no effect.
    ///
    /// Default: 30 s. It bounds the age of an answer if all else fails. One lookup per key in half
    /// a minute costs very little.
    pub fn near_ttl(mut self, ttl: Duration) -> Self {
        let [least, most] = [Duration::from_millis(1), Duration::from_secs(60 * 60)];
        let setting = "ttl of the near tier";
        let no_effect = ConfigError::NoEffect { setting, reason: "set `near` first" };
        let ttl = within(setting, ttl, least, most).and_then(|ttl| match self.near {
            Some(_) => Ok(ttl),
            None => Err(no_effect),
        });
        self.client.wrong.set(&mut self.near_ttl, ttl);
        self
    }

    /// Sets how many failed invalidations are kept in this process and repeated until they succeed:
    /// one per key or tag, hard or soft. Zero keeps none: then the caller has to repeat an
    /// invalidation that fails.
    ///
    /// The error says [whether it is pending](bellwether::StoreError::is_pending). While it is, this process
    /// serves nothing of its key or tag: an operation that reads it repeats the invalidation first,
    /// or fails as that does. Commits of loads that began before do the same.
    ///
    /// One more than these is dropped, and its error says so. Then all that was stored before counts
    /// as absent in this process, and other processes are not told.
    ///
    /// With zero, nothing is re-asserted either, and after an error this process may serve what the
    /// invalidation should have removed. [`connect`](Self::connect) fails if it is more than
    /// 1,000,000.
    ///
    /// Default: 10,000. Each takes about 150 bytes while it is kept.
    pub fn pending_invalidations(mut self, most: usize) -> Self {
        let most = within("pending invalidations of the store", most, 0, 1_000_000);
        self.client.wrong.set(&mut self.keeping.most, most);
        self
    }

    /// Sets from how long before the loss of a server the invalidations by this process are
    /// re-asserted: repeated before their keys and tags are read from the server that is used next, and
    /// all of them by a task that starts with the next request to it, of whichever key.
    ///
    /// A failover loses what the promoted replica did not have, and a restart what was not written
    /// to the disk. So invalidations are remembered after they were acknowledged: as many as are
    /// [pending](Self::pending_invalidations), for ten minutes at most. They are re-asserted when a request
    /// gets no reply in time, when a connection breaks, when sentinels name another primary, and when a
    /// slot of a cluster gets another owner.
    ///
    /// To re-assert an invalidation costs a load of its key, and of each entry with its tag. The variants of
    /// an HTTP response share a tag: to re-assert its expiry makes them stale again, also those that were
    /// loaded since, each for its own stale windows.
    /// [`connect`](Self::connect) fails if it is more than ten minutes.
    ///
    /// Default: 10 s, many times what a replica usually lags behind. Zero re-asserts none.
    pub fn reassert_window(mut self, window: Duration) -> Self {
        let longest = Duration::from_secs(600);
        let setting = "window of the store for invalidations to re-assert";
        let window = within(setting, window, Duration::ZERO, longest);
        self.client.wrong.set(&mut self.keeping.window, window);
        self
    }

    /// Sets for how long this process uses what it loads while the server does not answer, or refuses leases
    /// because it is full: as fresh for at most this long, and then as stale for the stale lifetimes of the
    /// entry. So it loads a key once in this time, and not once per request. It keeps at most 64 MiB, and
    /// frees them when the server is back.
    ///
    /// An invalidation by this process holds in it at once. One by another process is not known before the
    /// server is back: this is how old an answer may be then. Zero keeps nothing: each miss is a load,
    /// lookups and requests for a lease give the server's error, and near copies are no stale answers.
    /// [`connect`](Self::connect) fails if it is more than one hour.
    ///
    /// Default: 1 s. So an invalidated answer is served no longer than a near copy may be, and the source
    /// gets one load per second of a key from each process.
    pub fn outage_ttl(mut self, ttl: Duration) -> Self {
        let most = Duration::from_secs(60 * 60);
        let ttl = within("ttl of the store for outages", ttl, Duration::ZERO, most);
        self.client.wrong.set(&mut self.outage_ttl, ttl);
        self
    }

    /// Connects, and checks that the server answers and permits what the scripts need.
    ///
    /// The connections and tasks of a store belong to the runtimes that first need them. Connect in one that
    /// goes on to run: one that stays and is not driven any more receives no messages, and repeats no
    /// invalidations.
    ///
    /// # Errors
    /// If an option is wrong, if the server or a node of the cluster cannot be reached or is not ready,
    /// if slots of the cluster have no owner, if a single server is a replica or a node of a cluster, or
    /// if the user lacks a permission. The error names that.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        self.connect_lazily()?.checked().await
    }

    /// A store that connects at its first use, for services that start before their Redis.
    ///
    /// # Errors
    /// If an option is wrong: the first one.
    pub fn connect_lazily(self) -> Result<RedisStore, ConfigError> {
        let Self { client, name, near, near_ttl, keeping, outage_ttl } = self;
        let name = name.unwrap_or_else(|| client.namespace().into());
        let near = near.map(|bytes| (bytes, near_ttl));
        Ok(RedisStore::of(StoreCore::new(client, name, near, keeping)?, outage_ttl))
    }

    /// The address of the server, or those of the seeds of a cluster, or those of the sentinels with
    /// the name of the service, without users and passwords.
    pub fn address(&self) -> String {
        self.client.address()
    }
}

const LEAST_NEAR: usize = 64 * 1024;
const MOST_NEAR: usize = 1 << if usize::BITS > 40 { 40 } else { 31 };
