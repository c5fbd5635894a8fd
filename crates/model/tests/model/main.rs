//! A model checker for the shipped protocol: it walks through every interleaving of a few callers,
//! processes, writers, lapses and failures. [`step::next`] decides what each flight does, so the
//! model checks the code that runs and not a copy.
//!
//! In every state it checks:
//! - A request that begins after an invalidation of its key or of its tag has returned gets no
//!   value from before it, even if the store has forgotten the tag: neither from the store, nor
//!   from a flight, nor as a stale answer or fallback. No such value is stored, and no failure of
//!   a load that began before it is remembered.
//! - The same holds for an expiry, but older values may be given as stale ones; and for a put, if the
//!   writers of the source are in order.
//! - The same holds in the process of the writer if the invalidation has failed; and in the other
//!   process, once it was replayed.
//! - A caller gets the failure of another caller's load only if a second load has failed, or if it
//!   has waited for the time limit of a load.
//! - Only the caller that loaded a private answer gets it.
//! - While the leader of a key lives, no other load begins, unless it needs no lease: the store has
//!   failed, or the answers cannot be stored.
//! - A load without a lease begins only while a caller waits for it.
//! - No flight closes while it has a lease or while its opener has no answer.
//! - Nothing gets stuck: when nothing can happen any more, all callers are answered and no flight
//!   is left.
//!
//! The store executes a request at one moment, and the flight acts on the reply at a later one, so
//! anything can happen between. Any request and any reply may be lost, and the second copy of a
//! request that is sent twice may arrive at any later time. A message of a commit to a process that
//! waits may be lost or arrive at any later time, also before a reply that was sent earlier.

mod acting;
mod delivering;
mod flights;
mod mutants;
mod payload;
mod putter;
mod putting;
mod reading;
mod rules;
mod scenarios;
mod stored;
mod storing;
mod table;
mod world;
mod writing;

#[path = "../../../../src/read_through/step/mod.rs"]
mod step;

use std::collections::{BTreeMap, HashSet};
use std::hash::Hasher;
use std::sync::Mutex;
use std::thread;

use rustc_hash::FxHasher;

use self::mutants::Mutant;
use self::payload::{Doing, Given, Grant, ModelAnswer, Modelled};
use self::rules::Without;
use self::scenarios::{Scenario, scenarios};
use self::step::{Event, KnownFailure, LeaseHold, Meanwhile, Share};
use self::world::{READERS, Violated, World};
use self::writing::settle_flight;

/// A walk through all states of a scenario.
struct Walk {
    scenario: Scenario,
    mutant: Mutant,
    /// How often a flight acted on each kind of event.
    events: BTreeMap<&'static str, usize>,
}

impl Walk {
    fn of(scenario: Scenario, mutant: Mutant) -> Self {
        Self { scenario, mutant, events: BTreeMap::new() }
    }

    /// The number of states, or the first violation.
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
        let rules = &{ self.scenario.rules };
        world.write(rules, next);
        world.put(rules, next)?;
        world.deliver(rules, next)?;
        world.replay(rules, next);
        world.forget(next);
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
                Doing::Acting(state) if settle_flight(rules, world, at, state, next) => {}
                Doing::Acting(state) => {
                    let first = next.len();
                    acting::act(&self.scenario.rules, world, at, state, next)?;
                    self.follow_at_once(at, first, next)?;
                }
            }
        }
        Ok(())
    }

    /// A flight acts at once on an event that is no reply of the store. Whatever could happen
    /// between can also happen before the event.
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

    /// A flight does what `step::next` says.
    fn follow(
        &mut self,
        world: &World,
        at: usize,
        event: &Event<Modelled>,
    ) -> Result<World, Violated> {
        let waited = world.flights[at].memory.waited;
        *self.events.entry(kind(event, waited)).or_default() += 1;
        let mut world = world.clone();
        let mut step = step::next(event.clone(), &mut world.flights[at].memory);
        self.mutant.apply(event, &mut step);
        for action in step.actions {
            world.act(at, action)?;
        }
        world.enter(at, step.state, self.mutant)?;
        Ok(world)
    }
}

/// Whether an event is a reply of the store.
fn is_answer(event: &Event<Modelled>) -> bool {
    !matches!(
        event,
        Event::LoadEnded { .. }
            | Event::NotLoaded { .. }
            | Event::WaitRanOut
            | Event::Told { .. }
            | Event::Waited
            | Event::Abandoned
            | Event::Released
            | Event::Unacknowledged
            | Event::JoinedCooldown { .. }
            | Event::CooldownEnded { .. }
            | Event::NoneRemain
    )
}

/// Remembered instead of a state. Two of a few million states have the same one with a probability
/// of one in a million.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = FxHasher::default();
    world.hash_of_kind(&mut hasher);
    hasher.finish()
}

/// The kind of an event, as far as the protocol distinguishes events.
fn kind(event: &Event<Modelled>, waited: bool) -> &'static str {
    match event {
        Event::Found { due: None, .. } => "found",
        Event::Found { due: Some(_), .. } => "found, due early",
        Event::Unreadable { .. } => "unreadable",
        Event::PrivateKey { .. } if waited => "private key",
        Event::PrivateKey { .. } => "private key before",
        Event::PrivateOnce { .. } if waited => "private once",
        Event::PrivateOnce { .. } => "private once before",
        Event::Uncacheable { .. } if !waited => "uncacheable before",
        Event::Uncacheable { known: KnownFailure::Nothing, .. } => "uncacheable",
        Event::Uncacheable { known: KnownFailure::Probe(_), .. } => "uncacheable, probe",
        Event::Uncacheable { known: KnownFailure::Cooldown(..), .. } => "uncacheable, in cooldown",
        Event::Queued { meanwhile: Meanwhile::Nothing, .. } => "queued",
        Event::Queued { meanwhile: Meanwhile::Give(_), .. } => "queued, stale",
        Event::Queued { meanwhile: Meanwhile::Fallback(..), .. } => "queued, stale fallback",
        Event::Busy { meanwhile: Meanwhile::Nothing, .. } => "busy",
        Event::Busy { meanwhile: Meanwhile::Give(_), .. } => "busy, stale",
        Event::Busy { meanwhile: Meanwhile::Fallback(..), .. } => "busy, stale fallback",
        Event::Granted { probe: Some(_), meanwhile: Meanwhile::Give(_), .. } => "stale probe",
        Event::Granted { probe: Some(_), .. } => "granted, probe",
        Event::Granted { meanwhile: Meanwhile::Nothing, .. } => "granted",
        Event::Granted { meanwhile: Meanwhile::Give(_), .. } => "granted, stale",
        Event::Granted { meanwhile: Meanwhile::Fallback(..), .. } => "granted, stale fallback",
        Event::InCooldown { until: Some(()), .. } => "in cooldown",
        Event::InCooldown { until: None, .. } => "in cooldown, forced",
        Event::InCooldownStale { .. } => "in cooldown, stale",
        Event::StoreFailed { may_load, known, .. } => kind_of_failure(*may_load, known),
        Event::NoneRemain => "none remain",
        Event::Gone { can_load: true, .. } => "gone, can load",
        Event::Gone { can_load: false, .. } => "gone",
        Event::Told { .. } => "told",
        Event::Waited => "waited",
        Event::Abandoned => "abandoned",
        Event::LoadEnded { hold, answer, .. } => kind_of_end(hold, answer),
        Event::NotLoaded { .. } => "not loaded",
        Event::WaitRanOut => "wait ran out",
        Event::Stored { .. } => "stored",
        Event::Superseded { .. } => "superseded",
        Event::CommitFailed { .. } => "commit failed",
        Event::Unacknowledged => "unacknowledged",
        Event::Released => "released",
        Event::JoinedCooldown { failure: Some(_), .. } => "joined, in cooldown",
        Event::JoinedCooldown { failure: None, .. } => "joined, stale",
        Event::CooldownEnded { .. } => "cooldown ended",
    }
}

fn kind_of_failure<O, M>(may_load: bool, known: &KnownFailure<O, M>) -> &'static str {
    match known {
        KnownFailure::Cooldown(..) if !may_load => "store failed, not to be loaded, in cooldown",
        _ if !may_load => "store failed, not to be loaded",
        KnownFailure::Nothing => "store failed",
        KnownFailure::Probe(_) => "store failed, probe",
        KnownFailure::Cooldown(..) => "store failed, in cooldown",
    }
}

fn kind_of_end(hold: &LeaseHold<Grant>, answer: &ModelAnswer) -> &'static str {
    let is_leased = matches!(hold, LeaseHold::Lease(_));
    match (answer.outcome, answer.share) {
        (Given::Value { .. }, Share::PrivateKey) if is_leased => "loaded private key",
        (Given::Value { .. }, Share::PrivateKey) => "loaded private key without a lease",
        (Given::Value { .. }, Share::PrivateOnce) if is_leased => "loaded private once",
        (Given::Value { .. }, Share::PrivateOnce) => "loaded private once without a lease",
        (Given::Value { .. }, _) if is_leased => "loaded",
        (Given::Value { .. }, _) => "loaded without a lease",
        _ if answer.fallback.is_some() => "load failed, stale",
        (_, Share::Joined) => "load took too long",
        (_, Share::All) => "load failed by the source",
        _ => "load failed by its request",
    }
}

/// How many kinds of events there are.
const KINDS: usize = 56;

/// How many states all scenarios have together.
const STATES: usize = 9_484_949;

const WHOLE: &str = "no thread panics while it holds the lock";

/// Walks through all scenarios, one per thread at a time.
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
                    walked.lock().expect(WHOLE).push((walk, states));
                }
            });
        }
    });
    walked.into_inner().expect(WHOLE)
}

fn take(left: &Mutex<Vec<Scenario>>) -> Option<Scenario> {
    left.lock().expect(WHOLE).pop()
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
    assert_eq!(states, STATES, "not all states were walked through, or there are more");
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
    let of_keys = [Without::Watermarks, Without::SecondWitnesses, Without::OrderOfLookups];
    are_needed(&of_keys, |Scenario { rules, .. }| !rules.is_tagged && !rules.keeps);
    are_needed(&[Without::FencesOfLeases], |scenario| scenario.world.left.copies > 0);
    let of_tags = [
        Without::EpochsAtCommits,
        Without::EpochsAtAcquires,
        Without::EpochsAtLookups,
        Without::EpochsBeforeLoads,
        Without::NewEpochs,
    ];
    are_needed(&of_tags, |Scenario { rules, .. }| rules.is_tagged && !rules.keeps);
}

#[test]
fn each_rule_of_kept_invalidations_is_needed() {
    let of_kept = [
        Without::KeptInvalidations,
        Without::ReplaysBeforeLookups,
        Without::ReplaysBeforeAcquires,
        Without::ReplaysBeforeCommits,
        Without::NumbersOfKept,
    ];
    are_needed(&of_kept, |scenario| scenario.rules.keeps);
}

#[test]
fn each_rule_of_messages_is_needed() {
    let of_messages =
        [Without::FencesOfMessages, Without::AnswersBeforeMessages, Without::EpochsOfMessages];
    are_needed(&of_messages, |scenario| scenario.rules.tells);
}

#[test]
fn each_rule_of_puts_is_needed() {
    let of_puts = [
        Without::FencesOfPuts,
        Without::WatermarksOfPuts,
        Without::EpochsOfPuts,
        Without::ClearingOfPuts,
    ];
    are_needed(&of_puts, |scenario| scenario.world.left.puts > 0);
}

#[test]
fn each_rule_of_expiries_is_needed() {
    let of_expiries = [Without::AgesOfExpired, Without::LeasesAtExpiries];
    are_needed(&of_expiries, |scenario| scenario.rules.expires);
}

/// Asserts that a promise is broken without each of these rules, in a scenario of that kind.
fn are_needed(rules: &[Without], is_of_kind: fn(&Scenario) -> bool) {
    for without in rules {
        let breaks = |mut scenario: Scenario| {
            scenario.rules.without = *without;
            Walk::of(scenario, Mutant::None).check().is_err()
        };
        let mut scenarios = scenarios();
        scenarios.retain(is_of_kind);
        assert!(scenarios.into_iter().any(breaks), "{without:?} is not noticed");
    }
}
