//! The statistics of a `RedisStore`.

use std::time::Duration;

use bellwether::stats::{OperationStats, OperationTimeStats, StoreErrorStats};
use bellwether_redis_client::RedisNodeStats;

/// The state of a [`RedisStore`](super::RedisStore), and what it has done since it was made.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Attempts to connect, successful or not.
    pub connects: u64,
    /// How often the server was taken to be down.
    pub outages: u64,
    /// Push messages of the server about changes, and disconnections; and messages that scripts
    /// published to this process.
    pub pushes: u64,
    /// Entries that could not be read and counted as misses: damaged, of a newer version of this
    /// crate, of another key, or of a foreign type.
    pub unreadable: u64,
    /// Operations that have ended, successful or not.
    pub operations: OperationStats,
    /// How long they took.
    pub operation_times: OperationTimeStats,
    /// Those of them that have failed, by the kind of the error. Each failed request for a layer is
    /// in one of them; without the store, layers load for themselves.
    pub errors: StoreErrorStats,
    /// Whether the circuit breaker is open: see [`RedisStore::is_down`](super::RedisStore::is_down).
    pub is_down: bool,
    /// Invalidations that are repeated.
    pub replay: ReplayStats,
    /// How waiters learn that a lease has ended.
    pub wake_ups: RedisWakeUps,
    /// The near tier, if the store has one.
    pub near: Option<NearStats>,
    /// The servers, in the order of their addresses: the one of a fixed address, the nodes of a
    /// cluster that are asked, or the primary that sentinels name.
    pub nodes: Vec<RedisNodeStats>,
}

/// The state of the near tier, which keeps copies of entries in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearStats {
    /// Lookups that a copy answered.
    pub hits: u64,
    /// How many copies are kept, valid or not.
    pub entries: u64,
    /// How many bytes they take.
    pub bytes: u64,
    /// Copies that were removed to make room for others.
    pub evictions: u64,
    /// For how long changes were not reported because the connection was broken, so that no copy
    /// was served: from the first connection on, up to now.
    pub disconnected: Duration,
}

/// Invalidations by this process that a store repeats, because they have failed or because a server
/// may have lost them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayStats {
    /// How many are to be repeated now, at most one per key or tag. While there are any, other
    /// processes may still read what was invalidated.
    pub pending: u64,
    /// Invalidations that have failed and were kept.
    pub kept: u64,
    /// Kept or re-asserted invalidations that the server has executed since.
    pub replayed: u64,
    /// Invalidations that were not kept, because there were too many. In this process, all entries
    /// from before count as none; other processes may still read them.
    pub dropped: u64,
    /// Acknowledged invalidations that were repeated, because the server may have lost them.
    pub reasserted: u64,
}

/// How waiters learn that the lease of another process has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisWakeUps {
    /// The server reports changes (RESP3 client tracking). Until the first connection, this is what
    /// the options request.
    Tracking,
    /// The script that ends the lease publishes a message, because the server refuses tracking or
    /// the options do not request it.
    Messages,
    /// They read again after pauses of up to 250 ms, because the server refuses messages, too, or
    /// the subscription is not open.
    #[default]
    Polling,
}

impl RedisWakeUps {
    /// Each way with its name, and whether it is this one.
    pub fn by_name(self) -> impl Iterator<Item = (&'static str, bool)> {
        let ways = [
            ("tracking", Self::Tracking),
            ("messages", Self::Messages),
            ("polling", Self::Polling),
        ];
        ways.into_iter().map(move |(name, way)| (name, way == self))
    }
}
