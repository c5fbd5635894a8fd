//! The shipped protocol, model-checked: every interleaving of a few callers, processes, writers,
//! lapses and store failures, with [`step::next`] deciding what each flight does.
//!
//! Checked is promise 7: no request that begins after an invalidation has returned is answered with
//! a value that was loaded before it. And that nothing gets stuck: where nothing can happen any
//! more, everybody has been answered.
//!
//! A question is executed by the store at one moment and its answer acted upon at a later one, so
//! anything can come between.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::step::{self, Committed, Event, Leased, On, Standing, Step};

const READERS: usize = 3;

/// Which process a reader is in.
const PROCESS: [u8; READERS] = [0, 0, 1];

type Version = u8;

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    /// What the source holds, and the oldest that a request beginning now may be given.
    source: Version,
    required: Version,
    writer: Writer,
    store: Store,
    readers: [Reader; READERS],
    flights: Vec<Flight>,
    opened: u8,
    left: Left,
}

/// How often each thing may still happen.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Left {
    writes: u8,
    lapses: u8,
    failures: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Writer {
    Idle,
    Written,
    Invalidated,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Store {
    entry: Option<(Version, u8)>,
    /// Which flight has it.
    lease: Option<u8>,
    floor: u8,
    fence: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Reader {
    Idle,
    Looking { required: Version },
    Joining { required: Version },
    Waiting { required: Version, flight: u8, joined: u8, opener: bool },
    Answered,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Flight {
    id: u8,
    process: u8,
    lines: u8,
    asked: u8,
    loading: u8,
    job: bool,
    leased: Leased,
    fence: u8,
    store_failed: bool,
    value: Option<Version>,
    now: Now,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Now {
    /// Something has happened, and is to be acted upon.
    After(Event),
    /// A question is on its way.
    Asking(Step),
    /// It waits for the lease of somebody else to end. To look before that changes nothing.
    Waiting,
    /// The loader runs, and has read the source or not yet.
    Loading,
}

/// A rule of the protocol that the model can be run without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    LinesForFound,
    LinesForCommits,
    Floors,
    ChecksOfSuperseded,
}

struct Model {
    without: Without,
}

/// A request was given less than it may be.
struct Violated;

impl Model {
    /// How many states there are; or that one of them is a violation.
    fn check(&self, left: Left) -> Result<usize, Violated> {
        let mut open = vec![World::new(left)];
        let mut seen = HashSet::from([fingerprint(&open[0])]);
        while let Some(world) = open.pop() {
            let next = self.successors(&world)?;
            assert!(!next.is_empty() || world.is_over(), "somebody waits for ever");
            open.extend(next.into_iter().filter(|world| seen.insert(fingerprint(world))));
        }
        Ok(seen.len())
    }

    fn successors(&self, world: &World) -> Result<Vec<World>, Violated> {
        let mut next = vec![];
        world.write(&mut next);
        world.lapse(&mut next);
        for reader in 0..READERS {
            world.read(reader, &mut next)?;
        }
        for flight in 0..world.flights.len() {
            match world.flights[flight].now {
                Now::After(event) => next.push(self.act(world, flight, event)?),
                Now::Asking(step) => self.execute(world, flight, step, &mut next),
                Now::Waiting if world.store.lease.is_some() => {}
                Now::Waiting => {
                    let mut woken = world.clone();
                    woken.flights[flight].now = Now::After(Event::Waited);
                    next.push(woken);
                }
                Now::Loading => world.load(flight, &mut next),
            }
        }
        Ok(next)
    }

    /// A flight does what the table says.
    fn act(&self, world: &World, at: usize, event: Event) -> Result<World, Violated> {
        let mut world = world.clone();
        let flight = &mut world.flights[at];
        let standing = Standing {
            leased: flight.leased,
            can_load: flight.job,
            store_failed: flight.store_failed,
        };
        match step::next(event, standing) {
            Step::Land(on) => return self.land(world, at, on),
            Step::Close => world.close(at),
            Step::Wait => flight.now = Now::Waiting,
            Step::Load => {
                flight.job = false;
                flight.lines += 1;
                flight.loading = flight.lines;
                flight.now = Now::Loading;
            }
            step @ Step::Release => flight.now = Now::Asking(step),
            step @ (Step::Acquire | Step::Look | Step::Commit) => {
                flight.lines += 1;
                flight.asked = flight.lines;
                flight.now = Now::Asking(step);
            }
        }
        Ok(world)
    }

    fn land(&self, mut world: World, at: usize, on: On) -> Result<World, Violated> {
        let flight = &mut world.flights[at];
        let was_commit = flight.loading > 0;
        let value = flight.value.take();
        let line = match on {
            On::All => u8::MAX,
            On::Asked if was_commit && self.without == Without::LinesForCommits => u8::MAX,
            On::Asked if !was_commit && self.without == Without::LinesForFound => u8::MAX,
            On::Asked => flight.asked,
            On::BeforeLoad if self.without == Without::ChecksOfSuperseded => flight.asked,
            On::BeforeLoad => flight.loading,
        };
        let id = flight.id;
        let others = world.give(id, line, value)?;
        world.flights[at].now = Now::After(Event::Landed { others });
        Ok(world)
    }

    /// The store executes a question. It may also fail, having executed it or not.
    fn execute(&self, world: &World, at: usize, step: Step, next: &mut Vec<World>) {
        let mut done = world.clone();
        done.flights[at].now = Now::After(self.ask(&mut done, at, step));
        if world.left.failures > 0 && step != Step::Release {
            for mut failed in [world.clone(), done.clone()] {
                failed.left.failures -= 1;
                failed.flights[at].fail(step);
                next.push(failed);
            }
        }
        next.push(done);
    }

    fn ask(&self, world: &mut World, at: usize, step: Step) -> Event {
        let (store, flight) = (&mut world.store, &mut world.flights[at]);
        match step {
            Step::Look => {
                flight.value = store.entry.map(|(value, _)| value);
                if flight.value.is_some() { Event::Found } else { Event::Gone }
            }
            Step::Acquire if store.entry.is_some() => {
                flight.value = store.entry.map(|(value, _)| value);
                Event::Found
            }
            Step::Acquire if store.lease.is_some_and(|holder| holder != flight.id) => Event::Busy,
            Step::Acquire => {
                store.fence += 1;
                store.lease = Some(flight.id);
                (flight.leased, flight.fence) = (Leased::Yes, store.fence);
                Event::Led
            }
            Step::Commit => {
                flight.leased = Leased::No;
                Event::Committed(self.commit(store, flight))
            }
            _ => {
                store.lease = store.lease.filter(|holder| *holder != flight.id);
                flight.leased = Leased::No;
                Event::Released
            }
        }
    }

    fn commit(&self, store: &mut Store, flight: &Flight) -> Committed {
        let holds = store.lease == Some(flight.id);
        let above_floor = flight.fence > store.floor || self.without == Without::Floors;
        let above_entry = store.entry.is_none_or(|(_, fence)| flight.fence > fence);
        if holds {
            store.lease = None;
        } else if !(above_floor && above_entry) {
            return Committed::Superseded;
        }
        store.entry = flight.value.map(|value| (value, flight.fence));
        Committed::Stored
    }
}

impl World {
    fn new(left: Left) -> Self {
        Self {
            source: 0,
            required: 0,
            writer: Writer::Idle,
            store: Store { entry: None, lease: None, floor: 0, fence: 0 },
            readers: [Reader::Idle; READERS],
            flights: vec![],
            opened: 0,
            left,
        }
    }

    fn is_over(&self) -> bool {
        self.readers.iter().all(|reader| *reader == Reader::Answered) && self.flights.is_empty()
    }

    /// A writer changes the source, then invalidates, then has that confirmed.
    fn write(&self, next: &mut Vec<Self>) {
        let mut world = self.clone();
        match self.writer {
            Writer::Idle if self.left.writes == 0 => return,
            Writer::Idle => {
                world.left.writes -= 1;
                world.source += 1;
                world.writer = Writer::Written;
            }
            Writer::Written => {
                let Store { entry, lease, floor, fence } = &mut world.store;
                (*entry, *lease, *floor) = (None, None, *fence);
                world.writer = Writer::Invalidated;
            }
            Writer::Invalidated => {
                world.required = world.source;
                world.writer = Writer::Idle;
            }
        }
        next.push(world);
    }

    fn lapse(&self, next: &mut Vec<Self>) {
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

    fn read(&self, reader: usize, next: &mut Vec<Self>) -> Result<(), Violated> {
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

    fn join(&mut self, reader: usize, required: Version) {
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
    fn load(&self, at: usize, next: &mut Vec<Self>) {
        let mut loaded = self.clone();
        let flight = &mut loaded.flights[at];
        if flight.value.is_none() {
            flight.value = Some(self.source);
        } else {
            flight.now = Now::After(Event::Loaded);
        }
        next.push(loaded);
    }

    /// Answers those who had joined a flight before a line. Says whether others remain.
    fn give(&mut self, id: u8, line: u8, value: Option<Version>) -> Result<bool, Violated> {
        let mut others = false;
        for reader in &mut self.readers {
            let Reader::Waiting { required, flight, joined, .. } = *reader else { continue };
            if flight == id && joined < line {
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
    fn close(&mut self, at: usize) {
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
    fn new(id: u8, process: u8) -> Self {
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
            value: None,
            now: Now::After(Event::Opened { store_failed: false }),
        }
    }

    /// The answer to a question is not heard.
    fn fail(&mut self, step: Step) {
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

/// Kept instead of a state. That two of a few million have the same is one in a million.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

fn check(without: Without) -> Result<usize, Violated> {
    Model { without }.check(Left { writes: 1, lapses: 1, failures: 1 })
}

#[test]
fn no_request_that_begins_after_an_invalidation_is_given_what_was_loaded_before() {
    let Ok(states) = check(Without::Nothing) else { panic!("violated") };
    assert!(states > 10_000, "the model has only {states} states");
    println!("{states}");
}

#[test]
fn each_rule_is_needed() {
    for without in [
        Without::LinesForFound,
        Without::LinesForCommits,
        Without::Floors,
        Without::ChecksOfSuperseded,
    ] {
        assert!(check(without).is_err(), "{without:?}");
    }
}
