//! `RetryPool`: the requests that wait once more, after an error that another request may have caused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bellwether::Key;
use bellwether::adapter::locked;
use bellwether::store::Digest;

use super::cache_request::CacheRequest;

/// The requests that wait once more, after an error that another request may have caused.
///
/// A load whose own request gets such an error asks the origin with some of these, and stores the first
/// success under its lease. So requests with errors keep no response from being stored.
#[derive(Default)]
pub(super) struct RetryPool {
    /// By their keys and addresses. Locked for a few operations, never across an `.await`.
    waiting: Mutex<HashMap<Digest, HashMap<usize, Arc<CacheRequest>>>>,
}

/// A request in the pool. It leaves with this.
pub(super) struct PooledRequest {
    pool: Arc<RetryPool>,
    key: Digest,
    cache_request: Arc<CacheRequest>,
}

impl RetryPool {
    /// Adds a request that waits for the load of a key.
    pub(super) fn enter(
        self: &Arc<Self>,
        key: &Key,
        cache_request: &Arc<CacheRequest>,
    ) -> PooledRequest {
        let (key, cache_request) = (key.digest(), Arc::clone(cache_request));
        let mut waiting = locked(&self.waiting);
        waiting.entry(key).or_default().insert(address(&cache_request), Arc::clone(&cache_request));
        PooledRequest { pool: Arc::clone(self), key, cache_request }
    }

    /// Up to [`MOST_RETRIES`] other requests that wait for a key, at random: in the order of a hash that
    /// clients do not know.
    pub(super) fn others(&self, key: &Key, own: &Arc<CacheRequest>) -> Vec<Arc<CacheRequest>> {
        let waiting = locked(&self.waiting);
        let all = waiting.get(&key.digest()).into_iter().flat_map(HashMap::values);
        all.filter(|it| !Arc::ptr_eq(it, own)).take(MOST_RETRIES).cloned().collect()
    }
}

impl Drop for PooledRequest {
    /// Removes a key with its last request.
    fn drop(&mut self) {
        let mut waiting = locked(&self.pool.waiting);
        if let Some(of_key) = waiting.get_mut(&self.key) {
            of_key.remove(&address(&self.cache_request));
            if of_key.is_empty() {
                waiting.remove(&self.key);
            }
        }
    }
}

fn address(cache_request: &Arc<CacheRequest>) -> usize {
    Arc::as_ptr(cache_request) as usize
}

/// How many other requests a load asks the origin with. One client has seldom more in flight, and an
/// origin that fails for all gets few more requests than one.
const MOST_RETRIES: usize = 15;
