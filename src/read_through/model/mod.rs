//! The shipped protocol, model-checked: every interleaving of a few callers, processes, writers,
//! lapses, failures and departures, with [`step::next`] deciding what each flight does.
//!
//! Checked is:
//! - No request that begins after an invalidation has returned is given a value that was loaded
//!   before it: from the store, by a flight, as a stale answer or as a stale fallback. No such value
//!   is stored.
//! - No caller is given the failure of another's load unless a second load has failed, or it has
//!   waited for as long as a load may take.
//! - An answer that is for one caller is given to that caller only.
//! - While the leader of a key lives, no load begins that waits for neither its lease nor has a
//!   reason to do without one.
//! - No flight is closed while it has a lease, nor while its opener has no answer.
//! - Nothing gets stuck: where nothing can happen any more, all callers have been answered and no
//!   flight is left.
//!
//! A question is executed by the store at one moment and its answer acted upon at a later one, so
//! anything can come between. Any question and any answer may be lost.

mod acting;
mod flights;
mod mutants;
mod payload;
mod reading;
mod rules;
mod scenarios;
mod world;

use std::collections::{BTreeMap, HashSet};
use std::hash::Hasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use self::mutants::Mutant;
use self::payload::{Doing, Modelled};
use self::rules::Without;
use self::scenarios::{Scenario, scenarios};
use self::world::{READERS, Violated, World};
use super::step::{self, Event, Hold, Known, LoadEnd, Meanwhile};

/// A walk through all states of a scenario.
struct Walk {
    scenario: Scenario,
    mutant: Mutant,
    /// How often each kind of event was acted upon.
    events: BTreeMap<&'static str, usize>,
}

impl Walk {
    fn of(scenario: Scenario, mutant: Mutant) -> Self {
        Self { scenario, mutant, events: BTreeMap::new() }
    }

    /// How many states there are; or that one of them is a violation.
    fn check(&mut self) -> Result<usize, Violated> {
        let mut open = vec![self.scenario.world.clone()];
        let mut seen = HashSet::from([fingerprint(&open[0])]);
        let mut next = vec![];
        while let Some(world) = open.pop() {
            self.go_on(&world, &mut next)?;
            if next.is_empty() && !world.is_over() {
                return Err(Violated("a caller waits for ever"));
            }
            open.extend(next.drain(..).filter(|world| seen.insert(fingerprint(world))));
        }
        Ok(seen.len())
    }

    fn go_on(&mut self, world: &World, next: &mut Vec<World>) -> Result<(), Violated> {
        let rules = &self.scenario.rules;
        world.write(next);
        world.lapse(next);
        world.age(rules.ages, next);
        world.age_failure(next);
        for reader in 0..READERS {
            world.read(rules, reader, next)?;
        }
        for at in 0..world.flights.len() {
            world.kill(at, next);
            match &world.flights[at].doing {
                Doing::Happened(event) => next.push(self.follow(world, at, event)?),
                Doing::Acting(state) => {
                    let first = next.len();
                    acting::act(&self.scenario.rules, world, at, state, next)?;
                    self.follow_at_once(at, first, next)?;
                }
            }
        }
        Ok(())
    }

    /// What is no answer of the store is acted upon at the moment at which it happens: until then,
    /// what may come between comes before it.
    fn follow_at_once(
        &mut self,
        at: usize,
        first: usize,
        next: &mut [World],
    ) -> Result<(), Violated> {
        for world in &mut next[first..] {
            if let Doing::Happened(event) = &world.flights[at].doing
                && !is_answer(event)
            {
                let event = event.clone();
                *world = self.follow(world, at, &event)?;
            }
        }
        Ok(())
    }

    /// A flight does what the table says.
    fn follow(
        &mut self,
        world: &World,
        at: usize,
        event: &Event<Modelled>,
    ) -> Result<World, Violated> {
        *self.events.entry(kind(event)).or_default() += 1;
        let mut step = step::next(event.clone());
        self.mutant.apply(event, &mut step);
        let mut world = world.clone();
        for tell in step.tell {
            world.tell(at, tell)?;
        }
        world.enter(at, step.state)?;
        Ok(world)
    }
}

fn is_answer(event: &Event<Modelled>) -> bool {
    !matches!(
        event,
        Event::LoadEnded { .. }
            | Event::Waited { .. }
            | Event::Abandoned
            | Event::Released
            | Event::Unacknowledged
            | Event::JoinedFailing { .. }
            | Event::JoinedSpared { .. }
            | Event::Rested { .. }
            | Event::NoneRemain
    )
}

/// Kept instead of a state. That two of a few million have the same is one in a million.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = Fingerprint(0);
    world.hash_of_kind(&mut hasher);
    hasher.finish()
}

/// Fast without optimisation, unlike the hasher of the standard library.
struct Fingerprint(u64);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        mixed ^ (mixed >> 32)
    }
}

/// All kinds of events, as far as the table tells them apart.
fn kind(event: &Event<Modelled>) -> &'static str {
    match event {
        Event::Found { due: None, .. } => "found",
        Event::Found { due: Some(_), .. } => "found, due early",
        Event::Unreadable { .. } => "unreadable",
        Event::Private { memory, .. } if memory.waited => "private",
        Event::Private { .. } => "private before",
        Event::Own { memory, .. } if memory.waited => "own",
        Event::Own { .. } => "own before",
        Event::Unkept { memory, .. } if !memory.waited => "unkept before",
        Event::Unkept { known: Known::Nothing, .. } => "unkept",
        Event::Unkept { known: Known::Probe(_), .. } => "unkept, probe",
        Event::Unkept { known: Known::Cooldown(..), .. } => "unkept, failing",
        Event::Busy { meanwhile: Meanwhile::Nothing, .. } => "busy",
        Event::Busy { meanwhile: Meanwhile::Give(_), .. } => "busy, stale",
        Event::Busy { meanwhile: Meanwhile::Offer(..), .. } => "busy, stale offered",
        Event::Led { probe: Some(_), meanwhile: Meanwhile::Give(_), .. } => "led, stale, probe",
        Event::Led { probe: Some(_), .. } => "led, probe",
        Event::Led { meanwhile: Meanwhile::Nothing, .. } => "led",
        Event::Led { meanwhile: Meanwhile::Give(_), .. } => "led, stale",
        Event::Led { meanwhile: Meanwhile::Offer(..), .. } => "led, stale offered",
        Event::Failing { until: Some(()), .. } => "failing",
        Event::Failing { until: None, .. } => "failing, forced",
        Event::Spared { .. } => "spared",
        Event::StoreFailed { may_load: false, known: Known::Cooldown(..), .. } => {
            "store failed, not to be loaded, failing"
        }
        Event::StoreFailed { may_load: false, .. } => "store failed, not to be loaded",
        Event::StoreFailed { known: Known::Nothing, .. } => "store failed",
        Event::StoreFailed { known: Known::Probe(_), .. } => "store failed, probe",
        Event::StoreFailed { known: Known::Cooldown(..), .. } => "store failed, failing",
        Event::NoneRemain => "none remain",
        Event::Gone { can_load: true, .. } => "gone, can load",
        Event::Gone { can_load: false, .. } => "gone",
        Event::Waited { .. } => "waited",
        Event::Abandoned => "abandoned",
        Event::LoadEnded { hold, end, .. } => kind_of_end(hold, end),
        Event::Stored { .. } => "stored",
        Event::Superseded { .. } => "superseded",
        Event::CommitFailed { .. } => "commit failed",
        Event::Unacknowledged => "unacknowledged",
        Event::Released => "released",
        Event::JoinedFailing { .. } => "joined, failing",
        Event::JoinedSpared { .. } => "joined, spared",
        Event::Rested { .. } => "rested",
    }
}

fn kind_of_end<L, O, G, D, F>(hold: &Hold<L>, end: &LoadEnd<O, G, D, F>) -> &'static str {
    let is_leased = matches!(hold, Hold::Lease(_));
    match end {
        LoadEnd::Value { .. } if is_leased => "loaded",
        LoadEnd::Value { .. } => "loaded without a lease",
        LoadEnd::Private { .. } if is_leased => "loaded private",
        LoadEnd::Private { .. } => "loaded private without a lease",
        LoadEnd::Own { .. } if is_leased => "loaded own",
        LoadEnd::Own { .. } => "loaded own without a lease",
        LoadEnd::Failed { fallback: Some(_), .. } => "load failed, stale",
        LoadEnd::Failed { blame: step::Blame::Request, .. } => "load failed by its request",
        LoadEnd::Failed { blame: step::Blame::Limit, .. } => "load took too long",
        LoadEnd::Failed { blame: step::Blame::Source, .. } => "load failed by the source",
        LoadEnd::Abandoned => "load abandoned",
        LoadEnd::NoRequest => "no request",
    }
}

/// How many kinds of events there are.
const KINDS: usize = 52;

/// How many states all scenarios have together.
const STATES: usize = 1_678_881;

/// Walks through all scenarios, several at a time.
fn walk_all() -> Vec<(Walk, Result<usize, Violated>)> {
    let left = Mutex::new(scenarios());
    let walked = Mutex::new(vec![]);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(scenario) = take(&left) {
                    let mut walk = Walk::of(scenario, Mutant::None);
                    let states = walk.check();
                    lock(&walked).push((walk, states));
                }
            });
        }
    });
    walked.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn take(left: &Mutex<Vec<Scenario>>) -> Option<Scenario> {
    lock(left).pop()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn no_promise_is_broken_in_any_state() {
    let mut states = 0;
    let mut events = BTreeMap::new();
    for (walk, found) in walk_all() {
        let name = walk.scenario.name;
        let found = found.unwrap_or_else(|violated| panic!("{name}: {}", violated.0));
        println!("{found:>8} {name}");
        states += found;
        for (kind, times) in walk.events {
            *events.entry(kind).or_insert(0) += times;
        }
    }
    println!("{states} states, {} kinds of events: {events:#?}", events.len());
    assert_eq!(events.len(), KINDS, "not all kinds of events have happened: {events:#?}");
    assert_eq!(states, STATES, "the README claims as many");
}

#[test]
fn each_rule_of_the_table_is_needed() {
    for (mutant, name) in Mutant::ALL {
        let scenario = scenarios().into_iter().find(|scenario| scenario.name == name);
        let violated = Walk::of(scenario.expect(name), mutant).check().err();
        let violated = violated.unwrap_or_else(|| panic!("{mutant:?} is not noticed"));
        println!("{mutant:?}: {} ({name})", violated.0);
    }
}

#[test]
fn each_rule_of_the_store_and_the_loader_is_needed() {
    for without in [Without::Watermarks, Without::SecondWitnesses] {
        let breaks = |mut scenario: Scenario| {
            scenario.rules.without = without;
            Walk::of(scenario, Mutant::None).check().is_err()
        };
        assert!(scenarios().into_iter().any(breaks));
    }
}
