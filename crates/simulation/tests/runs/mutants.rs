//! The simulation finds scripts that break a promise.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use bellwether_simulation::{Campaign, PlanKind, ReducedRun, Run, simulate};

/// What is wrong in a script: the text of it, and what stands there instead.
const MUTANTS: [(&str, &str, &str); 8] = [
    ("a commit ignores the watermark", "fence <= watermark or fence <= stored", "fence <= stored"),
    (
        "an invalidation does not raise the watermark",
        "struct.pack('>I8', watermark)",
        "struct.pack('>I8', 0)",
    ),
    (
        "an invalidation leaves the lease",
        "redis.call('DEL', KEYS[2], KEYS[4])",
        "redis.call('DEL', KEYS[4])",
    ),
    ("a lease that another process holds is granted", "    busy = left\n", "    busy = false\n"),
    ("a commit leaves the lease", "if is_ours then redis.call('DEL', KEYS[2]) end", ""),
    (
        "a lease whose grant was lost is not given up",
        "gives = gives + redis.call('DEL', name)",
        "gives = gives + 1",
    ),
    (
        "waiters are not told of the end of a lease",
        "redis.pcall('PUBLISH', channel .. mark, message or name)",
        "redis.pcall('EXISTS', name)",
    ),
    (
        "an invalidation leaves the epoch of a tag",
        "local changed = epoch .. epoch",
        "local changed = known and value or epoch .. epoch",
    ),
];

/// The texts of all scripts.
const SCRIPTS: [&str; 6] = [
    include_str!("../../../redis-client/src/prelude.lua"),
    include_str!("../../../redis/src/abandon.lua"),
    include_str!("../../../redis/src/acquire.lua"),
    include_str!("../../../redis/src/change_tag.lua"),
    include_str!("../../../redis/src/commit.lua"),
    include_str!("../../../redis/src/invalidate.lua"),
];

/// Scripts are wrong or not, whatever time they need.
fn run() -> Run {
    Run { kind: Some(PlanKind::Faults), operations: 1_000, ..Run::default() }
}

/// Runs until a promise is broken, for a minute at most.
fn found(run: &Run) -> Campaign {
    let began = Instant::now();
    Campaign::run(run, |total, _| {
        total.violations.is_empty() && began.elapsed() < Duration::from_secs(60)
    })
}

#[test]
fn a_run_that_breaks_a_promise_is_reduced_to_what_that_needs() {
    let (name, text, instead) = MUTANTS[0];
    let run = Run { seed: 1, mutations: [(text, instead)].into(), ..run() };
    let seed = found(&run).broken_by.unwrap_or_else(|| panic!("not found: {name}"));
    let reduced = ReducedRun::of(&Run { seed, ..run }, 500).expect("a violation");
    println!("{reduced}");
    assert_eq!(simulate(&reduced.run).violations, reduced.outcome.violations, "it is repeated");
    assert!(!reduced.outcome.violations.is_empty());
    let [operations, faults] = reduced.run.reduction.kept.map(|kept| kept.expect("some").len());
    assert!(operations <= 20 && faults <= 20, "{operations} operations and {faults} faults");
}

#[test]
fn each_mutant_is_found_within_a_minute() {
    for (name, text, instead) in MUTANTS {
        assert!(SCRIPTS.iter().any(|script| script.contains(text)), "no script has {text}");
        let seed = RandomState::new().hash_one(0) >> 32;
        let mutations = [(text, instead)].into();
        let began = Instant::now();
        let run = Run { seed, mutations, ..run() };
        let campaign = found(&run);
        let (took, seeds) = (began.elapsed(), campaign.seeds);
        let violation = campaign.total.violations.first();
        println!("{name}: {seeds} seeds, {took:.1?}: {violation:?}");
        assert!(violation.is_some(), "not found: {name}, from seed {seed}");
    }
}
