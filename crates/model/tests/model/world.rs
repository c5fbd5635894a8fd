//! The world of the model: a source, a store, a writer, readers and flights.

use std::hash::{Hash, Hasher};

use super::payload::{Drafted, Grant, Kind, ModelFlight, Version, Wanted};
use super::putting::Putter;
use super::rules::Rules;
use super::storing::{self, Asked};

pub(super) const READERS: usize = 3;

/// Which process a reader is in.
pub(super) const PROCESS: [u8; READERS] = [0, 0, 1];

pub(super) const PROCESSES: usize = 2;

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

    /// The copy arrives, and the store executes it. The reply reaches no flight.
    pub(super) fn deliver(&self, rules: &Rules, next: &mut Vec<Self>) -> Result<(), Violated> {
        let Some(message) = self.copy else { return Ok(()) };
        if message == Message::Invalidate && self.is_order_open() {
            return Ok(());
        }
        let mut world = self.clone();
        world.copy = None;
        match message {
            Message::Acquire { id, process, accept, seen } => {
                let asked = storing::ask(rules, &mut world.store, (id, process), accept, seen);
                if let Asked::Granted { .. } = asked {
                    // The flight may have released its lease by now. This one lapses.
                    let of_it = world.flights.iter_mut().filter(|flight| flight.id == id);
                    of_it.for_each(|flight| flight.is_release_lost = true);
                }
            }
            Message::Commit { id, lease, draft, seen } => {
                storing::store(rules, &mut world, (id, seen), lease, draft)?;
            }
            Message::Report { id, lease, before } => {
                storing::report(rules, &mut world.store, id, lease, before)?;
            }
            Message::Release { id } => storing::give_up(&mut world.store, id),
            Message::Invalidate => world.invalidate(rules),
            Message::Clear { version } => world.clear(version),
        }
        next.push(world);
        Ok(())
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

    /// A caller leaves. The opener of a flight may take its request back, as for an uncached load.
    /// A caller with a stale fallback may take that.
    pub(super) fn leave(
        &self,
        rules: &Rules,
        reader: usize,
        next: &mut Vec<Self>,
    ) -> Result<(), Violated> {
        let Reader::Waiting { required, flight: id, joined, opener } = self.readers[reader] else {
            return Ok(());
        };
        if self.left.leaves == 0 {
            return Ok(());
        }
        let mut left = self.clone();
        left.left.leaves -= 1;
        left.readers[reader] = Reader::Over;
        let Some(flight) = left.flights.iter().find(|at| at.id == id) else { return Ok(()) };
        if let Some((asked, version)) = flight.fallback
            && joined < asked
            && required.forbids(version, false)
        {
            return Err(Violated("a stale fallback is older than an invalidation"));
        }
        let (kind, has_request) = (flight.kind, !opener || flight.job);
        let mut took = left.clone();
        let of_it = took.flights.iter_mut().filter(|at| opener && at.id == id);
        of_it.for_each(|flight| flight.job = false);
        if opener && has_request {
            next.push(took.clone());
        }
        // Its wait has run out, and it loads without a lease.
        if rules.hurries && has_request && kind != Kind::Uncached {
            let (opened, kind) = (u8::MAX, Kind::Uncached);
            took.readers[reader] = Reader::Joining { required, opened, kind, store_failed: false };
            next.push(took);
        }
        next.push(left);
        Ok(())
    }
}
