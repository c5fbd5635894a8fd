//! The options of the near tier.

use std::time::Duration;

use bellwether::ConfigError;
use bellwether::adapter::within;

use super::RedisOptions;

impl RedisOptions {
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
    pub fn near(self, bytes: usize) -> Result<Self, ConfigError> {
        let bytes = within("bytes of the near tier", bytes, LEAST_NEAR, MOST_NEAR)?;
        Ok(Self { near: Some(bytes), ..self })
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
    pub fn near_ttl(self, ttl: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_millis(1), Duration::from_secs(60 * 60)];
        let setting = "ttl of the near tier";
        let near_ttl = within(setting, ttl, least, most)?;
        if self.near.is_none() {
            return Err(ConfigError::NoEffect { setting, reason: "set `near` first" });
        }
        Ok(Self { near_ttl, ..self })
    }
}

const LEAST_NEAR: usize = 64 * 1024;
const MOST_NEAR: usize = 1 << if usize::BITS > 40 { 40 } else { 31 };
