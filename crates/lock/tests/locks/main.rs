//! What the locks promise, without a server.

#[cfg(feature = "macros")]
mod attribute;
mod contract;
mod ending;
mod error_chains;
mod exclusion;
mod guarded;
mod owners;
mod renewal;
mod running;
mod storm;
mod support;
mod waiting;
