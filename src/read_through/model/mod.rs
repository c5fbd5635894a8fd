//! The shipped protocol, model-checked: every interleaving of a few callers, processes, writers,
//! lapses and store failures, with [`step::next`] deciding what each flight does.
//!
//! Checked is promise 7: no request that begins after an invalidation has returned is answered with
//! a value that was loaded before it. Checked is promise 8: no caller is given the failure of
//! another's load unless a second load has failed, or it has waited for as long as a load may take.
//! And that nothing gets stuck: where nothing can happen any more, all callers have been answered.
//!
//! A question is executed by the store at one moment and its answer acted upon at a later one, so
//! anything can come between.

mod world;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use self::world::{Failed, Flight, Left, Now, READERS, Store, Who, World};
use super::step::{self, Blame, Committed, Event, Leased, On, Standing, Step};

/// A rule of the protocol that the model can be run without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    LinesForFound,
    LinesForCommits,
    Floors,
    ChecksOfSuperseded,
    SecondWitnesses,
}

struct Model {
    without: Without,
}

/// A request was given less than it may be.
struct Violated;

impl Model {
    /// How many states there are; or that one of them is a violation.
    fn check(&self, world: World) -> Result<usize, Violated> {
        let mut open = vec![world];
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
        world.age_failure(&mut next);
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
                Now::Loading => {
                    world.load(flight, &mut next);
                    self.fail_load(world, flight, &mut next);
                    world.serve_others(flight, &mut next)?;
                }
                Now::Resting => world.rest(flight, &mut next)?,
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
            may_go_around: true,
            load_failed: flight.load_failed,
            is_private: false,
        };
        match step::next(event, standing) {
            Step::Land(on) => return self.land(world, at, on),
            Step::Close => world.close(at),
            Step::Wait => flight.now = Now::Waiting,
            Step::Rest => flight.now = Now::Resting,
            Step::Load => {
                flight.job = false;
                flight.lines += 1;
                flight.loading = flight.lines;
                flight.now = Now::Loading;
            }
            step @ (Step::Release | Step::Fail) => flight.now = Now::Asking(step),
            Step::Disperse => unreachable!("no answer is for one caller only"),
            step @ (Step::Acquire | Step::Look | Step::Commit) => {
                flight.lines += 1;
                flight.asked = flight.lines;
                flight.now = Now::Asking(step);
            }
        }
        Ok(world)
    }

    fn complete(&self, mut world: World, at: usize, on: On) -> Result<World, Violated> {
        let flight = &mut world.flights[at];
        let was_commit = flight.loading > 0;
        let value = flight.value.take();
        let who = match on {
            On::All => Who::All,
            On::Asked if was_commit && self.without == Without::LinesForCommits => Who::All,
            On::Asked if !was_commit && self.without == Without::LinesForFound => Who::All,
            On::Asked => Who::Before(flight.asked),
            On::BeforeLoad if self.without == Without::ChecksOfSuperseded => {
                Who::Before(flight.asked)
            }
            On::BeforeLoad => Who::Before(flight.loading),
            On::Requester => Who::Opener,
            On::Opener => unreachable!("no answer is for one caller only"),
        };
        let id = flight.id;
        let is_due = flight.load_failed && on == On::BeforeLoad;
        let others = match value {
            None if flight.load_failed && !is_due => world.give_failure(id, who)?,
            value => world.give(id, who, value)?,
        };
        world.flights[at].now = Now::After(Event::Landed { others });
        Ok(world)
    }

    /// The loader fails: for what this flight knows by the fault of its request, or of the source.
    fn fail_load(&self, world: &World, at: usize, next: &mut Vec<World>) {
        if world.left.failed_loads == 0 {
            return;
        }
        let is_confirmed = world.flights[at].before > 0 || self.without == Without::SecondWitnesses;
        let blames: &[_] = match is_confirmed {
            true => &[Blame::Source],
            false => &[Blame::Request, Blame::Limit],
        };
        for blame in blames {
            let mut failed = world.clone();
            failed.left.failed_loads -= 1;
            failed.witnesses += 1;
            let flight = &mut failed.flights[at];
            (flight.value, flight.load_failed) = (None, true);
            flight.now = Now::After(Event::LoadFailed(*blame));
            next.push(failed);
        }
    }

    /// The store executes a question. It may also fail, having executed it or not.
    fn execute(&self, world: &World, at: usize, step: Step, next: &mut Vec<World>) {
        let mut done = world.clone();
        done.flights[at].now = Now::After(self.ask(&mut done, at, step));
        if world.left.failures > 0 && !matches!(step, Step::Release | Step::Fail) {
            for mut failed in [world.clone(), done.clone()] {
                failed.left.failures -= 1;
                failed.flights[at].fail(step);
                next.push(failed);
            }
        }
        if world.left.failures > 0 && step == Step::Acquire {
            // A store that is known to be down is not asked.
            let mut unasked = world.clone();
            unasked.left.failures -= 1;
            unasked.flights[at].is_not_asked();
            next.push(unasked);
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
            Step::Acquire if store.is_held_up(flight.id) => {
                flight.value = None;
                Event::Failing
            }
            Step::Acquire if store.lease.is_some_and(|holder| holder != flight.id) => Event::Busy,
            Step::Acquire => {
                flight.before = u8::from(store.failed != Failed::No);
                flight.probing = store.failed == Failed::Due;
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
                if step == Step::Fail && store.lease == Some(flight.id) {
                    store.failed = if flight.before > 0 { Failed::Shared } else { Failed::Once };
                }
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
        store.failed = Failed::No;
        store.entry = flight.value.map(|value| (value, flight.fence));
        Committed::Stored
    }
}

/// Kept instead of a state. That two of a few million have the same is one in a million.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// With a store that fails once, with a loader that fails, and with one that has failed before.
fn check(without: Without) -> Result<usize, Violated> {
    let model = Model { without };
    let store_fails = Left { writes: 1, lapses: 1, failures: 1, failed_loads: 0 };
    let load_fails = Left { writes: 1, lapses: 1, failures: 0, failed_loads: 1 };
    let loads_fail = Left { writes: 0, lapses: 0, failures: 0, failed_loads: 2 };
    let probe_fails = Left { writes: 0, lapses: 0, failures: 0, failed_loads: 1 };
    let worlds = [store_fails, load_fails, loads_fail].map(World::new);
    let probe_fails = World::new(probe_fails).after_failures();
    let mut states = 0;
    for world in worlds.into_iter().chain([probe_fails]) {
        states += model.check(world)?;
    }
    Ok(states)
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
        Without::SecondWitnesses,
    ] {
        assert!(check(without).is_err(), "{without:?}");
    }
}
