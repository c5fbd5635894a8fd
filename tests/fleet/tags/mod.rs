//! The promise of tags: after `invalidate_tag(t)` has returned, no request that starts later is
//! given a value with that tag whose load began before it, whatever Redis evicts.
//!
//! Eight processes play at random, against each other and against a test that evicts tags and
//! leases, restarts Redis, stops processes and disturbs their network. Half of the processes have a
//! near tier. What they saw is checked when it is over. `BELLWETHER_FLEET_ROUNDS` sets how many
//! rounds are played.

pub(crate) mod game;
mod readers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bellwether_testkit::clock::Steady;
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::seeds;
use futures_util::future::join_all;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::sleep;

use self::game::{TagGame, TagUse, tag_of};
use self::readers::Readers;
use crate::fleet::{Fleet, NAMESPACE};
use crate::messages::{Event, Setup};
use crate::process::Worker;

/// Tags that are known from the request: whatever Redis forgets, and whenever.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_the_invalidation_of_its_tag_whatever_redis_forgets() {
    play(TagUse::OfRequest).await;
}

/// Tags that are known from the answer, as long as Redis forgets none of their invalidations.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_the_invalidation_of_a_tag_that_its_answer_told() {
    play(TagUse::OfAnswer).await;
}

async fn play(of: TagUse) {
    let rounds = seeds::from_env("BELLWETHER_FLEET_ROUNDS").unwrap_or(ROUNDS);
    let mut rng = seeds::begin();
    let mut stage = TagStage::set(of).await;
    let began = Instant::now();
    let mut steady = Steady::begin();
    let mut readers = Readers::new(PROCESSES, stage.silence());
    while readers.rounds() < rounds {
        let histories = stage.play(&mut rng).await;
        steady.check();
        readers.check(BATCH, &histories).unwrap_or_else(|stale| panic!("{stale}"));
        // What is invalidated at the end of a batch binds all copies from the next one on.
        sleep(stage.silence()).await;
    }
    println!("{of:?}, {:?}: {:#?}", began.elapsed(), readers.tally);
    readers.tally.is_rich();
}

/// Eight processes, two of them behind a bad network.
struct TagStage {
    of: TagUse,
    fleet: Fleet,
    proxy: FaultProxy,
    workers: Vec<Worker>,
}

impl TagStage {
    async fn set(of: TagUse) -> Self {
        let (fleet, proxy) = Fleet::proxied().await;
        let starting = (0..PROCESSES).map(|number| {
            let setup = Setup { timeout_ms: TIMEOUT_MS, near: has_near(number), ..fleet.setup() };
            let is_far = number >= PROCESSES - 2;
            let url = if is_far { proxy.url() } else { setup.url.clone() };
            Worker::start(Setup { url, ..setup })
        });
        let workers = join_all(starting).await;
        Self { of, fleet, proxy, workers }
    }

    /// For how long a copy may be given out after another process has invalidated its tag.
    fn silence(&self) -> Duration {
        Duration::from_secs(1) + Duration::from_millis(TIMEOUT_MS)
    }

    /// Plays a batch, disturbed. Returns the history of each process.
    async fn play(&mut self, rng: &mut StdRng) -> Vec<Vec<Event>> {
        let Self { of, fleet, proxy, workers } = self;
        let games: Vec<_> = workers.iter().map(|_| game(*of, rng)).collect();
        let over = AtomicBool::new(false);
        let playing = async {
            let pairs = workers.iter().zip(games);
            let histories = join_all(pairs.map(|(worker, game)| worker.play_tags(game))).await;
            over.store(true, Ordering::Relaxed);
            histories
        };
        let disturbing = async {
            while !over.load(Ordering::Relaxed) {
                let disturbance = rng.random_range(0..1000);
                match disturbance {
                    0..400 => evict(*of, fleet, rng),
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

/// Evicts a tag. One that only answers tell must not be forgotten, so an entry is evicted instead.
fn evict(of: TagUse, fleet: &Fleet, rng: &mut StdRng) {
    match of {
        TagUse::OfRequest => {
            let tag = tag_of(rng.random_range(0..game::GROUPS)).digest();
            fleet.redis.command(&["DEL", &format!("bw:{NAMESPACE}:tag:{{{tag}}}")]);
        }
        TagUse::OfAnswer => {
            let key = game::key_of(rng.random_range(0..game::KEYS)).digest();
            fleet.redis.command(&["DEL", &format!("bw:{NAMESPACE}:{{{key}}}")]);
        }
    }
}

async fn disturb(fleet: &Fleet, proxy: &FaultProxy, workers: &[Worker], rng: &mut StdRng) {
    match rng.random_range(0..100) {
        0..50 => {
            let key = game::key_of(rng.random_range(0..game::KEYS)).digest();
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

fn game(of: TagUse, rng: &mut StdRng) -> TagGame {
    TagGame { seed: rng.random(), rounds: BATCH, tracks: TRACKS, of }
}

fn delay(rng: &mut StdRng) -> Duration {
    Duration::from_micros(rng.random_range(0..15_000))
}

/// Whether a process has a near tier: every other one.
fn has_near(process: usize) -> bool {
    process.is_multiple_of(2)
}

/// Rounds of all processes together.
const ROUNDS: u64 = 4_000;

/// How many rounds each process plays before what happened is checked.
const BATCH: u64 = 250;
const PROCESSES: usize = 8;
const TRACKS: u64 = 5;
const TIMEOUT_MS: u64 = 250;
