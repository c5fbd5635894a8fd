//! Shared tools of bellwether's test suites: loaders that count, layers over them, and recorders of metrics and spans.
//!
//! With the feature `servers` also [`servers`], a proxy that injects [`faults`], and worker [`processes`]. With `lock`,
//! worker processes that take [`locks`].
//!
//! Only integration tests, benchmarks and examples use it, and of [`fuzz`] also unit tests.

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
pub mod fuzz;
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
