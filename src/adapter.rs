//! Building blocks for adapters: layers of your own that have a [`ReadThroughLayer`] inside.
//!
//! `bellwether-http` and `bellwether-grpc` use only this module and the rest of the public API, so
//! any other crate can do the same. `bellwether-lock` uses the utilities in here.
//!
//! The builder of an adapter has a [`ReadThroughLayerBuilder`] in its field `layer`, and offers the options
//! of that with [`delegate_load_options!`]. The adapter makes its keys itself: [`AdapterCache`] looks up,
//! coalesces and loads by a [`Key`](crate::Key) and a loader.
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use bellwether::{ConfigError, Key, MemoryStore, ReadThroughLayer};
//! use bellwether::codec::Json;
//! use bellwether::adapter::{delegate_load_options, AdapterCache, RequestOptions};
//! use bellwether::service::ReadThroughLayerBuilder;
//! use bellwether::store::Store;
//! use tower::service_fn;
//!
//! /// The options of a cache of DNS answers.
//! #[must_use]
//! struct DnsCacheBuilder {
//!     layer: ReadThroughLayerBuilder<()>,
//! }
//!
//! impl DnsCacheBuilder {
//!     fn new(store: impl Store) -> Self {
//!         Self { layer: ReadThroughLayer::without_keys(store).ttl(Duration::from_secs(30)) }
//!     }
//!
//!     delegate_load_options!();
//!
//!     fn build(self) -> Result<AdapterCache<Json>, ConfigError> {
//!         Ok(AdapterCache::new(&self.layer.build()?))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = DnsCacheBuilder::new(MemoryStore::new(1_000)).lease(Duration::from_secs(1)).build()?;
//! let resolver = service_fn(async |name: String| Ok::<_, Infallible>(format!("{name}: ::1")));
//!
//! let key = Key::of("dns").with("localhost");
//! let options = RequestOptions::default();
//! let answer = client.request(key, options, &resolver, "localhost".to_owned()).await?;
//! assert_eq!(answer, "localhost: ::1");
//! # Ok(())
//! # }
//! ```
//!
//! [`ReadThroughLayer`]: crate::ReadThroughLayer
//! [`ReadThroughLayerBuilder`]: crate::service::ReadThroughLayerBuilder

pub use crate::box_future::BoxFuture;
pub use crate::delegate_load_options;
pub use crate::read_through::adapter_cache::AdapterCache;
pub use crate::read_through::key_request::RequestOptions;

// For the other crates of this project, which are released with it.
#[doc(hidden)]
pub use crate::config_error::{FirstError, namespace_of, within};
#[doc(hidden)]
pub use crate::duration::{micros, millis, nanos};
#[doc(hidden)]
pub use crate::jitter::jitter;
#[doc(hidden)]
pub use crate::locked::locked;
#[doc(hidden)]
pub use crate::log_throttle::LogThrottle;
#[doc(hidden)]
pub use crate::policy::Backoff;
#[doc(hidden)]
pub use crate::read_through::handle::{change, result_of_all};
#[doc(hidden)]
pub use crate::read_through::{
    outcome::stale_reason,
    remembered::{BypassPermit, PrivateKeys},
};
pub use crate::warn_throttled;
