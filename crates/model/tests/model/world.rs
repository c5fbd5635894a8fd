//! The world of the model: a source, a store, a writer, readers and flights.

use std::hash::{Hash, Hasher};

use super::payload::{Drafted, Grant, Kind, ModelFlight, Version, Wanted};
use super::putter::Putter;
use super::stored::{
    Age, FailureRecord, ModelLease, ModelStore, PROCESSES, StoredEntry, ToldValue,
};

pub(super) const READERS: usize = 3;

/// Which process a reader is in.
pub(super) const PROCESS: [u8; READERS] = [0, 0, 1];

/// The process of the writer.
pub(super) const WRITING: usize = 0;

/// The oldest versions that a request may get.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Required {
    pub(super) any: Version,
    /// As a fresh one: an expiry came later.
    pub(super) fresh: Version,
}

impl Required {
    /// Whether a value is older.
    pub(super) fn forbids(self, version: Version, is_fresh: bool) -> bool {
        version < if is_fresh { self.fresh } else { self.any }
    }

    /// Everything older than this version was invalidated, or has expired.
    pub(super) fn raise(&mut self, version: Version, has_expired: bool) {
        self.fresh = self.fresh.max(version);
        if !has_expired {
            self.any = self.any.max(version);
        }
    }
}

/// A promise was broken.
#[derive(Debug)]
pub(super) struct Violated(pub(super) &'static str);

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// What the source holds.
    pub(super) source: Version,
    /// What the source held when it was last invalidated.
    pub(super) invalidated: Version,
    /// For each process, what a request which begins there now may get.
    pub(super) required: [Required; PROCESSES],
    /// What the source held when an invalidation failed that the process of the writer keeps.
    pub(super) kept: Option<Version>,
    /// The store has executed the replay of that one, and the reply is on its way.
    pub(super) replayed: Option<Version>,
    pub(super) writer: Writer,
    pub(super) putter: Putter,
    pub(super) store: ModelStore,
    pub(super) readers: [Reader; READERS],
    pub(super) flights: Vec<ModelFlight>,
    /// The second copy of a request, which is under way.
    pub(super) copy: Option<Message>,
    /// The messages of commits so far. Each may arrive at any later time, or never.
    pub(super) told: Vec<ToldValue>,
    pub(super) opened: u8,
    /// How many loads have failed.
    pub(super) witnesses: u8,
    /// The store has learned that answers cannot be stored.
    pub(super) is_uncacheable: bool,
    pub(super) left: Budget,
}

/// How often each thing may still happen.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) writes: u8,
    /// Another writer changes the source and puts the new value.
    pub(super) puts: u8,
    pub(super) lapses: u8,
    /// A request to the store, or its reply, is lost.
    pub(super) failures: u8,
    pub(super) failed_loads: u8,
    /// An entry becomes stale, or a fresh one is due to be replaced early.
    pub(super) ages: u8,
    /// A caller leaves, or its wait runs out.
    pub(super) leaves: u8,
    /// The task of a flight is dropped.
    pub(super) kills: u8,
    /// The store forgets the tag.
    pub(super) forgets: u8,
    /// A request is sent twice.
    pub(super) copies: u8,
    /// A flight that waits for a lease asks again before that ends.
    pub(super) pauses: u8,
    /// A flight queues for a permit before it asks for the lease.
    pub(super) queues: u8,
}

/// A request to the store, of a flight or of the writer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Message {
    Acquire {
        id: u8,
        process: u8,
        accept: Wanted,
        seen: Option<u8>,
    },
    Commit {
        id: u8,
        lease: Grant,
        draft: Drafted,
        seen: Option<u8>,
    },
    Report {
        id: u8,
        lease: Grant,
        before: u8,
    },
    Release {
        id: u8,
    },
    Invalidate,
    /// Of a put of this version.
    Clear {
        version: Version,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Writer {
    Idle,
    Written,
    /// All that is older than this version.
    Invalidated(Version),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Reader {
    Idle {
        forced: bool,
    },
    /// So many flights had been opened when it began.
    LookingUp {
        required: Required,
        opened: u8,
        is_settled: bool,
    },
    Joining {
        required: Required,
        opened: u8,
        kind: Kind,
        store_failed: bool,
    },
    Waiting {
        required: Required,
        flight: u8,
        joined: u8,
        opener: bool,
    },
    Over,
}

impl World {
    pub(super) fn new(readers: [Reader; READERS], left: Budget) -> Self {
        Self {
            source: 1,
            invalidated: 0,
            required: [Required { any: 0, fresh: 0 }; PROCESSES],
            kept: None,
            replayed: None,
            writer: Writer::Idle,
            putter: Putter::Idle,
            store: ModelStore {
                entry: None,
                lease: None,
                watermark: 0,
                fence: 1,
                failed: FailureRecord::No,
                epoch: Some(0),
                epochs: 0,
            },
            readers,
            flights: vec![],
            copy: None,
            told: vec![],
            opened: 0,
            witnesses: 0,
            is_uncacheable: false,
            left,
        }
    }

    /// The same world, with an entry in the store.
    pub(super) fn with(mut self, draft: Drafted, age: Age) -> Self {
        self.store.entry = Some(StoredEntry { draft, fence: 1, age, epoch: 0 });
        self
    }

    /// The same world, after two loads have failed.
    pub(super) fn after_failures(mut self) -> Self {
        self.store.failed = FailureRecord::Shared;
        self.witnesses = 2;
        self
    }

    /// Hashes a world. Two readers of one process are interchangeable: worlds that differ only in
    /// their order have the same hash.
    pub(super) fn hash_of_kind(&self, hasher: &mut impl Hasher) {
        let mut readers = self.readers;
        readers[..2].sort_unstable();
        let Self { source, invalidated, required, writer, putter, store, flights, .. } = self;
        (source, invalidated, required, writer, putter, store, readers, flights).hash(hasher);
        (self.kept, self.replayed, self.copy, &self.told).hash(hasher);
        (self.opened, self.witnesses, self.is_uncacheable, self.left).hash(hasher);
    }

    pub(super) fn is_over(&self) -> bool {
        let is_over = self.readers.iter().all(|reader| *reader == Reader::Over);
        is_over && self.flights.is_empty() && !self.putter.is_putting()
    }

    /// The second copy of a request stays under way.
    pub(super) fn send_twice(&self, message: Message, next: &mut Vec<Self>) {
        if self.left.copies > 0 {
            let mut world = self.clone();
            world.left.copies -= 1;
            world.copy = Some(message);
            next.push(world);
        }
    }

    /// The store forgets the tag, as when it evicts it.
    pub(super) fn forget(&self, next: &mut Vec<Self>) {
        if self.left.forgets > 0 && self.store.epoch.is_some() {
            let mut world = self.clone();
            world.left.forgets -= 1;
            world.store.epoch = None;
            next.push(world);
        }
    }

    pub(super) fn lapse(&self, next: &mut Vec<Self>) {
        // A lease without a flight always lapses, since its holder is gone.
        let Some(ModelLease { holder, .. }) = self.store.lease else { return };
        let is_orphan =
            self.flights.iter().all(|flight| flight.id != holder) && !self.putter.holds(holder);
        if is_orphan || self.left.lapses > 0 {
            let mut world = self.clone();
            world.store.lease = None;
            world.left.lapses -= u8::from(!is_orphan);
            next.push(world);
        }
    }

    /// An entry ages. Without a stale window it is gone then.
    pub(super) fn age(&self, ages: &[Option<Age>], next: &mut Vec<Self>) {
        let Some(entry) = self.store.entry.filter(|entry| entry.age == Age::Fresh) else { return };
        if self.left.ages > 0 {
            for age in ages {
                let mut world = self.clone();
                world.left.ages -= 1;
                world.store.entry = age.map(|age| StoredEntry { age, ..entry });
                next.push(world);
            }
        }
    }

    /// The cooldown of a failure is over, or its window.
    pub(super) fn age_failure(&self, next: &mut Vec<Self>) {
        let mut world = self.clone();
        world.store.failed = match self.store.failed {
            FailureRecord::No => return,
            FailureRecord::Shared => FailureRecord::Due,
            FailureRecord::Once | FailureRecord::Due => FailureRecord::No,
        };
        next.push(world);
    }
}
