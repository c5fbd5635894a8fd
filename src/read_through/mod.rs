//! Requests that are read through a cache: what `Cache`, layers and adapters have in common.
//!
//! # The path of a request
//! ```text
//!  lookup ─fresh──────────────────────────────────► answered (hit)
//!    ├─stale, but usable──────────────────────────► answered (stale), refreshed in the background
//!    └─miss─► join the flight of the key ─► wait for its outcome ─► answered (led, collapsed)
//!                │ its first caller starts a task
//!                ▼
//!             ask for the lease ──found──► complete
//!                ├─busy──────────► wait for a push message, or a delay ─► ask again
//!                ├─in cooldown───► complete with the failure, or with a stale answer
//!                └─granted───────► load, renewing the lease ─► store and release ─► complete
//! ```
//!
//! A lone caller reads the store itself, without a task. Concurrent callers of a key share a
//! flight, and each request of the flight to the store is for all callers that had joined by then.
//! So the store's work in a burst grows with processes and not with callers.

pub(crate) mod adapter_cache;
mod audit;
mod core;
mod delegate;
pub(crate) mod error_rules;
mod flight_task;
pub(crate) mod future;
pub(crate) mod handle;
pub(crate) mod key_request;
pub(crate) mod layer;
pub(crate) mod load;
mod load_group;
pub(crate) mod many;
pub(crate) mod outcome;
pub(crate) mod remembered;
pub(crate) mod service;
mod step;
