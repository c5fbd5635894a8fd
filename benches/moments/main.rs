//! The moments a stampede protection is bought for: a fleet that misses, a Redis that is down, values that are
//! large.
//!
//! ```text
//! cargo bench -p bellwether-benches --bench moments -- [OPTIONS]     worker processes ask for the same cold keys
//! cargo bench -p bellwether-benches --bench moments -- --outage KIND    requests while a Redis is away
//! cargo bench -p bellwether-benches --bench moments -- --link MBIT      large values beside small ones
//! cargo bench -p bellwether-benches --bench moments -- --help           all options
//! ```
//!
//! It uses only what has been public for long, so that this folder measures older code as well:
//!
//! ```text
//! git worktree add ../old COMMIT
//! cp -r benches/moments ../old/benches/
//! printf '\n[[bench]]\nname = "moments"\npath = "moments/main.rs"\nharness = false\n' >>../old/benches/Cargo.toml
//! cd ../old && cargo bench -p bellwether-benches --bench moments -- --processes 16 --keys 1000
//! ```
//!
//! The program starts itself as each worker of a fleet. It exits with 1 if a run fails.

mod disturbance;
mod fault;
mod fleet;
mod link;
mod options;
mod outage;
mod storm;
mod worker;

use std::env;
use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [flag, setup] = args.as_slice()
        && flag == worker::FLAG
    {
        worker::work(setup);
        return ExitCode::SUCCESS;
    }
    // A test runner asks for the names of tests: there are none.
    if args.iter().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(&args) {
        Ok(Some(options)) => options,
        // Words of the other benchmark.
        Ok(None) => return ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    let is_passed = if !options.outage.kinds.is_empty() {
        outage::run(&options, &options.outage)
    } else if !options.link.mbit.is_empty() {
        link::run(&options, &options.link)
    } else {
        storm::run(&options)
    };
    if is_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
