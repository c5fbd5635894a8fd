//! The traits of a [`Cache`].

use std::sync::Arc;

use super::Cache;
use crate::stats::CacheStats;

crate::stats_source! { Cache<K, V, C> => CacheStats, |it| it.client.0.statistics.name() }

impl<K, V, C> Clone for Cache<K, V, C> {
    fn clone(&self) -> Self {
        let Self { client, name, options, keys } = self;
        let (client, name, options) = (client.clone(), Arc::clone(name), options.clone());
        Self { client, name, options, keys: *keys }
    }
}

crate::debug_fields! { Cache<K, V, C> where C: Debug => |it| name = it.name, client = it.client }
