//! What servers were sent, and what came of it.

use bellwether::stats::StoreErrorStats;

/// What one server was sent by a client, and what came of it.
///
/// A server is left out while requests do not go to it: a node that owns no slots, or a server that is
/// not the primary that sentinels name.
/// When it is back, its counters start from zero.
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
