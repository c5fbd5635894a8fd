//! Shared tools of bellwether's test suites.
//!
//! | module | feature | what it is for |
//! |---|---|---|
//! | [`loaders`] | | loaders that count, and end their loads as a test says |
//! | [`caches`] | | layers over such a loader, requests to them, and what another process does |
//! | [`clock`] | | the clock that all processes of a machine share |
//! | [`error_chain`] | | the causes of an error |
//! | [`recorder`] | | a recorder of the `metrics` facade |
//! | [`spans`] | | a subscriber that records spans, their parents and their links |
//! | [`wait`] | | waiting for what cannot be awaited |
//! | [`servers`] | `servers` | Redis, MariaDB, PostgreSQL and ZooKeeper, each started for one test |
//! | [`exposition`] | `servers` | metrics in the text format of Prometheus |
//! | [`ledger`] | `servers` | a table in a database, into which the loaders of several processes write |
//! | [`faults`] | `servers` | a proxy that does what bad networks and bad servers do |
//! | [`processes`] | `servers` | copies of a test binary as worker processes, and other programs |
//! | [`seeds`] | `servers` | random numbers that can be repeated |
//! | [`locks`] | `lock` | worker processes that take locks, and what fencing tokens protect |
//!
//! Only integration tests, benchmarks and examples use it. The unit tests of a crate that this one
//! depends on would meet two copies of that crate's types.

#![allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    clippy::new_without_default,
    reason = "only tests of this workspace use it"
)]

use std::path::Path;

pub mod caches;
pub mod clock;
pub mod error_chain;
#[cfg(feature = "servers")]
pub mod exposition;
#[cfg(feature = "servers")]
pub mod faults;
#[cfg(feature = "servers")]
pub mod ledger;
pub mod loaders;
#[cfg(feature = "lock")]
pub mod locks;
#[cfg(feature = "servers")]
pub mod processes;
pub mod recorder;
#[cfg(feature = "servers")]
pub mod seeds;
#[cfg(feature = "servers")]
pub mod servers;
pub mod spans;
pub mod wait;

/// The root of the workspace, where `scripts` and `target` are.
pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
