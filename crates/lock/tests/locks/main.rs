//! What the locks promise, without a server.

#[cfg(feature = "macros")]
mod attribute;
#[cfg(all(feature = "redis", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod connecting;
mod contract;
mod ending;
mod error_chains;
mod exclusion;
mod owners;
mod renewal;
mod running;
mod stats;
mod storm;
mod support;
mod waiting;
