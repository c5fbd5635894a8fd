//! The store of the model: leases, commits, and the epochs of the tag.

use super::payload::{Drafted, Grant, Wanted};
use super::rules::{Rules, Without};
use super::stored::{
    Age, FailureRecord, ModelLease, ModelStore, PROCESSES, StoredEntry, ToldValue,
};
use super::world::{Violated, World};

/// The outcome of an acquire.
pub(super) enum Asked {
    Found(StoredEntry),
    /// The key is in cooldown.
    HeldUp,
    Busy {
        fence: u8,
    },
    Granted {
        fence: u8,
        /// How many loads had failed in a row.
        before: u8,
        is_probe: bool,
    },
}

/// The store executes an acquire of a flight that has read this epoch before.
pub(super) fn ask(
    rules: &Rules,
    store: &mut ModelStore,
    (id, process): (u8, u8),
    accept: Wanted,
    seen: Option<u8>,
) -> Asked {
    let found = acquired(rules, store, seen);
    if let Some(entry) = found.filter(|entry| entry.answers(accept)) {
        return Asked::Found(entry);
    }
    let wants_any = accept == Wanted::Nothing;
    if store.is_held_up(id) && !wants_any {
        return Asked::HeldUp;
    }
    if let Some(lease) = store.lease.as_mut().filter(|lease| lease.holder != id) {
        lease.marks[usize::from(process)] |= rules.tells;
        return Asked::Busy { fence: lease.fence };
    }
    let before = u8::from(store.failed != FailureRecord::No);
    let is_probe = store.failed == FailureRecord::Due && !wants_any;
    if store.failed == FailureRecord::Once {
        store.failed = FailureRecord::No;
    }
    let fence = match store.lease {
        Some(own) => own.fence,
        None => {
            store.fence += 1;
            store.lease =
                Some(ModelLease { holder: id, fence: store.fence, marks: [false; PROCESSES] });
            store.fence
        }
    };
    Asked::Granted { fence, before, is_probe }
}

/// Whether a lease holds. Under its token, the store may have granted another one since.
fn holds(rules: &Rules, store: &ModelStore, id: u8, lease: Grant) -> bool {
    let is_same =
        |held: ModelLease| held.fence == lease.fence || rules.without == Without::FencesOfLeases;
    store.lease.is_some_and(|held| held.holder == id && is_same(held))
}

/// The store gives up the lease of a flight.
pub(super) fn give_up(store: &mut ModelStore, id: u8) {
    store.lease = store.lease.filter(|lease| lease.holder != id);
}

/// The store gives up a lease, and remembers that its load has failed.
pub(super) fn report(
    rules: &Rules,
    store: &mut ModelStore,
    id: u8,
    lease: Grant,
    before: u8,
) -> Result<(), Violated> {
    if holds(rules, store, id, lease) {
        let is_granted = store.lease.is_some_and(|held| held.fence == lease.fence);
        if lease.fence <= store.watermark && !is_granted {
            return Err(Violated("a failure is remembered that is older than an invalidation"));
        }
        store.failed = if before > 0 { FailureRecord::Shared } else { FailureRecord::Once };
    }
    give_up(store, id);
    Ok(())
}

/// How far a commit has come.
pub(super) enum Committed {
    /// The epoch of the tag was compared. The entry is stored in another step.
    Begun {
        epoch: u8,
    },
    Stored,
    Superseded,
}

/// The store executes the next step of a commit: it compares the epoch of the tag, and then it
/// stores the entry.
pub(super) fn commit(
    rules: &Rules,
    world: &mut World,
    (id, seen): (u8, Option<u8>),
    lease: Grant,
    draft: Drafted,
) -> Result<Committed, Violated> {
    let is_compared = !rules.is_tagged || seen.is_some();
    if is_compared {
        let is_stored = store(rules, world, (id, seen), lease, draft)?;
        return Ok(if is_stored { Committed::Stored } else { Committed::Superseded });
    }
    let epoch = touch(rules, &mut world.store);
    let is_ignored = matches!(rules.without, Without::EpochsAtCommits | Without::EpochsBeforeLoads);
    if epoch == lease.epoch || is_ignored {
        return Ok(Committed::Begun { epoch });
    }
    give_up(&mut world.store, id);
    Ok(Committed::Superseded)
}

/// The store stores a draft of a flight that has read an epoch before, unless that is refused.
/// Returns whether it does.
pub(super) fn store(
    rules: &Rules,
    world: &mut World,
    (id, seen): (u8, Option<u8>),
    lease: Grant,
    draft: Drafted,
) -> Result<bool, Violated> {
    let store = &mut world.store;
    let above_watermark = lease.fence > store.watermark || rules.without == Without::Watermarks;
    let above_entry = store.entry.is_none_or(|entry| lease.fence > entry.fence);
    let holds = holds(rules, store, id, lease);
    let marks = store.lease.filter(|_| holds).map_or([false; PROCESSES], |held| held.marks);
    give_up(store, id);
    if !(holds || above_watermark && above_entry) {
        return Ok(false);
    }
    let epoch = match rules.without {
        Without::EpochsBeforeLoads => seen.unwrap_or(lease.epoch),
        _ => lease.epoch,
    };
    // An entry of an earlier epoch is as good as none.
    let counts = store.epoch == Some(epoch);
    if counts && draft.version().is_some_and(|version| version < world.invalidated) {
        return Err(Violated("a value is stored that is older than an invalidation"));
    }
    store.failed = FailureRecord::No;
    world.is_uncacheable |= draft == Drafted::Uncacheable;
    let fence = lease.fence;
    let entry = StoredEntry { draft, fence, age: Age::Fresh, epoch };
    if let Drafted::Value(version) = draft {
        let marked = (0..).zip(marks).filter(|(_, is_marked)| *is_marked);
        world.told.extend(marked.map(|(process, _)| ToldValue { process, fence, version, epoch }));
    }
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
    let is_same = |entry: &StoredEntry| {
        seen.is_none_or(|seen| entry.epoch == seen) || rules.without == Without::EpochsAtAcquires
    };
    judged(rules, store, is_same)
}

/// The entry that a lookup finds, together with the epoch.
pub(super) fn looked_up(rules: &Rules, store: &ModelStore) -> Option<StoredEntry> {
    let is_same = |entry: &StoredEntry| {
        store.epoch == Some(entry.epoch) || rules.without == Without::EpochsAtLookups
    };
    judged(rules, store, is_same)
}

/// The entry as it is if it is of the same epoch. One of an earlier epoch is stale if the tag has
/// expired, and as good as none if it was invalidated.
fn judged(
    rules: &Rules,
    store: &ModelStore,
    is_same: impl Fn(&StoredEntry) -> bool,
) -> Option<StoredEntry> {
    let entry = store.entry?;
    match is_same(&entry) {
        true => Some(entry),
        false if rules.expires => rules.expired(entry),
        false => None,
    }
}
