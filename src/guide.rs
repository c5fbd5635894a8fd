//! Guides: one task per page, ten minutes at most.
//!
//! Read [`getting_started`] first. The other pages stand alone:
//!
//! | page | read it to |
//! |---|---|
//! | [`getting_started`] | put a cache in front of a loader, and see one load for a thousand callers |
//! | [`lifetimes`] | choose a ttl, stale windows, early refresh and jitter |
//! | [`negative_caching`] | decide what happens to "not found", to private answers and to failures |
//! | [`invalidation`] | know what `invalidate` guarantees, and what a crash or an eviction loses |
//! | [`failures`] | see what callers get for each fault, and set the bounds: deadlines, circuit breaker, load shedding |
//! | [`observability`] | publish metrics, and see whether it works |
//! | [`log_messages`] | look up a warning |
//! | [`testing`] | test your service without a server, with paused time and injected faults |
//! | [`how_it_works`] | understand the protocol: flight, lease, fencing token, push |
//! | [`alternatives`] | compare bellwether with other caches |
//!
//! Other crates have guides of their own: `bellwether_redis::guide`, `bellwether_http::guide`,
//! `bellwether_grpc::guide` and `bellwether_lock::guide`.

#[doc = include_str!("guide/alternatives.md")]
pub mod alternatives {}

#[doc = include_str!("guide/failures.md")]
pub mod failures {}

#[doc = include_str!("guide/getting_started.md")]
pub mod getting_started {}

#[doc = include_str!("guide/how_it_works.md")]
pub mod how_it_works {}

#[doc = include_str!("guide/invalidation.md")]
pub mod invalidation {}

#[doc = include_str!("guide/lifetimes.md")]
pub mod lifetimes {}

#[doc = include_str!("guide/negative_caching.md")]
pub mod negative_caching {}

#[doc = include_str!("guide/log_messages.md")]
pub mod log_messages {}

// `crates/readme` compiles the example, whose dependencies are not those of this crate.
#[cfg_attr(not(doctest), doc = include_str!("guide/observability.md"))]
pub mod observability {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}
