//! The claims of flights whose tasks were dropped, as when their runtime is shut down. Their leases
//! may still hold, so the next flight of the key releases them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::{Digest, Key};
use crate::store::Claim;

/// The claims of one layer in this process.
#[derive(Default)]
pub(crate) struct OrphanedClaims {
    /// Held for a map operation, never across an `.await`.
    claims: Mutex<HashMap<Digest, Vec<OrphanedClaim>>>,
}

struct OrphanedClaim {
    claim: Claim,
    until: Instant,
}

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
        let orphaned = self.claims().remove(&key.digest()).unwrap_or_default();
        let now = Instant::now();
        orphaned.into_iter().filter(|it| it.until > now).map(|it| it.claim).collect()
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<Digest, Vec<OrphanedClaim>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
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
        let Some(claim) = self.claim.take() else { return };
        let now = Instant::now();
        let mut claims = self.orphaned.claims();
        // Before the map grows, so that many that end at once do not search it each.
        if claims.len() == claims.capacity() {
            claims.retain(|_, orphaned| orphaned.iter().any(|it| it.until > now));
        }
        let until = now + self.lease;
        claims.entry(claim.key().digest()).or_default().push(OrphanedClaim { claim, until });
    }
}
