//! What the locks promise, without a server.

#[cfg(feature = "macros")]
mod attribute;
mod contract;
mod ending;
mod exclusion;
mod guarded;
mod renewal;
mod owners;
mod running;
mod storm;
mod support;
mod waiting;
