use std::any::TypeId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, block_on, block_on_poll};

use loom::model::Builder;
use loom::thread;

use crate::flight::{AbandonedLoads, Flights, Full, Leader, LonePermit, Phase, Waiter};
use crate::key::Key;
use crate::locked::locked;
use crate::tag::Tags;
use tracing::Span;

use crate::trace::CallerSpan;

/// A process whose callers ask for the keys of a store. An outcome is the value of a key.
struct Stage {
    flights: Arc<Flights<u64>>,
    value: Mutex<u64>,
    /// How many leaders the one key has.
    leaders: AtomicUsize,
}

impl Stage {
    fn set(most_flights: usize, most_abandoned: usize) -> Arc<Self> {
        let flights =
            Flights::new((most_flights, MOST_WAITERS), AbandonedLoads::new(most_abandoned));
        Arc::new(Self { flights, value: Mutex::new(OLD), leaders: AtomicUsize::new(0) })
    }

    /// A caller asks for a key.
    fn try_join(&self, key: u64, fails_fast: bool) -> Result<Joined, Full> {
        let id = (&Key::of("item").with(key), TypeId::of::<u64>());
        self.flights.join(id, &Tags, None, fails_fast, &CallerSpan::of(Span::none()))
    }

    fn join(&self) -> Joined {
        self.try_join(KEY, false).expect("a place")
    }

    /// A caller that finds no flight.
    fn open(&self) -> (Waiter<u64>, Leader<u64>) {
        let (waiter, leader) = self.join();
        (waiter, leader.expect("a new flight"))
    }

    /// Asks the store, and completes the waiters that may have the answer.
    fn answer(&self, leader: &Leader<u64>) {
        let asked = leader.generation();
        let value = *locked(&self.value);
        leader.complete(|joined, _| joined < asked, value);
    }

    /// Leads until the end, as the only leader of its key.
    fn lead(&self, leader: Leader<u64>) {
        assert_eq!(self.leaders.fetch_add(1, Ordering::AcqRel), 0, "two flights of one key");
        self.answer(&leader);
        self.leaders.fetch_sub(1, Ordering::AcqRel);
        drop(leader);
    }

    /// Asks once, after a lone lookup if there was one. `None`: it has to ask again. A flight answers
    /// its opener.
    fn ask_once(&self, lookup: Option<LonePermit<u64>>) -> Option<u64> {
        let (waiter, leader) = self.join();
        drop(lookup);
        let opens = leader.is_some();
        leader.into_iter().for_each(|leader| self.lead(leader));
        let outcome = outcome(&waiter);
        assert!(outcome.is_some() || !opens, "no outcome for the opener");
        outcome
    }

    /// Asks until there is an outcome.
    fn ask(&self) -> u64 {
        loop {
            if let Some(value) = self.ask_once(None) {
                return value;
            }
        }
    }

    /// Nothing is left, and as many flights may be opened as in the beginning.
    fn has_all_places(&self, most_flights: u64) {
        assert_eq!((self.flights.len(), self.flights.counts()), (0, [0; 3]));
        let places: Vec<_> = (0..most_flights).map(|key| self.try_join(key, false)).collect();
        assert!(places.iter().all(Result::is_ok));
        assert!(matches!(self.try_join(most_flights, false), Err(Full::Flights)));
    }
}

type Joined = (Waiter<u64>, Option<Leader<u64>>);

fn outcome(waiter: &Waiter<u64>) -> Option<u64> {
    block_on_poll(|context| waiter.poll(context)).map(|outcome| *outcome)
}

/// Each interleaving in which threads are stopped three times, where another one could run. What they do by
/// turns comes on top.
fn interleaved(run: fn()) {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

/// Runs what the process does beside, in a thread.
fn beside(stage: &Arc<Stage>, run: impl FnOnce(&Stage) + 'static) -> thread::JoinHandle<()> {
    let stage = Arc::clone(stage);
    thread::spawn(move || run(&stage))
}

fn end(thread: thread::JoinHandle<()>) {
    thread.join().expect("no panic");
}

#[test]
fn no_outcome_is_older_than_the_call_that_gets_it() {
    interleaved(|| {
        let stage = Stage::set(2, 0);
        let (opener, leader) = stage.open();
        let leads = beside(&stage, |stage| stage.lead(leader));
        let changes = beside(&stage, |stage| {
            *locked(&stage.value) = NEW;
            assert_eq!(stage.ask(), NEW);
        });
        assert!(outcome(&opener).is_some(), "no outcome for the opener");
        end(leads);
        end(changes);
    });
}

#[test]
fn a_waiter_with_an_outcome_is_woken_while_its_flight_goes_on() {
    interleaved(|| {
        let stage = Stage::set(1, 0);
        let (opener, leader) = stage.open();
        let leads = beside(&stage, move |stage| {
            stage.answer(&leader);
            block_on(leader.abandoned());
        });
        assert_eq!(outcome(&opener), Some(OLD));
        drop(opener);
        end(leads);
    });
}

#[test]
fn no_waiter_sleeps_when_its_leader_leaves_and_none_joins_that_flight_again() {
    interleaved(|| {
        let stage = Stage::set(2, 0);
        let (opener, leader) = stage.open();
        let leaves = thread::spawn(move || drop(leader));
        let joins = beside(&stage, |stage| {
            let (waiter, leader) = stage.join();
            let opens = leader.is_some();
            drop(leader);
            assert_eq!(outcome(&waiter), None);
            // It asks again.
            assert!(opens || stage.join().1.is_some());
        });
        assert_eq!(outcome(&opener), None);
        end(leaves);
        end(joins);
    });
}

#[test]
fn the_outcome_that_a_leader_leaves_is_for_all_waiters_that_remain() {
    interleaved(|| {
        let stage = Stage::set(2, 0);
        let (opener, leader) = stage.open();
        let leaves = thread::spawn(move || leader.close_with(NEW));
        let joins = beside(&stage, |stage| {
            let (waiter, leader) = stage.join();
            let opens = leader.is_some();
            drop(leader);
            assert_eq!(outcome(&waiter), (!opens).then_some(NEW));
        });
        assert_eq!(outcome(&opener), Some(NEW));
        end(leaves);
        end(joins);
    });
}

#[test]
fn a_leader_learns_that_the_last_waiter_has_left() {
    interleaved(|| {
        let stage = Stage::set(2, 0);
        let (opener, leader) = stage.open();
        let (other, _) = stage.join();
        let leaves = [thread::spawn(move || drop(opener)), thread::spawn(move || drop(other))];
        block_on(leader.abandoned());
        assert_eq!(stage.flights.counts(), [1, 0, 0]);
        leaves.into_iter().for_each(end);
    });
}

#[test]
fn a_leader_learns_that_a_waiter_has_joined() {
    interleaved(|| {
        let stage = Stage::set(2, 0);
        let (opener, leader) = stage.open();
        let leads = beside(&stage, move |stage| {
            stage.answer(&leader);
            block_on(leader.joined(false));
            leader.complete(|_, _| true, NEW);
        });
        let (late, _) = stage.join();
        assert!(matches!(outcome(&late), Some(OLD | NEW)));
        // One that was there in time needs another one to join.
        let (last, other) = stage.join();
        drop(other);
        assert!(matches!(outcome(&last), Some(NEW) | None));
        assert_eq!(outcome(&opener), Some(OLD));
        end(leads);
    });
}

#[test]
fn a_waiter_that_fails_fast_learns_of_each_phase() {
    interleaved(|| {
        let stage = Stage::set(1, 0);
        let (waiter, leader) = stage.try_join(KEY, true).expect("a place");
        let leader = leader.expect("a new flight");
        let leads = thread::spawn(move || {
            leader.enter(Phase::Waiting);
            block_on(leader.abandoned());
        });
        block_on_poll(|context| match waiter.poll(context) {
            Poll::Pending if waiter.waits_for_other_load() => Poll::Ready(()),
            poll => poll.map(|_| panic!("an outcome")),
        });
        drop(waiter);
        end(leads);
    });
}

#[test]
fn a_key_has_one_flight_at_a_time_which_leaves_the_table_once() {
    interleaved(|| {
        let stage = Stage::set(3, 0);
        let (opener, leader) = stage.open();
        let leads = beside(&stage, |stage| stage.lead(leader));
        let asks = beside(&stage, |stage| _ = stage.ask());
        _ = stage.ask();
        end(leads);
        end(asks);
        drop(opener);
        stage.has_all_places(3);
    });
}

#[test]
fn a_lone_lookup_leaves_the_flight_of_its_key_in_the_table() {
    interleaved(|| {
        let stage = Stage::set(3, 0);
        let asks = |stage: &Stage| {
            let key = Key::of("item").with(KEY);
            _ = stage.ask_once(stage.flights.look_up(&key, TypeId::of::<u64>()));
            _ = stage.ask_once(None);
        };
        let other = beside(&stage, asks);
        asks(&stage);
        end(other);
        stage.has_all_places(3);
    });
}

#[test]
fn a_load_that_ends_while_its_last_caller_leaves_gives_its_place_once() {
    interleaved(|| {
        let stage = Stage::set(1, 1);
        let (opener, leader) = stage.open();
        let leads = thread::spawn(move || {
            drop(leader.announce_load(CallerSpan::of(Span::none()), true));
            drop(leader);
        });
        drop(opener);
        end(leads);
        stage.has_all_places(1);
    });
}

#[test]
fn a_load_that_begins_while_its_last_caller_leaves_is_cancelled_if_none_may_go_on() {
    interleaved(|| {
        let stage = Stage::set(1, 0);
        let (opener, leader) = stage.open();
        let leads = thread::spawn(move || {
            let _load = leader.announce_load(CallerSpan::of(Span::none()), true);
            block_on(leader.cancelled());
        });
        drop(opener);
        end(leads);
        stage.has_all_places(1);
    });
}

const KEY: u64 = 0;

const MOST_WAITERS: usize = 8;

/// Values of the key: an invalidation is between them.
const OLD: u64 = 0;
const NEW: u64 = 1;
