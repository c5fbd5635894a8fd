//! The instruments.

use std::fmt;

use bellwether::stats::{CacheStats, MemoryStats};
#[cfg(feature = "lock")]
use bellwether_lock::LockStats;
#[cfg(feature = "redis")]
use bellwether_redis::RedisStats;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::caches::of_caches;
#[cfg(feature = "lock")]
use crate::locks::of_locks;
use crate::observed::Observed;
use crate::stores::of_memory_stores;
#[cfg(feature = "redis")]
use crate::stores::of_redis_stores;

/// The instruments of caches, stores and locks, which the SDK reads when it collects.
///
/// Make it once for a meter provider, and tell it what to observe, in any order and at any time.
/// What it observes, it observes until the meter provider is shut down, even if this value is
/// dropped.
#[derive(Clone)]
pub struct Instruments {
    caches: Observed<CacheStats>,
    memory_stores: Observed<MemoryStats>,
    #[cfg(feature = "redis")]
    redis_stores: Observed<RedisStats>,
    #[cfg(feature = "lock")]
    locks: Observed<LockStats>,
}

impl Instruments {
    /// Makes the instruments of a meter.
    pub fn new(meter: &Meter) -> Self {
        Self {
            caches: of_caches(meter),
            memory_stores: of_memory_stores(meter),
            #[cfg(feature = "redis")]
            redis_stores: of_redis_stores(meter),
            #[cfg(feature = "lock")]
            locks: of_locks(meter),
        }
    }

    /// Observes a layer or cache under this name, for example
    /// `observe_cache("item", move || cache.stats())`.
    ///
    /// Give each cache a name of its own: two with one name would hide each other.
    pub fn observe_cache(
        &self,
        name: impl Into<String>,
        stats: impl Fn() -> CacheStats + Send + Sync + 'static,
    ) {
        self.caches.add(KeyValue::new("cache", name.into()), stats);
    }

    /// Observes a `MemoryStore` under this name.
    pub fn observe_memory_store(
        &self,
        name: impl Into<String>,
        stats: impl Fn() -> MemoryStats + Send + Sync + 'static,
    ) {
        self.memory_stores.add(KeyValue::new("store", name.into()), stats);
    }

    /// Observes a `RedisStore` under this name.
    #[cfg(feature = "redis")]
    pub fn observe_redis_store(
        &self,
        name: impl Into<String>,
        stats: impl Fn() -> RedisStats + Send + Sync + 'static,
    ) {
        self.redis_stores.add(KeyValue::new("store", name.into()), stats);
    }

    /// Observes a set of locks under this name, for example
    /// `observe_locks("orders", move || locks.stats())`.
    #[cfg(feature = "lock")]
    pub fn observe_locks(
        &self,
        name: impl Into<String>,
        stats: impl Fn() -> LockStats + Send + Sync + 'static,
    ) {
        self.locks.add(KeyValue::new("kind", name.into()), stats);
    }
}

impl fmt::Debug for Instruments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instruments").finish_non_exhaustive()
    }
}
