//! `follow`: applies what a database has recorded, as a `Follower` in a program does.

use std::time::Duration;

use bellwether_sql::{ChangesDatabase, Follower, FollowerHandle, FollowerStats};
use sqlx::{Connection, MySql, Pool, Postgres};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{interval, timeout};

use crate::CliError;
use crate::changes::connected;
use crate::output::{millis, show};
use crate::server::{ServerArgs, seconds};

/// Where the changes are, and for which caches.
#[derive(Debug, clap::Args)]
pub(crate) struct FollowArgs {
    /// The address of the database, such as postgres://user@host/shop or mysql://user@host/shop.
    #[arg(env = "BELLWETHER_DATABASE_URL", hide_env_values = true)]
    database: String,
    /// A cache by its name; one of a version as item@2.
    #[arg(long = "cache", value_name = "NAME", required = true)]
    caches: Vec<String>,
    /// The Redis of another region, with the same namespace and credentials. A change is done when all have it.
    #[arg(long, value_name = "URL")]
    also: Vec<String>,
    /// The schema of the table, in PostgreSQL. Otherwise `public`.
    #[arg(long)]
    schema: Option<String>,
    /// The seconds between two reports.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    every: Duration,
}

/// Follows until it is told to end, by a signal, which is well.
pub(crate) async fn run(
    server: &ServerArgs,
    args: FollowArgs,
    json: bool,
) -> Result<bool, CliError> {
    let mut ended = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let follower =
        match args.database.starts_with("mysql:") || args.database.starts_with("mariadb:") {
            true => start::<MySql>(server, &args).await?,
            false => start::<Postgres>(server, &args).await?,
        };
    let mut ticks = interval(args.every.max(Duration::from_millis(100)));
    loop {
        tokio::select! {
            _ = ticks.tick() => report(&follower.stats(), json)?,
            _ = ended.recv() => break,
            _ = interrupted.recv() => break,
        }
    }
    // It may wait for a database that is gone. What it has taken is left to others.
    _ = timeout(GRACE, follower.shutdown()).await;
    Ok(true)
}

async fn start<D: ChangesDatabase>(
    server: &ServerArgs,
    args: &FollowArgs,
) -> Result<FollowerHandle, CliError> {
    // A pool would not say why it cannot connect.
    connected::<D::Connection>(&args.database).await?.close().await?;
    let pool = Pool::<D>::connect_lazy(&args.database)?;
    let mut follower = Follower::new(pool, server.store()?);
    if let Some(schema) = &args.schema {
        follower = follower.schema(schema);
    }
    for url in &args.also {
        follower = follower.also(server.store_at(url)?);
    }
    for kind in &args.caches {
        let name = kind.split_once('@').map_or(kind.as_str(), |(name, _)| name);
        follower = follower.kind(name, kind);
    }
    Ok(follower.start().await?)
}

fn report(stats: &FollowerStats, json: bool) -> Result<(), CliError> {
    let record = vec![
        ("pending", stats.pending.into()),
        ("oldest_ms", millis(stats.oldest)),
        ("applied", stats.applied.into()),
        ("reapplied", stats.reapplied.into()),
        ("dead", stats.dead.into()),
        ("database_errors", stats.database_errors.into()),
        ("store_errors", stats.store_errors.into()),
    ];
    Ok(show(record, json)?)
}

/// How long it may take to end.
const GRACE: Duration = Duration::from_secs(5);
