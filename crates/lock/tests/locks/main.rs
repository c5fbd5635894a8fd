//! What the locks promise, without a server.

#[cfg(feature = "macros")]
mod attribute;
mod contract;
mod ending;
mod exclusion;
mod guarded;
mod owners;
mod renewal;
mod running;
mod stats;
mod storm;
mod support;
mod waiting;
