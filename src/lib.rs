//! Cache-stampede protection for async functions and [Tower](tower) services.
//!
//! When a thousand callers in fifty processes miss the same key at the same moment, **one** of them
//! loads it and all of them get the answer, as soon as it is there. A [`Cache`] does that for a key
//! and a function:
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::{Cache, MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new(10_000); // or RedisStore::connect("redis://127.0.0.1:6379", "shop").await?
//! let items: Cache<String> = Cache::builder("item", store).ttl(Duration::from_secs(60)).build();
//!
//! let item = items.get_or_load(42, async || {
//!     Ok::<_, std::io::Error>("item 42".to_owned()) // or a query
//! });
//! assert_eq!(item.await?, "item 42");
//! # Ok(())
//! # }
//! ```
//!
//! A [`ReadThroughLayer`] does the same in front of any [Tower](tower) service.
//!
//! # Where to look
//! - [`guide`]: how to use it, page by page, from getting started to running on Redis.
//! - [`Cache`]: values by key, loaded by a function where they are missing.
//! - [`mod@read_through`]: the layer, its service and their future, and the path of a request.
//! - [`Key`]: what an answer is stored under. [`Codec`]: how an answer is stored.
//! - [`Wait`]: what a caller does while another caller loads. [`CacheStatus`]: how an answer came
//!   about. [`Error`]: a failure of the loader, or of the cache.
//! - [`store`]: the contract of a store, and [`MemoryStore`].
//! - [`adapter`]: building blocks for layers that have a [`ReadThroughLayer`] inside.
//!
//! # Other crates
//! | crate | what it adds |
//! |---|---|
//! | `bellwether-redis` | `RedisStore`: entries and leases that all processes share |
//! | `bellwether-http` | `HttpCacheLayer`: a shared HTTP cache in front of axum routes, or of any `http` service |
//! | `bellwether-grpc` | `GrpcCacheLayer`: a cache in front of tonic services |
//! | `bellwether-lock` | nine distributed locks, and `#[locked]` |
//! | `bellwether-opentelemetry` | the [statistics](stats) as OpenTelemetry instruments, and contexts that reach the loader |
//! | `bellwether-test` | a store that fails on request, and the contract of stores as checks |
//!
//! They are built on the public API of this crate, so a new version of axum, tonic or a database
//! driver is a new version of one of them and not of this crate.
//!
//! # What is not promised
//! Leases are for efficiency, not for correctness. In a fault a key may be loaded twice: for
//! example, if a lease lapses while its process is stopped, or if Redis loses its data. The store
//! refuses outdated writes, as long as it keeps the newer entry or the
//! [invalidation](guide::invalidation) that outdates them.
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `metrics` | no | `metrics`: the [statistics](stats) for a recorder of the `metrics` facade |
//! | `postcard` | no | `Postcard`: a codec that is smaller and faster than JSON |
//! | `macros` | no | `#[read_through]`: an async function as a cached loader |

pub mod adapter;
mod box_future;
mod cache;
mod claim;
mod codec;
mod config_error;
mod duration;
mod error;
mod error_class;
mod flight;
pub mod guide;
mod jitter;
mod key;
mod lifetimes;
mod log_throttle;
#[cfg(feature = "metrics")]
pub mod metrics;
mod policy;
pub mod read_through;
mod shared_error;
pub mod stats;
mod status;
pub mod store;
mod store_error;
mod tag;
pub mod trace;

pub use box_future::BoxFuture;
pub use cache::{Cache, CacheBuilder};
#[cfg(feature = "postcard")]
pub use codec::Postcard;
pub use codec::{Cacheability, Codec, EncodeBuffer, InProcess, Json, RuledCodec, SerdeValue};
pub use config_error::ConfigError;
pub use error::{
    BoxError, CacheError, CacheErrorKind, Error, FailureCause, StoreError, StoreErrorKind,
};
pub use error_class::ErrorClass;
pub use key::{Digest, Key, KeyPart};
pub use lifetimes::Lifetimes;
pub use policy::{Wait, WhenAbandoned, WhenStoreFails};
#[cfg(feature = "macros")]
pub use read_through::attribute::{ByKey, EntryHandle, read_through};
pub use read_through::boxed::BoxResponseFuture;
pub use read_through::future::{ResponseFuture, WithStatus};
pub use read_through::handle::{ExpireTag, Handle};
pub use read_through::layer::ReadThroughLayer;
pub use read_through::loader_fn::{LoaderFn, RunRequest, loader_fn};
pub use read_through::lookup::{IntoLookup, Lookup};
pub use read_through::many::{BatchFuture, BatchLoader, BatchResponse, BatchResult, Batched};
pub use read_through::service::ReadThrough;
pub use shared_error::SharedError;
pub use status::{BypassReason, CacheStatus, LoadLocation, StaleReason};
pub use store::memory::{MemoryOptions, MemoryStore};
pub use tag::{Tag, Tags, TooManyTags};
