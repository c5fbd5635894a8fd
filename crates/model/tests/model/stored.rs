//! What the store of the model holds.

use super::payload::{Drafted, Version, Wanted};

pub(super) const PROCESSES: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ModelStore {
    pub(super) entry: Option<StoredEntry>,
    pub(super) lease: Option<ModelLease>,
    pub(super) watermark: u8,
    pub(super) fence: u8,
    pub(super) failed: FailureRecord,
    /// The current epoch of the tag, if the store has not forgotten the tag.
    pub(super) epoch: Option<u8>,
    /// The highest epoch so far.
    pub(super) epochs: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ModelLease {
    /// The flight whose token it has.
    pub(super) holder: u8,
    pub(super) fence: u8,
    /// The processes that wait for its end.
    pub(super) marks: [bool; PROCESSES],
}

/// A message of a commit to a process that waited for its lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ToldValue {
    pub(super) process: u8,
    /// Of the lease.
    pub(super) fence: u8,
    pub(super) version: Version,
    /// The epoch under which it was loaded.
    pub(super) epoch: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StoredEntry {
    pub(super) draft: Drafted,
    pub(super) fence: u8,
    pub(super) age: Age,
    /// The epoch under which it was loaded.
    pub(super) epoch: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Age {
    Fresh,
    /// Fresh, and it is time to replace it.
    Due,
    Stale,
}

/// What the store remembers of failed loads.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FailureRecord {
    No,
    /// One load: it counts for the next.
    Once,
    /// Every caller shares the failure.
    Shared,
    /// The same, but one caller is let through as a probe.
    Due,
}

impl StoredEntry {
    /// Whether it answers a flight that wants `accept`.
    pub(super) fn answers(self, accept: Wanted) -> bool {
        let is_fresh = self.age != Age::Stale;
        match accept {
            Wanted::Fresh => is_fresh,
            Wanted::Nothing => false,
            Wanted::Other(fence) => is_fresh && self.fence != fence,
        }
    }
}

impl ModelStore {
    /// Gives the tag a new epoch, above all that it had.
    pub(super) fn bump(&mut self) -> u8 {
        self.epochs += 1;
        self.epoch = Some(self.epochs);
        self.epochs
    }

    /// An invalidation ends the lease, and refuses every load that began before it.
    pub(super) fn end(&mut self, lets_loads_store: bool) {
        self.failed = FailureRecord::No;
        if !lets_loads_store {
            self.lease = None;
            self.watermark = self.fence;
        }
    }

    pub(super) fn is_leased_to(&self, flight: u8) -> bool {
        self.lease.is_some_and(|lease| lease.holder == flight)
    }

    /// Whether the key is in cooldown for the flight that asks.
    pub(super) fn is_held_up(&self, asker: u8) -> bool {
        match self.failed {
            FailureRecord::No | FailureRecord::Once => false,
            FailureRecord::Shared => true,
            FailureRecord::Due => self.lease.is_some_and(|lease| lease.holder != asker),
        }
    }
}
