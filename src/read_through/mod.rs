//! The Tower face: a layer that puts a cache in front of a loader.
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
//! A key function may decline, a wait may be bounded otherwise, and an answer can tell how it came
//! about:
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
//! # How a request goes
//! ```text
//!  look ──fresh────────────────────────────────────► answered (hit)
//!    ├─stale, but good enough──────────────────────► answered (stale), and loaded anew by somebody
//!    └─miss─► join the flight of this key ──► wait for its landing ─► answered
//!                │ who opens it starts a task                        (led, collapsed)
//!                ▼
//!             ask for the lease ──found──► land
//!                ├─busy──► wait to be told, or a pause ─► ask again
//!                ├─failed a moment ago──► land the failure, or what is stale
//!                └─ours──► load, renewing the lease ─► store and release ─► land
//! ```
//!
//! A reader that is alone with its key looks for itself, without a task. Those who meet share a
//! flight, and each question that it asks is for all who had joined by then, so the work that a
//! burst makes for the store grows with processes and not with callers.

mod ask;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod attribute;
mod core;
mod deadline;
mod failure_cache;
mod failures;
mod flight_task;
mod future;
mod handle;
#[cfg(any(feature = "grpc", feature = "http"))]
mod knobs;
mod layer;
mod load;
mod many;
#[cfg(test)]
mod model;
mod outcome;
mod service;
mod step;
mod uncached_load;
mod unshared;
#[cfg(feature = "http")]
mod within;

pub use ask::Ask;
#[cfg(feature = "http")]
pub(crate) use ask::How;
pub use future::{ResponseFuture, WithStatus};
pub use handle::Handle;
#[cfg(any(feature = "grpc", feature = "http"))]
pub(crate) use knobs::knobs_of_loads;
pub use layer::ReadThroughLayer;
#[cfg(feature = "http")]
pub(crate) use load::LoadTimedOut;
pub use many::{Answers, BatchError, BatchLoader, Batched, LoadMany, Loaded, ManyWithStatus};
pub use service::ReadThrough;
#[cfg(feature = "http")]
pub(crate) use unshared::{Bypassing, Unshared};
#[cfg(feature = "http")]
pub(crate) use within::Within;
