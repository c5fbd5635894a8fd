//! Cache-stampede protection for async functions and [Tower](tower) services.
//!
//! When a thousand callers in fifty processes miss the same key at the same moment, **one** of them
//! loads it and all of them get the answer, as soon as it is there.
//!
//! | you want to cache | use |
//! |---|---|
//! | a function, a query | [`Cache`] |
//! | many keys with one query | [`Cache::get_or_load_many`] |
//! | a method | `#[read_through]` (feature `macros`) |
//! | a [Tower](tower) service | [`ReadThroughLayer`] |
//! | HTTP responses, in front of axum | [`bellwether-http`](https://docs.rs/bellwether-http) |
//! | gRPC methods, in front of tonic | [`bellwether-grpc`](https://docs.rs/bellwether-grpc) |
//! | nothing: a lock | [`bellwether-lock`](https://docs.rs/bellwether-lock) |
//!
//! ```text
//! cargo add bellwether bellwether-redis
//! ```
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::{Cache, MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new(10_000); // or RedisStore::connect("redis://127.0.0.1:6379", "shop").await?
//! let items: Cache<u64, String> = Cache::builder("item", store).ttl(Duration::from_secs(60)).build()?;
//!
//! let item = items.get_or_load(42, async || {
//!     Ok::<_, std::io::Error>("item 42".to_owned()) // or a query
//! });
//! assert_eq!(item.await?, "item 42");
//!
//! items.invalidate(42).await?; // after the source has changed
//! # Ok(())
//! # }
//! ```
//!
//! Start with [`guide::getting_started`].
//!
//! **Leases are for efficiency, not for correctness.** In a fault a key may be loaded twice. The store refuses
//! outdated writes, as long as it keeps the newer entry or the [invalidation](guide::invalidation).
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `lz4` | no | `codec::Compressed`: values are stored compressed |
//! | `macros` | no | `#[read_through]`: a method through a `Cache`; `#[derive(CacheKey)]` |
//! | `metrics` | no | `metrics`: the [statistics](stats) for a recorder of the `metrics` facade |

#![cfg_attr(docsrs, feature(doc_cfg))]

// For the links of `delegate_load_options`, which are the same in all crates.
extern crate self as bellwether;

pub mod adapter;
mod box_future;
mod cache;
pub mod change;
pub mod codec;
mod config_error;
mod debug_fields;
mod duration;
mod error;
mod flight;
pub mod guide;
mod jitter;
mod key;
mod lifetimes;
mod loads;
mod locked;
mod log_throttle;
#[cfg(feature = "metrics")]
pub mod metrics;
mod policy;
mod read_through;
pub mod service;
pub mod stats;
mod status;
pub mod store;
mod tag;
pub mod trace;

/// Loads of many keys at once: [`Cache::get_or_load_many`].
pub mod batch {
    pub use crate::read_through::many::{BatchFuture, BatchResponse, BatchResponseOf};
}

#[cfg(feature = "macros")]
pub use bellwether_macros::CacheKey;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub use cache::attribute;
#[cfg(feature = "macros")]
pub use cache::attribute::read_through;
pub use cache::{Cache, CacheBuilder, CacheWithoutLifetime};
pub use config_error::ConfigError;
pub use error::{
    BoxError, CacheError, CacheErrorKind, Error, FailureCause, SharedError, StoreError,
};
pub use key::{CacheKey, Key, KeyOf};
pub use lifetimes::Lifetimes;
pub use loads::Loads;
pub use policy::{Wait, WhenAbandoned, WhenStoreFails};
pub use read_through::error_rules::ErrorClass;
pub use read_through::future::AnswerFuture;
pub use read_through::handle::Changed;
pub use read_through::layer::ReadThroughLayer;
pub use status::{BypassReason, CacheStatus, LoadLocation, StaleReason};
pub use store::memory::MemoryStore;
pub use tag::Tag;
