//! The traits of a [`Cache`].

use std::fmt;
use std::sync::Arc;

use super::Cache;
use crate::stats::{CacheStats, StatsSource};

impl<K, V, C> StatsSource for Cache<K, V, C> {
    type Stats = CacheStats;

    fn name(&self) -> &str {
        self.client.0.statistics.name()
    }

    fn stats(&self) -> CacheStats {
        self.stats()
    }
}

impl<K, V, C> Clone for Cache<K, V, C> {
    fn clone(&self) -> Self {
        let Self { client, name, options, keys } = self;
        let (client, name, options) = (client.clone(), Arc::clone(name), options.clone());
        Self { client, name, options, keys: *keys }
    }
}

impl<K, V, C: fmt::Debug> fmt::Debug for Cache<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("name", &self.name).field("client", &self.client).finish()
    }
}
