//! `bellwether`: the operator's tool. It shows what is stored of a key, removes it, watches a namespace, and
//! checks the servers.

mod args;
mod doctor;
mod inspect;
mod nodes;
mod output;
mod server;
mod target;
mod watch;

use std::error::Error;
use std::process::ExitCode;

use bellwether::store::Change;
use bellwether_redis::by_digest::{self, ChangedDigest};
use clap::Parser;

use self::args::{Args, Command};
use self::server::ServerArgs;
use self::target::TargetArgs;

/// Why a command has failed, for people. It holds no secret.
type CliError = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bellwether: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all is well.
async fn run(Args { server, json, command }: Args) -> Result<bool, CliError> {
    match command {
        Command::Inspect(what) => inspect::run(&server, what, json).await?,
        Command::Invalidate(what) => change(&server, what, Change::Invalidate, json).await?,
        Command::Expire { what, over } => {
            change(&server, what, Change::Expire { over }, json).await?;
        }
        Command::Watch { every, count } => watch::run(&server, every, count, json).await?,
        Command::Doctor => return doctor::run(&server, json).await,
    }
    Ok(true)
}

/// `invalidate` and `expire`.
async fn change(
    server: &ServerArgs,
    what: TargetArgs,
    change: Change,
    json: bool,
) -> Result<(), CliError> {
    let target = what.find(server).await?;
    let was_stored = by_digest::change(&server.store()?, target, change).await?;
    let (what, digest, was_stored) = match target {
        ChangedDigest::Key(digest) => ("key", digest, Some(was_stored)),
        // No list of its entries exists.
        ChangedDigest::Tag(digest) => ("tag", digest, None),
    };
    let done = if change == Change::Invalidate { "invalidated" } else { "expired" };
    let done = ("done", done.into());
    let record = vec![(what, digest.to_string().into()), done, ("was_stored", was_stored.into())];
    Ok(output::show(record, json)?)
}
