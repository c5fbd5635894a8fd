//! Statistics: what caches, stores and locks have done since they were made.
//!
//! They are always on. A layer, a handle, a store and a set of locks each have `stats()`, which
//! gives a plain struct of counters. Counters only grow, and are never reset: the difference of
//! two snapshots is what happened in between. What is under way at the moment is in
//! [`CacheStats::current`]: these figures rise and fall. To tell layers apart, give each a
//! [`name`](crate::service::ReadThroughLayerBuilder::name).
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::{Key, MemoryStore, ReadThroughLayer};
//! use tower::{Layer, Service, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = ReadThroughLayer::builder(MemoryStore::new(100), |sku: &u64| Key::of("item").with(*sku))
//!     .ttl(Duration::from_secs(60))
//!     .name("catalog")
//!     .build()?;
//! let cache = layer.handle();
//! let mut catalog = layer.layer(service_fn(async |sku: u64| Ok::<_, std::io::Error>(sku)));
//! for _ in 0..3 {
//!     catalog.call(42).await?;
//! }
//!
//! let stats = cache.stats();
//! assert_eq!((stats.requests.led_stored, stats.requests.hit_local), (1, 2));
//! assert_eq!(stats.loads.miss, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # What adds up
//! - Each request is counted once, when it is answered or when its caller leaves. So
//!   [`RequestStats::total`] is the number of requests that have ended.
//! - Each call of the loader is counted once when it starts, and once when it ends.
//!   [`CacheStats::running_loads`] is the difference.
//! - The caller that leads a load is never counted as collapsed.
//! - Each wait for the load of another process counts once in [`wakes`](CacheStats::wakes): one that
//!   a pause ended when the store has said what became of the load.
//! - Each load that has ended is in [`load_times`](CacheStats::load_times), and each caller that was
//!   collapsed in [`wait_times`](CacheStats::wait_times).
//!
//! A snapshot is not one moment: requests that end while it is taken may be in one counter and not
//! yet in another.

mod cache_stats;
mod counters;
mod histogram;
mod metric;
mod recorder;
mod store_stats;

pub use self::cache_stats::{
    AuditStats, CacheStats, CommitStats, CurrentStats, InvalidationStats, LeaseStats, LimitStats,
    LoadStats, LoadTimeStats, RefreshStats, RequestStats, WaitTimeStats, WakeStats,
};
pub use self::histogram::HistogramStats;
pub use self::metric::{MetricTable, StatsSource};
pub use self::recorder::RequestRecord;
pub use self::store_stats::{MemoryStats, OperationTimeStats, OutageStats, StoreErrorStats};

// For the stores, locks and exporters of this project, which are released with it.
#[doc(hidden)]
pub use self::counters::Striped;
#[doc(hidden)]
pub use self::histogram::Histogram;
#[doc(hidden)]
pub use self::metric::{MetricKind, MetricRow, MetricValue, MetricValues};
#[doc(hidden)]
pub use self::store_stats::{NodeCounters, NodeEvent, OperationCounters, StoreOperation};

pub(crate) use self::cache_stats::{
    AuditEvent, CommitEvent, InvalidationEvent, LeaseEvent, LimitEvent, LoadReason, LoadResult,
    RefreshEvent, RequestEvent, WakeEvent,
};
pub(crate) use self::recorder::{Activity, NotedEvent, Statistics};
