//! The command line.

use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::follow::FollowArgs;
use crate::known_keys::KnownKeysArgs;
use crate::server::{ServerArgs, seconds};
use crate::target::TargetArgs;

/// Look into a cache of bellwether in Redis, and mend it.
///
/// Rights: those of the cache; for `watch` +client|tracking; to find a key by a few digits +scan; for all of
/// `doctor` +info and +config|get.
///
/// Exit codes: 0 if the command is done; 1 if it has failed, or if `doctor` has found something to mend; 2 if
/// the command line is wrong; 3 if `invalidate` or `expire` is done, and the servers knew nothing of that key or tag.
#[derive(Debug, Parser)]
#[command(name = "bellwether", version)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print JSON: one object, and for `watch` and `doctor` one on each line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what is stored of a key: the entry, its tags, the lease, the cooldown. With a database, also its recorded
    /// changes.
    Inspect {
        #[command(flatten)]
        what: TargetArgs,
        #[command(flatten)]
        database: DatabaseArgs,
        /// Show the value too, if it is text.
        #[arg(long)]
        value: bool,
    },
    /// Remove an entry, or all entries of a tag. Loads that are under way store nothing of before.
    Invalidate(TargetArgs),
    /// Make an entry, or all entries of a tag, stale. One without a stale window is removed.
    Expire {
        #[command(flatten)]
        what: TargetArgs,
        /// Over how many seconds the entries of a tag become stale, to spare the source.
        #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds, conflicts_with_all = ["kind", "digest"])]
        over: Duration,
    },
    /// Apply what a database has recorded: by triggers, functions, or a program. Without it, a program does so itself.
    ///
    /// It makes no table: a migration of the database does.
    Follow(FollowArgs),
    /// Show what happens in a namespace, line by line
    ///
    /// The servers report each name of the namespace that changes (client tracking). By that, it counts:
    ///
    ///   leases       that were taken: for loads, and each `put`. One that is taken within 3 s after
    ///                another one of its key that led to no result is not counted
    ///   stored       entries that were stored
    ///   failed       loads that have failed
    ///   invalidated  keys that were invalidated or expired
    ///   ended        entries whose life has ended, or that were evicted
    ///   tags         tags that were made, prolonged, invalidated or expired
    ///   gaps         times at which reports may have been lost, or all names were removed
    ///   busiest      the key with most leases, by the first digits that logs and `inspect --digest` have;
    ///                its name, too, if it is among `--keys`
    ///   lookups      commands of lookups, each for up to 32 keys, of all namespaces (it needs +info)
    ///
    /// Hits cannot be seen one by one: servers report no reads, and near copies send none. The metrics of
    /// a program have them.
    #[command(verbatim_doc_comment)]
    Watch {
        /// The seconds between two lines.
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
        every: Duration,
        /// Stop after so many lines.
        #[arg(long, value_name = "LINES")]
        count: Option<u64>,
        #[command(flatten)]
        known: KnownKeysArgs,
    },
    /// Check the servers: rights, version, memory and eviction, messages, tracking, clocks, latency,
    /// persistence, replicas. With a database, also its table of changes.
    Doctor(DatabaseArgs),
}

/// The database that records changes.
#[derive(Debug, clap::Args)]
pub(crate) struct DatabaseArgs {
    /// The address of the database, such as postgres://user@host/shop or mysql://user@host/shop.
    #[arg(long, value_name = "URL", env = "BELLWETHER_DATABASE_URL", hide_env_values = true)]
    pub(crate) database: Option<String>,
}
