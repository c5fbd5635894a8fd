//! The rules by which a store repeats invalidations.

use std::time::Duration;

/// Which invalidations a store repeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepingRules {
    /// How many are kept at most.
    pub(super) most: usize,
    /// From how long before a loss acknowledged ones are repeated.
    pub(super) window: Duration,
}

impl Default for KeepingRules {
    fn default() -> Self {
        Self { most: 10_000, window: Duration::from_secs(10) }
    }
}
