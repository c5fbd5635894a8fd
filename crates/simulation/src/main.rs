//! Runs simulations from many seeds, and prints what was checked. Of the first violation, it prints the least
//! run that has it.
//!
//! ```text
//! cargo run --release -p bellwether-simulation -- --seeds 1000 [--seconds N] [--from SEED] [--operations N]
//!     [--kind faults|slow|burst|first-burst] [--trace] [--until-broken] [--keep-operations N,N]
//!     [--keep-faults N,N] [--simpler NAME,NAME]
//! ```
//!
//! Without `--kind`, seeds that follow each other have the kinds of plans in fixed shares.

use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs};

use bellwether_simulation::{Campaign, PlanKind, ReducedRun, Reduction, Run};

fn main() -> ExitCode {
    let number = |name: &str| {
        let number = option(name)?.parse::<u64>();
        Some(number.unwrap_or_else(|_| panic!("{name} takes a number")))
    };
    let kept = ["--keep-operations", "--keep-faults"].map(|name| {
        let numbers = option(name)?;
        let number = |number: &str| number.parse().expect("a number");
        Some(numbers.split(',').filter(|it| *it != "none").map(number).collect())
    });
    let simpler = option("--simpler").unwrap_or_default();
    let simpler = Reduction::names().filter(|name| simpler.split(',').any(|it| it == *name));
    let run = Run {
        seed: number("--from").unwrap_or_else(|| RandomState::new().hash_one(0) >> 32),
        kind: option("--kind").map(|name| PlanKind::named(&name).expect("a kind of plans")),
        operations: number("--operations").unwrap_or(2_000),
        mutations: [].into(),
        shows_trace: env::args().any(|arg| arg == "--trace"),
        reduction: Reduction { kept, simpler: simpler.collect() },
        ends_at: None,
    };
    let until_broken = env::args().any(|arg| arg == "--until-broken");
    let seconds = number("--seconds").map(Duration::from_secs);
    let seeds = number("--seeds").unwrap_or_else(|| seconds.map_or(1, |_| u64::MAX));
    let began = Instant::now();
    let shown = AtomicUsize::new(0);
    let campaign = Campaign::run(&run, |total, begun| {
        let before = shown.swap(total.violations.len(), Ordering::Relaxed);
        total.violations[before..].iter().take(3).for_each(|line| println!("{line}"));
        let is_broken = until_broken && !total.violations.is_empty();
        !is_broken && begun < seeds && seconds.is_none_or(|seconds| began.elapsed() < seconds)
    });
    campaign.lines.iter().for_each(|line| println!("{line}"));
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    println!("{campaign}");
    let of_processors = processor_time().map_or(minutes, |time| time.as_secs_f64() / 60.0);
    let [rate, of_one] = [minutes, of_processors].map(|it| campaign.total.operations as f64 / it);
    println!("{rate:.0} operations a minute, {of_one:.0} a minute of one processor");
    let Some(seed) = campaign.broken_by else { return ExitCode::SUCCESS };
    if !run.shows_trace && !until_broken {
        let run = Run { seed, ..run };
        let (kind, reduced) = (run.kind(), ReducedRun::of(&run, REDUCING));
        match reduced {
            Some(reduced) => println!("{reduced}"),
            None => println!("{COMMAND} --from {seed} --kind {kind} --trace"),
        }
    }
    ExitCode::FAILURE
}

/// How long the processors have run this program. None where that cannot be read.
fn processor_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut ticks = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let mut next = || ticks.next()?.parse::<u64>().ok();
    // There are a hundred ticks in a second, on every Linux that we know.
    Some(Duration::from_millis(10 * (next()? + next()?)))
}

/// What follows an option.
fn option(name: &str) -> Option<String> {
    env::args().skip_while(|arg| arg != name).nth(1)
}

/// What repeats a run.
const COMMAND: &str = "cargo run --release -p bellwether-simulation --";

/// By how many runs one is reduced at most.
const REDUCING: u64 = 1_000;
