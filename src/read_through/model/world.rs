//! The world of the model: a source, a store, readers, a writer and flights.

use super::Violated;
use crate::read_through::step::{Committed, Event, Leased, Step};

pub(super) const READERS: usize = 3;

/// Which process a reader is in.
pub(super) const PROCESS: [u8; READERS] = [0, 0, 1];

pub(super) type Version = u8;

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// What the source holds, and the oldest that a request beginning now may be given.
    pub(super) source: Version,
    pub(super) required: Version,
    pub(super) writer: Writer,
    pub(super) store: Store,
    pub(super) readers: [Reader; READERS],
    pub(super) flights: Vec<Flight>,
    pub(super) opened: u8,
    /// How many loads in a row have failed.
    pub(super) witnesses: u8,
    pub(super) left: Left,
}

/// How often each thing may still happen.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub(super) writes: u8,
    pub(super) lapses: u8,
    pub(super) failures: u8,
    pub(super) failed_loads: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Writer {
    Idle,
    Written,
    Invalidated,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Store {
    pub(super) entry: Option<(Version, u8)>,
    /// Which flight has it.
    pub(super) lease: Option<u8>,
    pub(super) floor: u8,
    pub(super) fence: u8,
    pub(super) failed: Failed,
}

/// What the store remembers of failed loads.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Failed {
    No,
    /// One load: it counts for the next.
    Once,
    /// Every caller shares the failure.
    Shared,
    /// The same, but one caller is let through as a probe.
    Due,
}

impl Store {
    /// Whether the failure answers for the key.
    pub(super) fn is_held_up(&self, asker: u8) -> bool {
        match self.failed {
            Failed::No | Failed::Once => false,
            Failed::Shared => true,
            Failed::Due => self.lease.is_some_and(|holder| holder != asker),
        }
    }
}

/// On whom an answer lands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    All,
    /// Who joined before a line.
    Before(u8),
    Opener,
    /// All but the opener.
    Others,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reader {
    Idle,
    Looking { required: Version },
    Joining { required: Version },
    Waiting { required: Version, flight: u8, joined: u8, opener: bool },
    Answered,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    pub(super) id: u8,
    pub(super) process: u8,
    pub(super) lines: u8,
    pub(super) asked: u8,
    pub(super) loading: u8,
    pub(super) job: bool,
    pub(super) leased: Leased,
    pub(super) fence: u8,
    pub(super) store_failed: bool,
    pub(super) load_failed: bool,
    /// How many loads had failed in a row when it was granted its lease.
    pub(super) before: u8,
    /// Its load is a probe.
    pub(super) probing: bool,
    pub(super) value: Option<Version>,
    pub(super) now: Now,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Now {
    /// Something has happened, and is to be acted upon.
    After(Event),
    /// A question is on its way.
    Asking(Step),
    /// It waits for the lease of somebody else to end. To look before that changes nothing.
    Waiting,
    /// The loader runs, and has read the source or not yet.
    Loading,
    /// It gives a failure to whoever comes.
    Resting,
}

impl World {
    pub(super) fn new(left: Left) -> Self {
        Self {
            source: 0,
            required: 0,
            writer: Writer::Idle,
            store: Store { entry: None, lease: None, floor: 0, fence: 0, failed: Failed::No },
            readers: [Reader::Idle; READERS],
            flights: vec![],
            opened: 0,
            witnesses: 0,
            left,
        }
    }

    /// The same, when two loads have failed.
    pub(super) fn after_failures(mut self) -> Self {
        (self.store.failed, self.witnesses) = (Failed::Shared, 2);
        self
    }

    pub(super) fn is_over(&self) -> bool {
        self.readers.iter().all(|reader| *reader == Reader::Answered) && self.flights.is_empty()
    }

    /// A writer changes the source, then invalidates, then has that confirmed.
    pub(super) fn write(&self, next: &mut Vec<Self>) {
        let mut world = self.clone();
        match self.writer {
            Writer::Idle if self.left.writes == 0 => return,
            Writer::Idle => {
                world.left.writes -= 1;
                world.source += 1;
                world.writer = Writer::Written;
            }
            Writer::Written => {
                let Store { entry, lease, floor, fence, failed } = &mut world.store;
                (*entry, *lease, *floor, *failed) = (None, None, *fence, Failed::No);
                world.writer = Writer::Invalidated;
            }
            Writer::Invalidated => {
                world.required = world.source;
                world.writer = Writer::Idle;
            }
        }
        next.push(world);
    }

    pub(super) fn lapse(&self, next: &mut Vec<Self>) {
        // Those who wait for a lease of nobody are waiting for its end, so that always comes.
        let holder = self.store.lease;
        let is_orphan = holder.is_some_and(|id| self.flights.iter().all(|flight| flight.id != id));
        if holder.is_some() && (is_orphan || self.left.lapses > 0) {
            let mut world = self.clone();
            world.store.lease = None;
            world.left.lapses -= u8::from(!is_orphan);
            next.push(world);
        }
    }

    pub(super) fn read(&self, reader: usize, next: &mut Vec<Self>) -> Result<(), Violated> {
        let mut world = self.clone();
        match self.readers[reader] {
            Reader::Idle => {
                world.readers[reader] = Reader::Looking { required: self.required };
            }
            Reader::Looking { required } => match self.store.entry {
                Some((value, _)) if value < required => return Err(Violated),
                Some(_) => world.readers[reader] = Reader::Answered,
                None => world.readers[reader] = Reader::Joining { required },
            },
            Reader::Joining { required } => world.join(reader, required),
            Reader::Waiting { .. } | Reader::Answered => return Ok(()),
        }
        next.push(world);
        Ok(())
    }

    pub(super) fn join(&mut self, reader: usize, required: Version) {
        let process = PROCESS[reader];
        let open = self.flights.iter().find(|flight| flight.process == process);
        self.readers[reader] = match open {
            Some(&Flight { id, lines, .. }) => {
                Reader::Waiting { required, flight: id, joined: lines, opener: false }
            }
            None => {
                self.opened += 1;
                self.flights.push(Flight::new(self.opened, process));
                Reader::Waiting { required, flight: self.opened, joined: 0, opener: true }
            }
        };
    }

    /// The loader reads the source; or fails.
    pub(super) fn load(&self, at: usize, next: &mut Vec<Self>) {
        let mut loaded = self.clone();
        let flight = &mut loaded.flights[at];
        if flight.value.is_none() {
            flight.value = Some(self.source);
        } else {
            flight.now = Now::After(Event::Loaded);
        }
        next.push(loaded);
    }

    /// During a probe the failure is given to all others who are there.
    pub(super) fn serve_others(&self, at: usize, next: &mut Vec<Self>) -> Result<(), Violated> {
        if self.flights[at].probing {
            let mut served = self.clone();
            served.give_failure(self.flights[at].id, Who::Others)?;
            next.push(served);
        }
        Ok(())
    }

    /// Whoever is there is given the failure; and at any time the rest is over.
    pub(super) fn rest(&self, at: usize, next: &mut Vec<Self>) -> Result<(), Violated> {
        let mut rested = self.clone();
        rested.give_failure(self.flights[at].id, Who::All)?;
        next.push(rested.clone());
        rested.flights[at].now = Now::After(Event::Rested);
        next.push(rested);
        Ok(())
    }

    /// The cooldown of a failure is over, or its window.
    pub(super) fn age_failure(&self, next: &mut Vec<Self>) {
        let mut world = self.clone();
        world.store.failed = match self.store.failed {
            Failed::No => return,
            Failed::Shared => Failed::Due,
            Failed::Once | Failed::Due => Failed::No,
        };
        next.push(world);
    }

    /// Gives the failure of a load. Only its own request has it before another has failed too.
    pub(super) fn give_failure(&mut self, id: u8, who: Who) -> Result<bool, Violated> {
        let is_there = |reader: &Reader| match *reader {
            Reader::Waiting { flight, opener, .. } => flight == id && !opener,
            _ => false,
        };
        if who != Who::Opener && self.witnesses < 2 && self.readers.iter().any(is_there) {
            return Err(Violated);
        }
        self.give(id, who, None)
    }

    /// Answers some of those who have joined a flight. Says whether others remain.
    pub(super) fn give(
        &mut self,
        id: u8,
        who: Who,
        value: Option<Version>,
    ) -> Result<bool, Violated> {
        let mut others = false;
        for reader in &mut self.readers {
            let Reader::Waiting { required, flight, joined, opener } = *reader else { continue };
            let is_given = match who {
                Who::All => true,
                Who::Before(line) => joined < line,
                Who::Opener => opener,
                Who::Others => !opener,
            };
            if flight == id && is_given {
                if value.is_some_and(|value| value < required) {
                    return Err(Violated);
                }
                *reader = Reader::Answered;
            } else if flight == id {
                others = true;
            }
        }
        Ok(others)
    }

    /// Whoever is still there looks again.
    pub(super) fn close(&mut self, at: usize) {
        let id = self.flights.remove(at).id;
        for reader in &mut self.readers {
            match *reader {
                Reader::Waiting { required, flight, opener, .. } if flight == id => {
                    assert!(!opener, "who opened a flight is sent away without an answer");
                    *reader = Reader::Joining { required };
                }
                _ => {}
            }
        }
    }
}

impl Flight {
    pub(super) fn new(id: u8, process: u8) -> Self {
        Self {
            id,
            process,
            lines: 0,
            asked: 0,
            loading: 0,
            job: true,
            leased: Leased::No,
            fence: 0,
            store_failed: false,
            load_failed: false,
            before: 0,
            probing: false,
            value: None,
            now: Now::After(Event::Opened { store_failed: false }),
        }
    }

    /// The lease is not asked for, as the store is known to be down.
    pub(super) fn is_not_asked(&mut self) {
        let leased = self.leased;
        self.fail(Step::Acquire);
        self.leased = leased;
    }

    /// The answer to a question is not heard.
    pub(super) fn fail(&mut self, step: Step) {
        self.now = Now::After(match step {
            Step::Acquire => {
                self.store_failed = true;
                self.leased = Leased::Perhaps;
                self.value = None;
                Event::AskFailed
            }
            Step::Commit => {
                self.leased = Leased::Perhaps;
                Event::Committed(Committed::Failed)
            }
            _ => Event::Gone,
        });
    }
}
