//! Statistics: what caches, stores and locks have done since they were made.
//!
//! They are always on. A layer, a handle, a store and a set of locks each have `stats()`, which
//! gives a plain struct of counters. Counters only grow, and are never reset: the difference of
//! two snapshots is what happened in between. To tell layers apart, give each a
//! [`name`](crate::ReadThroughLayer::name).
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::{Key, MemoryStore, ReadThroughLayer};
//! use tower::{Layer, Service, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = ReadThroughLayer::new(MemoryStore::new(100), |sku: &u64| Key::of("item").with(*sku))
//!     .ttl(Duration::from_secs(60))
//!     .name("catalog");
//! let cache = layer.handle();
//! let mut catalog = layer.layer(service_fn(async |sku: u64| Ok::<_, std::io::Error>(sku)));
//! for _ in 0..3 {
//!     catalog.call(42).await?;
//! }
//!
//! let stats = cache.stats();
//! assert_eq!((stats.requests.led_stored, stats.requests.hit_local), (1, 2));
//! assert_eq!(stats.loads.started.miss, 1);
//! assert_eq!(cache.hottest()[0].loads, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # What adds up
//! - Each request is counted once, when it is answered or when its caller leaves. So
//!   [`RequestStats::total`] is the number of requests that have ended.
//! - Each call of the loader is counted once when it starts, and once when it ends.
//!   [`LoadStats::running`] is the difference.
//! - The caller that leads a load is never counted as collapsed.
//!
//! A snapshot is not one moment: requests that end while it is taken may be in one counter and not
//! yet in another.

mod cache_stats;
mod counters;
mod hot_keys;
#[cfg(feature = "redis")]
mod operations;
mod recorder;
mod store_stats;
mod striped;

pub use self::cache_stats::{
    CacheStats, CommitStats, InvalidationStats, LeaseStats, LimitStats, LoadEndStats,
    LoadStartStats, LoadStats, RefreshStats, RequestStats, WakeStats,
};
pub use self::hot_keys::HotKey;
pub use self::store_stats::MemoryStats;
#[cfg(feature = "redis")]
pub use self::store_stats::{NearStats, OperationStats, ReplayStats, StoreErrorStats};
pub use self::striped::StripedCounter;

pub(crate) use self::cache_stats::{
    CommitEvent, InvalidationEvent, LeaseEvent, LimitEvent, LoadReason, LoadResult, RefreshEvent,
    RequestEvent, WakeEvent,
};
#[cfg(feature = "redis")]
pub(crate) use self::operations::OperationCounters;
pub(crate) use self::recorder::{RunningLoad, Statistics};
#[cfg(feature = "redis")]
pub(crate) use self::store_stats::StoreOperation;
