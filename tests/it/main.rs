//! What bellwether promises, without a server.

mod audits;
mod bad_input;
mod bounds;
mod cache;
mod cancel;
mod context;
mod disabled;
mod error_chains;
mod failure;
mod faulty_gates;
mod faulty_store;
mod flights_properties;
mod hit;
mod invalidate;
mod loads;
#[cfg(feature = "macros")]
mod macros;
mod many;
mod memory_store;
mod miss;
mod outage;
mod private_answers;
mod reentry;
mod stale;
mod stats;
mod support;
mod tags;
mod tidy;
mod tower_contract;
mod wait;
mod watches;
