//! Runs of the simulation from a fresh seed, and some of them twice.
//!
//! `BELLWETHER_FLEET_SEED` sets the first seed, `BELLWETHER_SIMULATION_SECONDS` for how long new ones follow, and
//! `BELLWETHER_FLEET_ROUNDS` how many run twice.

mod bursts;
mod mutants;

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use bellwether_simulation::{Campaign, PlanKind, ReducedRun, Run, simulate};

fn set(name: &str) -> Option<u64> {
    env::var(name).ok().map(|set| set.parse().unwrap_or_else(|_| panic!("{name} takes a number")))
}

fn first_seed() -> u64 {
    let seed = set("BELLWETHER_FLEET_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    println!("BELLWETHER_FLEET_SEED={seed}");
    seed
}

fn run(seed: u64) -> Run {
    Run { seed, operations: 1_000, ..Run::default() }
}

#[test]
fn every_promise_holds_in_simulations_from_a_fresh_seed() {
    let seconds = set("BELLWETHER_SIMULATION_SECONDS").unwrap_or(10);
    let began = Instant::now();
    let campaign = Campaign::run(&run(first_seed()), |total, _| {
        total.violations.is_empty() && began.elapsed() < Duration::from_secs(seconds)
    });
    println!("{campaign}");
    assert!(campaign.total.operations > 0);
    if let Some(seed) = campaign.broken_by {
        let violations = campaign.total.violations.join("\n");
        let reduced = ReducedRun::of(&run(seed), REDUCING);
        let reduced = reduced.map_or_else(String::new, |reduced| reduced.to_string());
        panic!("BELLWETHER_FLEET_SEED={seed}\n{violations}\n{reduced}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let first = first_seed();
    for seed in first..first + set("BELLWETHER_FLEET_ROUNDS").unwrap_or(4) {
        is_repeated(&run(seed));
    }
    for kind in PlanKind::ALL {
        is_repeated(&Run { kind: Some(kind), ..run(first) });
    }
}

fn is_repeated(run: &Run) {
    let [one, other] = [(); 2].map(|()| simulate(&Run { shows_trace: true, ..run.clone() }));
    let differs = one.lines.iter().zip(&other.lines).find(|(one, other)| one != other);
    let (seed, kind) = (run.seed, run.kind());
    assert_eq!(differs, None, "seed {seed}, {kind}");
    assert_eq!((one.trace, one.commands), (other.trace, other.commands), "seed {seed}, {kind}");
}

/// By how many runs one that breaks a promise is reduced at most.
const REDUCING: u64 = 500;
