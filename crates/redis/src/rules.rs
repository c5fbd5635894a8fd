//! The rules of a store: which copies and which invalidations it keeps.

use std::sync::Arc;
use std::time::Duration;

/// What a store is told in addition to what its client is.
#[derive(Clone, Debug)]
pub(super) struct StoreRules {
    /// Its name in log messages.
    pub(super) name: Option<Arc<str>>,
    /// The bytes of the near tier.
    pub(super) near: Option<usize>,
    pub(super) near_ttl: Duration,
    pub(super) keeping: KeepingRules,
}

/// Which invalidations a store repeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepingRules {
    /// How many are kept at most.
    pub(super) most: usize,
    /// From how long before a loss acknowledged ones are repeated.
    pub(super) window: Duration,
}

impl Default for StoreRules {
    fn default() -> Self {
        let keeping = KeepingRules { most: 10_000, window: Duration::from_secs(10) };
        Self { name: None, near: None, near_ttl: Duration::from_secs(30), keeping }
    }
}
