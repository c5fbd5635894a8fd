//! The promise of tags: after `invalidate_tag(t)` has returned, no request that starts later is
//! given a value with that tag whose load began before it, whatever Redis evicts.
//!
//! Eight processes play at random, against each other and against a test that makes Redis forget
//! tags and leases, restarts it, stops processes and disturbs their network. Half of the processes
//! have a near tier. What they saw is checked when it is over. `BELLWETHER_FLEET_ROUNDS` sets how
//! many rounds are played.

mod blind;
mod crowd;
pub(crate) mod game;
mod oblivion;
mod outage;
mod readers;
pub(crate) mod rows;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bellwether_testkit::clock::Steady;
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::seeds;
use futures_util::future::join_all;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::sleep;

use self::game::key_of;
use self::oblivion::{Oblivion, Targets};
use self::readers::Readers;
use crate::fleet::Fleet;
use crate::messages::{Event, NAMESPACE, Setup, TagGame, TagUse};
use crate::process::Worker;

/// Tags that are known from the request: whatever Redis forgets, and whenever.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_the_invalidation_of_its_tag_whatever_redis_forgets() {
    play(TagUse::OfRequest, Targets::Tags, ROUNDS).await;
}

/// The same with a Redis that is full, so that it evicts tags, entries, leases and watermarks.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_the_invalidation_of_its_tag_in_a_redis_that_evicts() {
    play(TagUse::OfRequest, Targets::Any, ROUNDS / 2).await;
}

/// Tags that are known from the answer, as long as Redis forgets none of their invalidations.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_the_invalidation_of_a_tag_that_its_answer_told() {
    play(TagUse::OfAnswer, Targets::Entries, ROUNDS).await;
}

/// The checker finds what a store gives out that takes the epochs of tags too late.
#[tokio::test(flavor = "multi_thread")]
async fn the_checker_notices_a_store_that_takes_epochs_at_the_commit() {
    let mut rng = seeds::begin();
    let mut stage =
        TagStage { is_blind: true, ..TagStage::set(TagUse::OfRequest, Targets::Tags).await };
    let mut readers = Readers::new(PROCESSES, silence(TIMEOUT_MS));
    for _ in 0..BATCHES_UNTIL_NOTICED {
        let histories = stage.play(&mut rng).await;
        if let Err(stale) = readers.check(BATCH, &histories) {
            return println!("{stale}");
        }
        sleep(silence(TIMEOUT_MS)).await;
    }
    panic!("it is not noticed: {:#?}", readers.tally);
}

async fn play(of: TagUse, targets: Targets, rounds: u64) {
    let rounds = seeds::from_env("BELLWETHER_FLEET_ROUNDS").unwrap_or(rounds);
    let mut rng = seeds::begin();
    let mut stage = TagStage::set(of, targets).await;
    let began = Instant::now();
    let mut steady = Steady::begin();
    let mut readers = Readers::new(PROCESSES, silence(TIMEOUT_MS));
    while readers.rounds() < rounds {
        let histories = stage.play(&mut rng).await;
        steady.check();
        readers.check(BATCH, &histories).unwrap_or_else(|stale| panic!("{stale}"));
        // What is invalidated at the end of a batch binds all copies from the next one on.
        sleep(silence(TIMEOUT_MS)).await;
    }
    let forgotten = stage.oblivion.forgotten();
    println!("{of:?}, {:?}, {forgotten} forgotten: {:#?}", began.elapsed(), readers.tally);
    assert!(forgotten > 0);
    readers.tally.is_rich();
}

/// Eight processes, two of them behind a bad network.
struct TagStage {
    of: TagUse,
    is_blind: bool,
    oblivion: Oblivion,
    fleet: Fleet,
    proxy: FaultProxy,
    workers: Vec<Worker>,
}

impl TagStage {
    async fn set(of: TagUse, targets: Targets) -> Self {
        let oblivion = Oblivion::of(targets);
        let (fleet, proxy) = Fleet::proxied_with(oblivion.options()).await;
        let starting = (0..PROCESSES).map(|number| {
            let setup = Setup { timeout_ms: TIMEOUT_MS, near: has_near(number), ..fleet.setup() };
            let is_far = number >= PROCESSES - 2;
            let url = if is_far { proxy.url() } else { setup.url.clone() };
            Worker::start(Setup { url, ..setup })
        });
        let workers = join_all(starting).await;
        Self { of, is_blind: false, oblivion, fleet, proxy, workers }
    }

    /// Plays a batch, disturbed. Returns the history of each process.
    async fn play(&mut self, rng: &mut StdRng) -> Vec<Vec<Event>> {
        let Self { of, is_blind, oblivion, fleet, proxy, workers } = self;
        let games: Vec<_> = workers.iter().map(|_| game(*of, *is_blind, rng)).collect();
        let over = AtomicBool::new(false);
        let playing = async {
            let pairs = workers.iter().zip(games);
            let histories = join_all(pairs.map(|(worker, game)| worker.play_tags(game))).await;
            over.store(true, Ordering::Relaxed);
            histories
        };
        let disturbing = async {
            while !over.load(Ordering::Relaxed) {
                match rng.random_range(0..1000) {
                    0..400 => oblivion.make(&fleet.redis, rng),
                    400..999 => disturb(fleet, proxy, workers, rng).await,
                    _ if *of == TagUse::OfRequest => fleet.redis.restart(),
                    _ => {}
                }
                sleep(Duration::from_millis(rng.random_range(1..15))).await;
            }
        };
        tokio::join!(playing, disturbing).0
    }
}

async fn disturb(fleet: &Fleet, proxy: &FaultProxy, workers: &[Worker], rng: &mut StdRng) {
    match rng.random_range(0..100) {
        0..50 => {
            let key = key_of(rng.random_range(0..game::KEYS)).digest();
            fleet.redis.command(&["DEL", &format!("bw:{NAMESPACE}:{{{key}}}:lease")]);
        }
        50..70 => proxy.delay(delay(rng), delay(rng)),
        70..92 => proxy.delay(Duration::ZERO, Duration::ZERO),
        92..94 => proxy.cut(),
        _ => {
            let worker = &workers[rng.random_range(0..workers.len())];
            worker.stop();
            // Longer than a lease, often.
            sleep(Duration::from_millis(rng.random_range(20..300))).await;
            worker.resume();
        }
    }
}

fn game(of: TagUse, is_blind: bool, rng: &mut StdRng) -> TagGame {
    TagGame { seed: rng.random(), rounds: BATCH, tracks: TRACKS, of, is_blind }
}

fn delay(rng: &mut StdRng) -> Duration {
    Duration::from_micros(rng.random_range(0..15_000))
}

/// Whether a process has a near tier: every other one.
fn has_near(process: usize) -> bool {
    process.is_multiple_of(2)
}

/// For how long a copy may be given out after another process has invalidated its tag.
fn silence(timeout_ms: u64) -> Duration {
    Duration::from_secs(1) + Duration::from_millis(timeout_ms)
}

/// Rounds of all processes together.
const ROUNDS: u64 = 4_000;

/// How many rounds each process plays before what happened is checked.
const BATCH: u64 = 250;
const PROCESSES: usize = 8;
const TRACKS: u64 = 5;
const TIMEOUT_MS: u64 = 250;

/// The first one is enough, nearly always.
const BATCHES_UNTIL_NOTICED: usize = 20;
