//! Options of a store.

mod keeping;
mod near;

use std::sync::Arc;
use std::time::Duration;

use bellwether::ConfigError;
#[cfg(feature = "tls")]
use bellwether_redis_client::RedisTls;
use bellwether_redis_client::{CredentialsProvider, RedisClientOptions};

use super::keeping_rules::KeepingRules;

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
    name: Option<Arc<str>>,
    near: Option<usize>,
    near_ttl: Duration,
    pub(super) keeping: KeepingRules,
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

    /// The address of the server, or those of the seeds of a cluster, or those of the sentinels with
    /// the name of the service, without users and passwords.
    pub fn address(&self) -> String {
        self.client.address()
    }

    /// Whether the address is that of a cluster.
    pub fn is_cluster(&self) -> bool {
        self.client.is_cluster()
    }

    /// The name of the store in log messages.
    pub(super) fn display_name(&self) -> Arc<str> {
        self.name.clone().unwrap_or_else(|| self.client.namespace().into())
    }

    /// The size of the near tier in bytes, and the maximum time for which a copy is served.
    pub(super) fn near_tier(&self) -> Option<(usize, Duration)> {
        Some((self.near?, self.near_ttl))
    }
}
