//! The layer: a cache in front of any Tower service.
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::{Key, MemoryStore, ReadThroughLayer};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! #[derive(Clone, Copy)]
//! struct Sku(u64);
//!
//! async fn load_from_db(sku: Sku) -> Result<String, std::io::Error> {
//!     Ok(format!("item {}", sku.0))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = ReadThroughLayer::new(MemoryStore::new(10_000), |sku: &Sku| {
//!     Key::of("item").with(sku.0)
//! })
//! .ttl(Duration::from_secs(60));
//! let cache = layer.handle();
//!
//! let mut catalog = ServiceBuilder::new().layer(layer).service(tower::service_fn(load_from_db));
//! assert_eq!(catalog.ready().await?.call(Sku(42)).await?, "item 42");
//!
//! // After the source has changed:
//! cache.invalidate(&Key::of("item").with(42)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A key function can return `None` to bypass the cache, the wait for another caller's load can be
//! bounded, and an answer can come with its status:
//!
//! ```
//! # use std::time::Duration;
//! # use bellwether::{CacheStatus, Key, MemoryStore, ReadThroughLayer, Wait, WhenAbandoned};
//! # use tower::{Layer, Service, ServiceExt};
//! # #[derive(Clone)]
//! # struct Page { path: String, preview: bool }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let render = tower::service_fn(async |page: Page| Ok::<_, std::io::Error>(page.path));
//! # let page = Page { path: "/".to_owned(), preview: false };
//! let layer = ReadThroughLayer::new(MemoryStore::new(1_000), |page: &Page| {
//!     (!page.preview).then(|| Key::of("page").with(&page.path))
//! })
//! .ttl(Duration::from_secs(5))
//! .wait(Wait::at_most(Duration::from_millis(500)).then_load())
//! .lease(Duration::from_secs(2))?
//! .when_abandoned(WhenAbandoned::Cancel);
//!
//! let (answer, status) = layer.layer(render).call(page).with_status().await;
//! assert_eq!(answer?, "/");
//! assert_eq!(status, CacheStatus::Led { stored: true });
//! assert_eq!(status.to_string(), "bellwether; fwd=miss; stored");
//! # Ok(())
//! # }
//! ```
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

pub(crate) mod answer;
pub(crate) mod change;
pub(crate) mod client;
mod core;
mod delegate;
pub(crate) mod error_rules;
mod failure_cache;
mod flight_task;
pub(crate) mod future;
pub(crate) mod handle;
mod job;
pub(crate) mod layer;
pub(crate) mod load;
pub(crate) mod loader_fn;
pub(crate) mod lookup;
pub(crate) mod many;
#[cfg(test)]
mod model;
mod not_found;
mod orphaned;
mod outcome;
pub(crate) mod private_keys;
mod request_tags;
pub(crate) mod results;
pub(crate) mod service;
mod step;
