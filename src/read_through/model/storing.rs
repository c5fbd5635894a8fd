//! The store of the model: commits, and the epochs of the tag.

use super::payload::{Drafted, Grant};
use super::rules::{Rules, Without};
use super::world::{Age, FailureRecord, ModelStore, StoredEntry, Violated, World};

/// How far a commit has come.
pub(super) enum Committed {
    /// The epoch of the tag was compared. The entry is stored in another step.
    Begun,
    Stored,
    Superseded,
}

/// The store executes the next step of a commit: it compares the epoch of the tag, and then it
/// stores the entry.
pub(super) fn commit(
    rules: &Rules,
    world: &mut World,
    at: usize,
    lease: Grant,
    draft: Drafted,
) -> Result<Committed, Violated> {
    let is_compared = !rules.is_tagged || world.flights[at].seen.is_some();
    if is_compared {
        let is_stored = store(rules, world, at, lease, draft)?;
        return Ok(if is_stored { Committed::Stored } else { Committed::Superseded });
    }
    let epoch = touch(rules, &mut world.store);
    world.flights[at].seen = Some(epoch);
    let is_ignored = matches!(rules.without, Without::EpochsAtCommits | Without::EpochsBeforeLoads);
    if epoch == lease.epoch || is_ignored {
        return Ok(Committed::Begun);
    }
    let id = world.flights[at].id;
    world.store.lease = world.store.lease.filter(|holder| *holder != id);
    Ok(Committed::Superseded)
}

/// The store stores a draft, unless that is refused. Returns whether it does.
pub(super) fn store(
    rules: &Rules,
    world: &mut World,
    at: usize,
    lease: Grant,
    draft: Drafted,
) -> Result<bool, Violated> {
    let store = &mut world.store;
    let above_watermark = lease.fence > store.watermark || rules.without == Without::Watermarks;
    let above_entry = store.entry.is_none_or(|entry| lease.fence > entry.fence);
    if store.lease == Some(world.flights[at].id) {
        store.lease = None;
    } else if !(above_watermark && above_entry) {
        return Ok(false);
    }
    let epoch = match rules.without {
        Without::EpochsBeforeLoads => world.flights[at].seen.unwrap_or(lease.epoch),
        _ => lease.epoch,
    };
    // An entry of an earlier epoch is as good as none.
    let counts = store.epoch == Some(epoch);
    if counts && draft.version().is_some_and(|version| version < world.invalidated) {
        return Err(Violated("a value is stored that is older than an invalidation"));
    }
    store.failed = FailureRecord::No;
    world.is_uncacheable |= draft == Drafted::Uncacheable;
    let entry = StoredEntry { draft, fence: lease.fence, age: Age::Fresh, epoch };
    world.store.entry = (draft != Drafted::Nothing).then_some(entry);
    Ok(true)
}

/// The current epoch of the tag. A tag that was forgotten gets a new one.
pub(super) fn touch(rules: &Rules, store: &mut ModelStore) -> u8 {
    if let Some(epoch) = store.epoch {
        return epoch;
    }
    if rules.without == Without::NewEpochs {
        store.epoch = Some(0);
        return 0;
    }
    store.bump()
}

/// The entry that an acquire finds, which has read this epoch before.
pub(super) fn acquired(rules: &Rules, store: &ModelStore, seen: Option<u8>) -> Option<StoredEntry> {
    let counts = |entry: &StoredEntry| {
        seen.is_none_or(|seen| entry.epoch == seen) || rules.without == Without::EpochsAtAcquires
    };
    store.entry.filter(counts)
}

/// The entry that a lookup finds, together with the epoch.
pub(super) fn looked_up(rules: &Rules, store: &ModelStore) -> Option<StoredEntry> {
    let counts = |entry: &StoredEntry| {
        store.epoch == Some(entry.epoch) || rules.without == Without::EpochsAtLookups
    };
    store.entry.filter(counts)
}
