//! The statistics of a `RedisStore`.

use crate::stats::{
    NearStats, NodeFigures, OperationStats, OperationTimeStats, ReplayStats, StoreErrorStats,
};

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

/// What one server was sent by a [`RedisStore`](super::RedisStore), and what came of it.
///
/// The other figures of [`RedisStats`] are about the whole store, whose operations are one or more
/// requests each. A server is left out while requests do not go to it: a node that owns no slots and
/// was not asked since the slot table was last refreshed, or a server that is not the primary that
/// sentinels name. When it is back, its counters start from zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisNodeStats {
    /// The address, without user and password.
    pub address: String,
    /// Commands and scripts that were sent to it, each part of a pipeline for itself.
    pub requests: u64,
    /// Requests that it has sent to another node of the cluster (`MOVED`, `ASK`).
    pub redirections: u64,
    /// Requests that have failed there, by the kind of the error. Another node or a later attempt may
    /// have answered them.
    pub errors: StoreErrorStats,
    /// Attempts to connect, successful or not.
    pub connects: u64,
    /// How often its circuit breaker has opened.
    pub outages: u64,
    /// Whether its circuit breaker is open.
    pub is_down: bool,
}

impl RedisNodeStats {
    pub(super) fn new(address: String, figures: &NodeFigures, is_down: bool) -> Self {
        Self {
            address,
            requests: figures.requests(),
            redirections: figures.redirections(),
            errors: figures.errors(),
            connects: figures.connects(),
            outages: figures.outages(),
            is_down,
        }
    }
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
