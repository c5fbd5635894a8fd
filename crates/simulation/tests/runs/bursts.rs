//! Many cold keys at once, where servers and processes need time: each key is loaded once, and no breaker opens.

use std::time::Instant;

use bellwether_simulation::{PlanKind, Run, simulate};

/// Runs a burst from each of these seeds, and says what was broken.
fn broken(seeds: &[u64]) -> Vec<String> {
    let violations = |seed: &u64| {
        let (run, began) = (Run { seed: *seed, ..burst() }, Instant::now());
        let outcome = simulate(&run);
        let loads = outcome.loads;
        println!("seed {seed}, {:.1?}: {loads} loads: {:?}", began.elapsed(), outcome.violations);
        outcome.violations
    };
    seeds.iter().flat_map(violations).collect()
}

fn burst() -> Run {
    Run { kind: Some(PlanKind::Burst), ..Run::default() }
}

/// Of 16 processes x 1,000 keys: single calls, and batches.
#[test]
fn a_burst_of_cold_keys_loads_each_once() {
    assert_eq!(broken(&[142, 134]), [""; 0]);
}

/// Of 8 processes x 1,000 keys.
#[test]
fn a_burst_of_cold_keys_loads_each_once_where_processes_stop() {
    assert_eq!(broken(&[105]), [""; 0]);
}

/// Of 4 and 16 processes x 500 keys.
#[test]
fn a_burst_of_cold_keys_loads_each_once_where_processes_have_quotas() {
    assert_eq!(broken(&[108, 109]), [""; 0]);
}
