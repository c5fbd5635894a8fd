//! Audits: whether what is stored is what the source says. A load that replaces a value compares the two. An
//! audit does so for a value that is fresh, and a cache in shadow mode for each value that it would have served.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::core::Core;
use crate::codec::Codec;
use crate::stats::AuditEvent;
use crate::store::{Claim, Draft, Entry};

/// A loaded value that replaces a stored one.
pub(super) struct Replacement {
    /// The two are one value.
    pub(super) is_same: bool,
    /// The stored one is fresh, and was loaded again to compare it.
    pub(super) is_audit: bool,
    /// The fence of the loaded one.
    pub(super) fence: u64,
    /// How long ago the stored one was stored.
    pub(super) age: Duration,
}

impl Replacement {
    /// Counts it when it is stored. An audit that has changed the value goes on.
    pub(super) fn is_stored<C: Send + Sync + 'static>(&self, core: &Arc<Core<C>>, claim: &Claim) {
        match (self.is_same, self.is_audit) {
            (false, true) => {
                confirm(core, claim, (self.fence, self.age), AuditEvent::StaleServed);
            }
            (false, false) => core.statistics.audit(AuditEvent::Changed),
            (true, _) => core.statistics.audit(AuditEvent::Unchanged),
        }
    }
}

/// Compares what a cache in shadow mode would have served with what was loaded.
pub(super) fn shadowed<R, C: Codec<R>>(
    core: &Arc<Core<C>>,
    claim: &Claim,
    stored: &Entry,
    loaded: &Draft,
) {
    if is_same(&**core, stored, loaded) == Some(false) {
        confirm(core, claim, (stored.fence(), stored.age()), AuditEvent::WouldBeWrong);
    }
}

/// Whether a stored and a loaded value are the same. `None` if neither their bytes nor the program can tell.
pub(super) fn is_same<R, C: Codec<R>>(
    core: &Core<C>,
    stored: &Entry,
    loaded: &Draft,
) -> Option<bool> {
    let (one, other) = (stored.value(), &loaded.value);
    let has_same_bytes = one.encoded() == other.encoded();
    if stored.codec() != loaded.codec || loaded.codec != core.codec.id() {
        // A value and "there is none", or "there is none" twice.
        return Some(has_same_bytes && stored.codec() == loaded.codec);
    }
    let has_bytes = !one.encoded().is_empty() || !other.encoded().is_empty();
    if has_same_bytes && has_bytes {
        return Some(true);
    }
    let by_program = || {
        let stored = one.decoded(|bytes| core.codec.decode(bytes)).ok()?;
        core.codec.is_same(&stored, other.decoded_as()?)
    };
    let by_program = catch_unwind(AssertUnwindSafe(by_program)).ok().flatten();
    by_program.or_else(|| has_bytes.then_some(has_same_bytes))
}

/// A stored value of this age differs from the loaded one. A writer that is about to invalidate the key has
/// changed the source already, so this waits first. If the entry with this fence is still there and fresh then,
/// neither an invalidation nor another value has come: the stored value was wrong.
fn confirm<C: Send + Sync + 'static>(
    core: &Arc<Core<C>>,
    claim: &Claim,
    (fence, age): (u64, Duration),
    finding: AuditEvent,
) {
    let under_way = Arc::clone(&core.loads.audits);
    if Arc::strong_count(&under_way) > MOST {
        return;
    }
    let (core, claim) = (Arc::clone(core), claim.clone());
    tokio::spawn(async move {
        sleep(TOLD_WITHIN).await;
        let found = core.store.lookup(claim.key().clone(), claim.tags().clone()).await;
        let is_there = |entry: &Entry| entry.fence() == fence && entry.is_fresh();
        match found.ok().flatten().is_some_and(|entry| is_there(&entry)) {
            true => core.statistics.stale_served(finding, claim.key(), age),
            false => core.statistics.audit(AuditEvent::Undecided),
        }
        drop(under_way);
    });
}

/// Within this time after a change of the source, its writer has invalidated the key.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// How many findings of a layer wait for that.
const MOST: usize = 1_000;
