//! The rules by which a store repeats invalidations.

use std::time::Duration;

/// Which invalidations a store repeats.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct KeepingRules {
    /// How many are kept at most.
    pub(in super::super) most: usize,
    /// From how long before a loss acknowledged ones are repeated.
    pub(in super::super) window: Duration,
    /// How many replicas must have an invalidation when it returns.
    pub(in super::super) replicas: Option<ReplicaRules>,
}

/// What an invalidation waits for.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct ReplicaRules {
    pub(in super::super) replicas: u32,
    pub(in super::super) within: Duration,
}

impl Default for KeepingRules {
    fn default() -> Self {
        Self { most: 10_000, window: Duration::from_secs(10), replicas: None }
    }
}
