//! A stampede, four ways side by side.
//!
//! Many callers in several processes ask for the same products of a catalog at the same instant,
//! and nothing is cached yet. One run repeats that burst in four ways, on the same keys:
//!
//! - **unprotected**: every caller queries the database;
//! - **moka**: the callers of a process share one load, by `try_get_with` of moka;
//! - **polling**: one caller takes the usual lock in Redis, and the others sleep 25 ms and look
//!   again ([`ways::polling`]);
//! - **bellwether**: this crate, as a layer around the same loader ([`ways::protected`]).
//!
//! ```text
//! cargo run --release --example stampede
//! cargo run --release --example stampede -- --store redis://127.0.0.1:6379 --html report.html
//! cargo run --release --example stampede -- --store redis://127.0.0.1:6379 --svg plot.svg
//! ```
//!
//! A query takes 50 ms, and holds one of the 20 connections of all processes while it does. So do
//! queries of real services: unprotected callers queue for connections ([`loader`]).
//!
//! No figure comes from the code that it measures:
//!
//! - **Queries** are counted in the database. Each query leaves a row there, and the program counts
//!   the rows after the run. That works in any database, and for all processes ([`database`]).
//! - **Behind the load** is the time from the end of a key's first load to the answer of a caller
//!   that did not load it. All processes read the wall clock of one machine ([`measure`]).
//! - **Redis commands** are counted by the Redis server ([`server`]), so no other program may use it
//!   during the run.
//! - **Answers** are compared with the catalog's generator; a wrong answer is an error
//!   ([`catalog`]).
//!
//! With `--store memory` each process has entries of its own, so P processes cost P queries per key.
//! There is nothing to poll, and moka does the same, so these ways are left out.

mod args;
#[path = "../shared/catalog.rs"]
mod catalog;
mod clock;
mod coordinator;
mod database;
mod fleet;
mod loader;
mod measure;
mod messages;
mod popularity;
mod report;
mod server;
#[cfg(not(any(feature = "mysql", feature = "postgres")))]
#[path = "../shared/shown.rs"]
mod shown;
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[path = "../shared/tables/mod.rs"]
mod tables;
mod ways;
mod worker;

use std::process::ExitCode;

use args::{Args, Settings};
#[cfg(any(feature = "mysql", feature = "postgres"))]
use tables::shown;

/// What ends a run, or one answer: an error with a message for people.
type Fault = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::from_command_line();
    let ended =
        if args.is_worker() { worker::run().await } else { stampede(&args.into_settings()).await };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("stampede: {fault}");
            ExitCode::FAILURE
        }
    }
}

async fn stampede(settings: &Settings) -> Result<(), Fault> {
    let outcome = coordinator::run(settings).await?;
    report::give(settings, &outcome)
}
