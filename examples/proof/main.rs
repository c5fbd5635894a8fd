//! The promises of bellwether, proven from outside: as many reads as one likes, each of them checked.
mod args;
mod bursts;
mod clock;
mod faults;
mod floors;
mod hub;
mod judge;
mod kinds;
mod messages;
mod process;
mod report;
mod row;
mod servers;
mod session;
mod source;
mod state;
mod tally;
mod turn;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Role};

/// What ends the program, in words for a person.
type Fault = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let args = Args::parse();
    match &args.role {
        Some(Role::Worker { setup }) => worker::run(setup),
        Some(Role::Report) => ended(session::write_report(&args).map(|()| true)),
        None => {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            ended(runtime.block_on(session::run(&args)))
        }
    }
}

fn ended(kept: Result<bool, Fault>) -> ExitCode {
    match kept {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("proof: {fault}");
            ExitCode::from(2)
        }
    }
}
