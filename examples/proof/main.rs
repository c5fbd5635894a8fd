//! The promises of bellwether, checked from outside: in many processes, on real servers that fail, for as long
//! as one likes.
//!
//! ```text
//! cargo run --release -p bellwether-proof -- --minutes 40
//! ```
//!
//! This program starts servers ([`servers`]) and processes of itself ([`worker`]), is the source that they load
//! from ([`source`]), and injects faults ([`turn`]). It writes `report.html` and `report.json` into
//! `target/proof`, adds up over sessions there, and ends with exit code 1 if a promise was broken. Each violation
//! is a line of `violations.jsonl`, with the history of its row, the faults around it, and the seed.
//!
//! # What runs
//! Turns on a single Redis, half of whose clients are behind a bad network; on a cluster of three primaries and
//! three replicas; and on a primary and a replica with three sentinels. In each worker, two stores, one with near
//! copies and one without, share seven kinds of caches ([`kinds`]): short and long lifetimes, stale windows,
//! early refreshes, tags of both sorts, values that are put. Its tasks read hot and cold rows one by one and in
//! batches, with deadlines, and leave; others change rows and groups of rows, and invalidate, expire or put them.
//!
//! Faults: workers are killed and stopped, servers are killed, restarted empty, stopped, flushed and failed over,
//! slots move, connections are cut, delayed, refused and silent, the source fails. Where a PostgreSQL is installed, some
//! changes are only recorded there, by a worker or by triggers of a table that it updates; each worker follows it, and
//! it is killed, restarted, failed over to its replica, stopped, and ends connections.
//!
//! # What is checked
//! | promise | how |
//! |---|---|
//! | nothing outlives its invalidation | each row has a version; each read compares it with the floors that were known before it began ([`floors`]): also with that of a change which a follower has applied |
//! | near copies | the same, but a copy may lag behind another process for 1.25 s |
//! | stale answers | the same for invalidations; after an expiry, they end with their window |
//! | whole values | each row has its key and a checksum |
//! | bounded waits | by the clock, less the time in which the process did not run |
//! | one load | bursts on new keys, whose loads the source counts ([`bursts`]) |
//!
//! The report also has how long after each invalidation the last old answer was given ([`late`]).
//!
//! All processes read one monotonic clock, and no check depends on how long anything takes, except those of
//! times.
//!
//! A read that looks like a violation is judged when its turn is over and all faults are known ([`judge`]). What
//! the guides except is counted apart ([`faults`]): an invalidation that Redis forgot by a flush or an empty
//! restart during a load, or that a failover lost until it is re-asserted.
//!
//! `--plant stale` leaves out some invalidations, so that there is something to find.

mod args;
mod bursts;
mod clock;
mod faults;
mod floors;
mod hub;
mod judge;
mod kinds;
mod late;
mod locked;
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
