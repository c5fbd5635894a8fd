//! The HTTP layer, seen by its callers and by the origin behind it.
#![cfg(all(feature = "axum", feature = "redis"))]

mod burst;
mod changes;
mod credentials;
mod failures;
mod keyed;
mod not_modified;
mod origin;
mod poison;
mod privacy;
mod refusals;
mod reload;
mod rewrites;
mod shapes;
mod streams;
mod upgrades;
mod users;
mod validation;
mod vary;

#[path = "../support/mod.rs"]
mod support;

#[path = "../../examples/reverse_proxy/proxy.rs"]
mod proxy;
