//! `RetryPool`: the requests that wait once more, after an error that another request may have caused.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
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
    /// By their keys, and at random: by a hash that clients do not know. Locked for a few operations,
    /// never across an `.await`.
    waiting: Mutex<BTreeMap<(Digest, u64), Arc<CacheRequest>>>,
    hasher: RandomState,
}

/// A request in the pool. It leaves with this.
pub(super) struct PooledRequest {
    pool: Arc<RetryPool>,
    place: (Digest, u64),
}

impl RetryPool {
    /// Adds a request that waits for the load of a key.
    pub(super) fn enter(
        self: &Arc<Self>,
        key: &Key,
        cache_request: &Arc<CacheRequest>,
    ) -> PooledRequest {
        let place = (key.digest(), self.hasher.hash_one(Arc::as_ptr(cache_request)));
        locked(&self.waiting).insert(place, Arc::clone(cache_request));
        PooledRequest { pool: Arc::clone(self), place }
    }

    /// Up to [`MOST_RETRIES`] other requests that wait for a key, at random.
    pub(super) fn others(&self, key: &Key, own: &Arc<CacheRequest>) -> Vec<Arc<CacheRequest>> {
        let key = key.digest();
        let waiting = locked(&self.waiting);
        let all = waiting.range((key, 0)..=(key, u64::MAX)).map(|(_, cache_request)| cache_request);
        all.filter(|it| !Arc::ptr_eq(it, own)).take(MOST_RETRIES).cloned().collect()
    }
}

impl Drop for PooledRequest {
    fn drop(&mut self) {
        let _left = locked(&self.pool.waiting).remove(&self.place);
    }
}

/// How many other requests a load asks the origin with. One client has seldom more in flight, and an
/// origin that fails for all gets few more requests than one.
const MOST_RETRIES: usize = 15;
