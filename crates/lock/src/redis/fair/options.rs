//! The options of a `FairLock`.

use std::time::Duration;

use bellwether::ConfigError;
use bellwether::adapter::duration_within;
use bellwether_redis_client::RedisClientOptions;

/// The server of a [`FairLock`](crate::FairLock), and the options of its queue.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use bellwether_lock::{FairLock, FairLockOptions};
///
/// let options = FairLockOptions::new("redis://127.0.0.1:6379", "shop")?.silence(Duration::from_secs(2))?;
/// let lock = FairLock::connect(options).await?;
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FairLockOptions {
    pub(super) server: RedisClientOptions,
    pub(super) silence: Duration,
}

impl FairLockOptions {
    /// Options for an address and a namespace, as [`RedisClientOptions::new`] takes them.
    ///
    /// # Errors
    /// As there.
    pub fn new(url: &str, namespace: &str) -> Result<Self, ConfigError> {
        Ok(RedisClientOptions::new(url, namespace)?.into())
    }

    /// Sets after how long a silent waiter counts as dead, and loses its place.
    ///
    /// Default: 1 s. [`Locks`](crate::Locks) asks four times a second while it waits with a time
    /// limit, so a live waiter loses its place only if it misses three requests. When the waiters
    /// at the head of the queue have died, however many, a free lock is idle for this time and a
    /// quarter of a second at most. A caller that makes a number of tries, with a longer interval,
    /// has no place between them.
    ///
    /// # Errors
    /// If it is not from 10 ms to 10 minutes.
    pub fn silence(self, silence: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_millis(10), Duration::from_secs(600)];
        let silence = duration_within("silence of a waiter", silence, least, most)?;
        Ok(Self { silence, ..self })
    }
}

impl From<RedisClientOptions> for FairLockOptions {
    fn from(server: RedisClientOptions) -> Self {
        Self { server, silence: Duration::from_secs(1) }
    }
}
