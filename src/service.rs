//! Tower: a cache in front of any Tower service.
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
//! let layer = ReadThroughLayer::builder(MemoryStore::new(10_000), |sku: &Sku| {
//!     Key::of("item").with(sku.0)
//! })
//! .ttl(Duration::from_secs(60))
//! .build()?;
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
//! let layer = ReadThroughLayer::builder(MemoryStore::new(1_000), |page: &Page| {
//!     (!page.preview).then(|| Key::of("page").with(&page.path))
//! })
//! .ttl(Duration::from_secs(5))
//! .wait(Wait::at_most(Duration::from_millis(500)).then_load())
//! .lease(Duration::from_secs(2))
//! .when_abandoned(WhenAbandoned::Cancel)
//! .build()?;
//!
//! let (answer, status) = layer.layer(render).call(page).with_status().await;
//! assert_eq!(answer?, "/");
//! assert_eq!(status, CacheStatus::Led { stored: true });
//! assert_eq!(status.to_string(), "bellwether; fwd=miss; stored");
//! # Ok(())
//! # }
//! ```

pub use crate::read_through::handle::Handle;
pub use crate::read_through::key_request::{IntoKeyRequest, KeyRequest};
pub use crate::read_through::layer::ReadThroughLayerBuilder;
pub use crate::read_through::service::ReadThrough;
