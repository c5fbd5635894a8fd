//! Waits for replicas.

use std::time::Duration;

/// What a write waits for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReplicaRules {
    /// How many replicas must have it.
    pub replicas: u32,
    /// How long that may take.
    pub within: Duration,
}

impl ReplicaRules {
    /// A wait for so many replicas, for so long.
    pub fn new(replicas: u32, within: Duration) -> Self {
        Self { replicas, within }
    }
}
