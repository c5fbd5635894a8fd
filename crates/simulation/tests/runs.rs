//! Runs of the simulation: ten seconds of them from a new seed, and one of them twice.

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use bellwether_simulation::{Campaign, Run};

fn new_seed() -> u64 {
    let set = env::var("BELLWETHER_FLEET_SEED").ok();
    let seed = set.map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    println!("BELLWETHER_FLEET_SEED={seed}");
    seed
}

fn run(seed: u64) -> Run {
    Run { seed, operations: 1_000, mutations: [].into(), shows_trace: false }
}

#[test]
fn every_promise_holds_in_ten_seconds_of_simulation() {
    let began = Instant::now();
    let is_on = |_: &_, _| began.elapsed() < Duration::from_secs(10);
    let campaign = Campaign::run(&run(new_seed()), is_on);
    println!("{campaign}");
    assert!(campaign.total.operations > 0);
    assert_eq!(campaign.total.violations, Vec::<String>::new());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let seed = new_seed();
    let rounds = env::var("BELLWETHER_FLEET_ROUNDS").ok();
    let rounds: u64 = rounds.map_or(3, |rounds| rounds.parse().expect("a number"));
    for seed in seed..seed + rounds {
        let [first, second] = [(); 2].map(|()| Run { shows_trace: true, ..run(seed) }.run());
        let differs = first.lines.iter().zip(&second.lines).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((first.trace, first.commands), (second.trace, second.commands), "seed {seed}");
    }
}
