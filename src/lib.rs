//! Cache-stampede protection for [Tower](tower) services.
//!
//! When a thousand callers in fifty processes miss the same key at the same moment, **one** of them
//! loads it and all of them get the answer, as soon as it is there. A [`ReadThroughLayer`] in front
//! of any loader does that:
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::{Key, MemoryStore, ReadThroughLayer};
//! use tower::{Layer, Service, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new(10_000); // or RedisStore::connect("redis://127.0.0.1:6379").await?
//! let layer = ReadThroughLayer::new(store, |sku: &u64| Key::of("item").with(*sku))
//!     .ttl(Duration::from_secs(60));
//!
//! let mut catalog = layer.layer(service_fn(async |sku: u64| {
//!     Ok::<_, std::io::Error>(format!("item {sku}")) // or a query
//! }));
//! assert_eq!(catalog.ready().await?.call(42).await?, "item 42");
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//! - [`mod@read_through`]: the layer, its service and their future; how a request goes.
//! - `http` (features `http`, `axum`): a shared HTTP cache in front of axum routes or any service.
//! - `grpc` (feature `grpc`): a cache in front of tonic services.
//! - [`Key`]: what an answer is kept under. [`Capture`]: how an answer is kept.
//! - [`Wait`]: what a caller does while somebody else loads. [`CacheStatus`]: how an answer came
//!   about. [`Error`]: the loader's fault, or ours.
//! - [`store`]: the contract of a store, [`MemoryStore`] and `RedisStore`.
//! - [`lock`]: locks to use on their own, around any service, and as the lease of a store.
//!
//! # What is not promised
//! Leases here are for efficiency, not for correctness: in a fault (a lease that lapses under a
//! stopped process, a Redis that lost its memory) a key may be loaded twice. What protects the data
//! is that stale writes are refused.
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `macros` | no | `#[read_through]`: an async function as a cached loader; `#[locked]`: one that runs under a lock |
//! | `redis` | yes | `RedisStore`: entries and leases shared by a fleet; `lock::redis`: four locks |
//! | `http` | no | [`http`](mod@http): a shared HTTP cache in front of any `http` service |
//! | `axum` | no | keys of axum's path parameters and extractors |
//! | `grpc` | no | `GrpcCacheLayer`: a cache in front of tonic services |
//! | `zookeeper` | no | `lock::ZooKeeperLock`: locks by sessions, in the order of arrival |
//! | `mysql` | no | `lock::MySqlLock`, `lock::MySqlRowLock`: locks in a MariaDB or MySQL server |
//! | `postgres` | no | `lock::PostgresLock`: locks in a PostgreSQL server |
//! | `test-util` | no | `store::conformance`: the contract as checks, for stores of your own; `store::faulty`: a store that fails as told; `lock::conformance`: the same for locks |

mod capture;
mod chance;
mod claim;
mod duration;
mod error;
mod flight;
#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "http")]
pub mod http;
mod key;
pub mod lock;
mod policy;
mod quiet;
pub mod read_through;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "grpc", feature = "http"))]
mod response;
mod status;
pub mod store;
mod windows;

pub use capture::{Capture, Json, Judged, Room, Verdict};
pub use error::{
    CacheError, CacheErrorKind, Cause, ConfigError, Error, StoreError, StoreErrorKind,
};
#[cfg(feature = "grpc")]
pub use grpc::{CachedMethod, GrpcCacheLayer};
#[cfg(feature = "http")]
pub use http::{HttpCache, HttpCacheLayer, HttpHandle, RequestKey};
pub use key::{Digest, Key, KeyPart};
#[cfg(feature = "macros")]
pub use lock::attribute::locked;
pub use policy::{Wait, WhenAbandoned, WhenStoreFails};
#[cfg(feature = "macros")]
pub use read_through::attribute::{ByKey, read_through};
pub use read_through::{
    Answers, Ask, BatchError, BatchLoader, Batched, Handle, LoadMany, Loaded, ManyWithStatus,
    ReadThrough, ReadThroughLayer, ResponseFuture, WithStatus,
};
#[cfg(any(feature = "grpc", feature = "http"))]
pub use response::CacheBody;
pub use status::{Bypass, CacheStatus, Place, Stale};
pub use store::{MemoryStore, Store};
#[cfg(feature = "redis")]
pub use store::{RedisOptions, RedisStats, RedisStore};
pub use windows::Windows;

/// The examples of the README are compiled and run with those of the docs.
#[cfg(all(doctest, feature = "axum", feature = "grpc", feature = "macros", feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;
