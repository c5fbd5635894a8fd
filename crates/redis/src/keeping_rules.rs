//! The rules by which a store repeats invalidations.

use std::time::Duration;

use bellwether_redis_client::ReplicaRules;

/// Which invalidations a store repeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepingRules {
    /// How many are kept at most.
    pub(super) most: usize,
    /// From how long before a loss acknowledged ones are repeated.
    pub(super) window: Duration,
    /// How many replicas must have an invalidation, or an entry, when the operation returns.
    pub(super) replicas: Option<(ReplicatedWrites, ReplicaRules)>,
}

/// Which writes wait until [replicas have them](super::RedisOptions::replicated).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplicatedWrites {
    /// Invalidations and expirations, of keys and of tags.
    Invalidations,
    /// These, and entries: those of loads and those that `put` stores.
    InvalidationsAndEntries,
}

impl Default for KeepingRules {
    fn default() -> Self {
        Self { most: 10_000, window: Duration::from_secs(10), replicas: None }
    }
}
