//! Runs simulations from many seeds, and prints what was checked.
//!
//! ```text
//! cargo run --release -p bellwether-simulation -- --seeds 1000 [--from SEED] [--operations N] [--trace]
//! ```

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bellwether_simulation::{Campaign, Run};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().collect();
    let number = |name: &str| {
        let place = args.iter().position(|arg| arg == name)?;
        let number = args.get(place + 1).and_then(|number| number.parse::<u64>().ok());
        Some(number.unwrap_or_else(|| panic!("{name} takes a number")))
    };
    let from = number("--from").unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let seeds = number("--seeds").unwrap_or(1);
    let shows_trace = args.iter().any(|arg| arg == "--trace");
    let operations = number("--operations").unwrap_or(2_000);
    let run = Run { seed: from, operations, mutations: [].into(), shows_trace };
    let began = Instant::now();
    let shown = AtomicUsize::new(0);
    let campaign = Campaign::run(&run, |total, begun| {
        let before = shown.swap(total.violations.len(), Ordering::Relaxed);
        total.violations[before..].iter().take(3).for_each(|line| println!("{line}"));
        begun < seeds
    });
    campaign.lines.iter().for_each(|line| println!("{line}"));
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    println!("{campaign}");
    println!("{:.0} operations a minute", campaign.total.operations as f64 / minutes);
    if campaign.total.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
