//! `bellwether`: the operator's tool. It shows what is stored of a key, removes it, watches a namespace, and
//! checks the servers.

mod args;
mod changes;
mod doctor;
mod finding;
mod follow;
mod hint;
mod inspect;
mod known_keys;
mod nodes;
mod output;
mod server;
mod target;
mod typed_key;
mod watch;

use std::error::Error;
use std::process::ExitCode;

use bellwether::store::Withdrawal;
use bellwether_redis::by_digest::{self, WithdrawnDigest};
use bellwether_redis_client::{ClientSetup, RedisRequest, RedisValue};
use clap::Parser;

use self::args::{Args, Command};
use self::server::ServerArgs;
use self::target::{CommandTarget, TargetArgs};

/// Why a command has failed, for people. It holds no secret.
type CliError = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(code) => code,
        Err(error) => {
            output::note(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

async fn run(Args { server, json, command }: Args) -> Result<ExitCode, CliError> {
    let is_well = match command {
        Command::Inspect { what, database, value } => {
            inspect::run(&server, what, &database, value, json).await?
        }
        Command::Invalidate(what) => {
            return change(&server, what, Withdrawal::Invalidate, json).await;
        }
        Command::Expire { what, over } => {
            return change(&server, what, Withdrawal::Expire { over }, json).await;
        }
        Command::Follow(args) => follow::run(&server, args, json).await?,
        Command::Watch { every, count, known } => {
            watch::run(&server, every, count, &known, json).await?
        }
        Command::Doctor(database) => doctor::run(&server, database.database, json).await?,
    };
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `invalidate` and `expire`.
async fn change(
    server: &ServerArgs,
    what: TargetArgs,
    change: Withdrawal,
    json: bool,
) -> Result<ExitCode, CliError> {
    let target = what.find(server).await?;
    let hint = match is_known(server, &target).await? {
        true => None,
        false => Some(hint::of(server, &target, &[]).await),
    };
    let was_stored = by_digest::change(&server.store()?, target.digest, change).await?;
    let (what, digest, was_stored) = match target.digest {
        WithdrawnDigest::Key(digest) => ("key", digest, Some(was_stored)),
        // No list of its entries exists.
        WithdrawnDigest::Tag(digest) => ("tag", digest, None),
    };
    let done = if change == Withdrawal::Invalidate { "invalidated" } else { "expired" };
    let done = ("done", done.into());
    let code = if hint.is_none() { ExitCode::SUCCESS } else { ExitCode::from(UNKNOWN) };
    let was_stored = ("was_stored", was_stored.into());
    let record = vec![(what, digest.to_string().into()), done, was_stored, ("hint", hint.into())];
    output::show(record, json)?;
    Ok(code)
}

/// Whether the servers know anything of a key or a tag. If not, it may be mistyped.
async fn is_known(server: &ServerArgs, target: &CommandTarget) -> Result<bool, CliError> {
    let tag = match &target.digest {
        WithdrawnDigest::Key(key) => {
            let state = by_digest::inspect(&server.store()?, key).await?;
            return Ok(hint::is_known(&state) || state.watermark.is_some());
        }
        WithdrawnDigest::Tag(tag) => tag,
    };
    let client = server.client(ClientSetup::default()).await?;
    let ask = RedisRequest::command("MGET", [client.names().tag_name(tag)], [], "reading a tag");
    let is_nothing = |reply: &RedisValue| matches!(nodes::list(reply), [] | [RedisValue::Nil]);
    Ok(!is_nothing(&client.run(&ask, Some).await?))
}

/// The exit code if nothing was known of what was changed.
const UNKNOWN: u8 = 3;
