//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::floors::MOST_WORKERS;

/// Checks the promises of bellwether from outside: random readers and writers in many processes, on real servers
/// that are killed, stopped, cut off, flushed and failed over. Each read is checked: see the docs of `main.rs`.
///
/// Ends with exit code 1 if a promise was broken. The violations are in `violations.jsonl` of the state, with
/// their histories.
#[derive(Clone, Debug, Parser)]
#[command(name = "proof")]
pub(crate) struct Args {
    /// How long to run, in minutes
    #[arg(long, default_value_t = 5.0)]
    pub(crate) minutes: f64,

    /// On which servers, in turns: one behind a bad network, a cluster of 3 primaries and 3 replicas, a primary
    /// and a replica with three sentinels
    #[arg(long, value_enum, value_delimiter = ',', default_value = "single,cluster,sentinel")]
    pub(crate) servers: Vec<ServerKind>,

    /// How many minutes a turn lasts at most
    #[arg(long, default_value_t = 4.0)]
    pub(crate) turn: f64,

    /// How many worker processes
    #[arg(long, default_value_t = 4, value_parser = workers)]
    pub(crate) workers: usize,

    /// How many near copies are read per second, in all workers together
    #[arg(long, default_value_t = 120_000)]
    pub(crate) near_rate: u64,

    /// The seed of all random numbers (default: a new one)
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// Where the counts of all sessions add up. A session goes on with what is there
    #[arg(long, value_name = "DIR", default_value = "target/proof")]
    pub(crate) state: PathBuf,

    /// Where the report is written: `report.html` and `report.json` (default: beside the state)
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,

    /// The commit that the report names (default: what git says)
    #[arg(long)]
    pub(crate) commit: Option<String>,

    /// Injects no faults
    #[arg(long)]
    pub(crate) calm: bool,

    /// Breaks a promise, to see that it is found: `stale` leaves out some invalidations
    #[arg(long, hide = true)]
    pub(crate) plant: Option<Plant>,

    #[command(subcommand)]
    pub(crate) role: Option<Role>,
}

/// What a process is, if it is not the main one.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Role {
    /// A worker of a session.
    #[command(hide = true)]
    Worker {
        /// In JSON.
        setup: String,
    },
    /// Writes the report of what the state holds, and runs nothing.
    Report,
}

/// Which servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerKind {
    Single,
    Cluster,
    Sentinel,
}

/// Which promise a worker breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    Stale,
}

impl ServerKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Cluster => "cluster",
            Self::Sentinel => "sentinel",
        }
    }
}

fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=MOST_WORKERS).contains(&count) => Ok(count),
        _ => Err(format!("not a number from 1 to {MOST_WORKERS}")),
    }
}
