//! Runs of the simulation: ten seconds of them, and some of them twice. `BELLWETHER_FLEET_SEED` sets the first seed.

use std::env;
use std::time::{Duration, Instant};

use bellwether_simulation::{Campaign, Run};

/// So that a machine that is slow or fast is no reason to fail. Longer runs begin elsewhere.
const FIRST_SEED: u64 = 3_000;

fn first_seed() -> u64 {
    let set = env::var("BELLWETHER_FLEET_SEED").ok();
    let seed = set.map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or(FIRST_SEED);
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
    let campaign = Campaign::run(&run(first_seed()), is_on);
    println!("{campaign}");
    assert!(campaign.total.operations > 0);
    assert_eq!(campaign.total.violations, Vec::<String>::new());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let seed = first_seed();
    let rounds = env::var("BELLWETHER_FLEET_ROUNDS").ok();
    let rounds: u64 = rounds.map_or(3, |rounds| rounds.parse().expect("a number"));
    for seed in seed..seed + rounds {
        let [first, second] = [(); 2].map(|()| Run { shows_trace: true, ..run(seed) }.run());
        let differs = first.lines.iter().zip(&second.lines).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((first.trace, first.commands), (second.trace, second.commands), "seed {seed}");
    }
}
