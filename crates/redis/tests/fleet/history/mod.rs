//! Promise 7: after `invalidate(key)` has returned, no request that starts later is answered with a
//! value whose load began before it.
//!
//! Processes play at random, against each other and against a test that takes their leases away,
//! stops them and disturbs their network; what they saw is checked when it is over.
//! `BELLWETHER_FLEET_ROUNDS` sets how many rounds are played.

pub(crate) mod checker;
mod tally;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bellwether_testkit::clock::Steady;
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::seeds;
use futures_util::future::join_all;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::sleep;

use self::checker::Checker;
use self::tally::Tally;
use crate::fleet::Fleet;
use crate::messages::{Event, Game, Setup};
use crate::process::Worker;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_its_invalidation() {
    let rounds = seeds::from_env("BELLWETHER_FLEET_ROUNDS").unwrap_or(ROUNDS);
    let mut rng = seeds::begin();
    let stage = Stage::set().await;
    let began = Instant::now();
    let mut steady = Steady::begin();
    let mut checker = Checker::default();
    let mut tally = Tally::default();
    while tally.rounds < rounds {
        let history = stage.play(&mut rng).await;
        steady.check();
        let checked = checker.check(&history).unwrap_or_else(|stale| panic!("{stale}"));
        tally.count(BATCH * PROCESSES, &history, &checked);
    }
    println!("{:?}: {tally:#?}", began.elapsed());
    tally.is_rich();
}

/// Three processes, one of them behind a bad network.
struct Stage {
    fleet: Fleet,
    proxy: FaultProxy,
    workers: Vec<Worker>,
}

impl Stage {
    async fn set() -> Self {
        let (fleet, proxy) = Fleet::proxied().await;
        let setup = Setup { timeout_ms: 250, ..fleet.setup() };
        let far = Setup { url: proxy.url(), ..setup.clone() };
        let mut workers = fleet.workers(PROCESSES as usize - 1, &setup).await;
        workers.extend(fleet.workers(1, &far).await);
        Self { fleet, proxy, workers }
    }

    /// Plays a batch, disturbed.
    async fn play(&self, rng: &mut StdRng) -> Vec<Event> {
        let games: Vec<_> = self.workers.iter().map(|_| game(rng)).collect();
        let over = AtomicBool::new(false);
        let playing = async {
            let pairs = self.workers.iter().zip(games);
            let histories = join_all(pairs.map(|(worker, game)| worker.play(game))).await;
            over.store(true, Ordering::Relaxed);
            histories.concat()
        };
        let disturbing = async {
            while !over.load(Ordering::Relaxed) {
                self.disturb(rng).await;
                sleep(Duration::from_millis(rng.random_range(1..15))).await;
            }
        };
        tokio::join!(playing, disturbing).0
    }

    async fn disturb(&self, rng: &mut StdRng) {
        match rng.random_range(0..100) {
            0..60 => self.fleet.lease(rng.random_range(0..KEYS)).delete(),
            60..75 => self.proxy.delay(delay(rng), delay(rng)),
            75..92 => self.proxy.delay(Duration::ZERO, Duration::ZERO),
            92..93 => self.proxy.cut(),
            // A request that is lost twice has failed.
            93..94 => {
                for _ in 0..5 {
                    self.proxy.cut();
                    sleep(Duration::from_millis(3)).await;
                }
            }
            _ => {
                let worker = &self.workers[rng.random_range(0..self.workers.len())];
                worker.stop();
                // Longer than a lease, often.
                sleep(Duration::from_millis(rng.random_range(20..300))).await;
                worker.resume();
            }
        }
    }
}

fn game(rng: &mut StdRng) -> Game {
    Game { seed: rng.random(), rounds: BATCH, tracks: TRACKS, keys: KEYS }
}

fn delay(rng: &mut StdRng) -> Duration {
    Duration::from_micros(rng.random_range(0..15_000))
}

const ROUNDS: u64 = 10_000;

/// How many rounds each process plays before what happened is checked.
const BATCH: u64 = 800;
const PROCESSES: u64 = 3;
const TRACKS: u64 = 8;
const KEYS: u64 = 5;
