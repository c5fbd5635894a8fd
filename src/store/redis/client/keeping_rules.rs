//! The rules by which a store repeats invalidations.

use std::time::Duration;

/// Which invalidations a store repeats.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct KeepingRules {
    /// How many are kept at most.
    pub(in super::super) most: usize,
    /// From how long before a loss acknowledged ones are repeated.
    pub(in super::super) window: Duration,
    /// How many replicas must have an invalidation, or an entry, when the operation returns.
    pub(in super::super) replicas: Option<ReplicaRules>,
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

/// What a write waits for.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct ReplicaRules {
    pub(in super::super) writes: ReplicatedWrites,
    pub(in super::super) replicas: u32,
    pub(in super::super) within: Duration,
}

impl Default for KeepingRules {
    fn default() -> Self {
        Self { most: 10_000, window: Duration::from_secs(10), replicas: None }
    }
}
