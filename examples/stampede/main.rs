//! A stampede, three ways side by side.
//!
//! Many callers, in as many processes as you like, ask for the same products of a catalog at the
//! same instant, and nothing is cached yet. One run repeats that burst three ways over the same
//! cold keys:
//!
//! - **unprotected**: every caller queries the database;
//! - **polling**: the usual lock in Redis, whose losers sleep 200 ms and look again
//!   ([`ways::polling`]);
//! - **bellwether**: this crate, as a layer around the very same loader ([`ways::protected`]).
//!
//! ```text
//! cargo run --release --example stampede
//! cargo run --release --example stampede -- --store redis://127.0.0.1:6379 --html report.html
//! ```
//!
//! Nothing that is reported rests on a way's own word:
//!
//! - **Queries** are counted where the database sees them. Each query leaves a row there, and the
//!   rows are counted afterwards: that works in any database, and for all processes at once
//!   ([`database`]).
//! - **How far losers are behind** is the wall clock of the one machine all processes run on: when
//!   a caller that loaded nothing had its answer, minus when the first load of its key ended
//!   ([`measure`]).
//! - **Redis commands** are counted by the Redis server ([`server`]). Let nobody else use it
//!   meanwhile.
//! - **Answers** are compared with what the catalog was generated from; a wrong one is an error
//!   ([`catalog`]).
//!
//! With `--store memory` every process has entries of its own, so P processes cost P queries a key;
//! and there is nothing to poll, so that way is left out.

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
#[path = "../shared/tables/mod.rs"]
mod tables;
mod ways;
mod worker;

use std::process::ExitCode;

use args::{Args, Settings};
use indicatif::{ProgressBar, ProgressStyle};

/// What ends a run, or one answer, in words for a person.
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
    let progress = progress_bar(settings);
    let outcome = coordinator::run(settings, &progress).await;
    progress.finish_and_clear();
    report::give(settings, &outcome?)
}

fn progress_bar(settings: &Settings) -> ProgressBar {
    let bursts = u64::from(settings.rounds) * settings.ways().len() as u64;
    let style = ProgressStyle::with_template("{msg:12} {wide_bar} {pos}/{len} bursts, {eta} to go");
    ProgressBar::new(bursts).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
