//! The claims of flights whose tasks were dropped, as when their runtime is shut down. Their leases
//! may still hold, so the next flight of the key releases them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::Key;
use crate::locked::locked;
use crate::store::Claim;

/// The claims of one layer in this process, each until its lease has lapsed. Held for an operation on
/// the list, never across an `.await`.
#[derive(Default)]
pub(crate) struct OrphanedClaims(Mutex<Vec<(Claim, Instant)>>);

/// The claim of a flight. Dropping it while armed leaves the claim to the next flight of the key.
pub(crate) struct OrphanGuard {
    orphaned: Arc<OrphanedClaims>,
    claim: Option<Claim>,
    lease: Duration,
}

impl OrphanedClaims {
    pub(crate) fn guard(self: &Arc<Self>, claim: &Claim, lease: Duration) -> OrphanGuard {
        OrphanGuard { orphaned: Arc::clone(self), claim: Some(claim.clone()), lease }
    }

    /// The claims of earlier flights of this key, to be released.
    pub(crate) fn take(&self, key: &Key) -> Vec<Claim> {
        let now = Instant::now();
        let mut claims = locked(&self.0);
        claims.retain(|(_, until)| *until > now);
        let of_key = claims.extract_if(.., |(claim, _)| claim.key() == key);
        of_key.map(|(claim, _)| claim).collect()
    }
}

impl OrphanGuard {
    /// The flight has ended by itself.
    pub(crate) fn disarm(&mut self) {
        self.claim = None;
    }
}

impl Drop for OrphanGuard {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            locked(&self.orphaned.0).push((claim, Instant::now() + self.lease));
        }
    }
}
