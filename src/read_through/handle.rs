//! `Handle`: invalidates, expires and prefetches stored entries.

use std::future::Future;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use tower::{Service, ServiceExt};

use crate::error::CacheError;
use crate::key::Key;
use crate::store::Store;

/// A handle to the stored entries of a layer. Clones are handles to the same entries.
///
/// [`ReadThroughLayer::handle`](super::ReadThroughLayer::handle) makes one before there is a
/// loader. One from [`ReadThrough::handle`](super::ReadThrough::handle) can also [`prefetch`].
///
/// [`prefetch`]: Handle::prefetch
#[derive(Clone, Debug)]
pub struct Handle<S = ()> {
    store: Arc<dyn Store>,
    service: S,
}

impl Handle {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, service: () }
    }

    /// A handle that can also prefetch through `service`: a service that this handle's layer made,
    /// or one that wraps it.
    pub fn over<S>(self, service: S) -> Handle<S> {
        Handle { store: self.store, service }
    }
}

impl<S> Handle<S> {
    /// Removes the entry of a key. Returns whether there was one, fresh or stale: `false` may mean
    /// that the key is not the one that was meant.
    ///
    /// After this has returned, no request that starts later gets a
    /// value whose load began before it, in any process. The value of a load under way is not
    /// stored, and only callers that had joined it get it.
    ///
    /// Call it after the source has changed, not before: a load in between would be stored.
    ///
    /// It leaves a watermark in the store for ten minutes. If Redis evicts or loses the watermark
    /// while a load is under way, the value of that load is stored.
    ///
    /// # Errors
    /// If the store fails. The operation may have happened or not; it is safe to repeat.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the operation may have happened or not.
    pub async fn invalidate(&self, key: &Key) -> Result<bool, CacheError> {
        let invalidated = self.store.invalidate(key.clone()).await;
        invalidated.map_err(|error| CacheError::store(key, &error))
    }

    /// Removes the entries of many keys, each as [`invalidate`](Self::invalidate) does, 256 at a
    /// time. Returns how many entries there were.
    ///
    /// # Errors
    /// The first error of the store, after all keys have been tried. Every operation may have
    /// happened or not; it is safe to repeat.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, each operation may have happened or not.
    pub async fn invalidate_many(
        &self,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<usize, CacheError> {
        let one = |key: Key| async move { self.invalidate(&key).await };
        let mut ended = stream::iter(keys.into_iter().map(one)).buffer_unordered(AT_ONCE);
        let mut removed = Ok(0);
        while let Some(was_there) = ended.next().await {
            removed = match (removed, was_there) {
                (Ok(count), Ok(was_there)) => Ok(count + usize::from(was_there)),
                (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            };
        }
        removed
    }

    /// Makes the entry of a key stale, as if its ttl had passed: the next request loads it again.
    /// An entry without a stale window is removed, as by [`invalidate`](Self::invalidate). Returns
    /// whether there was an entry.
    ///
    /// # Errors
    /// If the store fails. The operation may have happened or not; it is safe to repeat.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the operation may have happened or not.
    pub async fn expire(&self, key: &Key) -> Result<bool, CacheError> {
        let expired = self.store.expire(key.clone()).await;
        expired.map_err(|error| CacheError::store(key, &error))
    }

    /// Loads the answer to a request unless it is stored already. Callers in all processes share
    /// that load.
    ///
    /// # Errors
    /// The error of the service.
    ///
    /// # Cancel safety
    /// If it is dropped, the load goes on, unless [`WhenAbandoned`](crate::WhenAbandoned) cancels
    /// it.
    pub fn prefetch<Req>(
        &self,
        request: Req,
    ) -> impl Future<Output = Result<(), S::Error>> + use<S, Req>
    where
        S: Service<Req> + Clone,
    {
        let answered = self.service.clone().oneshot(request);
        async move { answered.await.map(drop) }
    }
}

/// How many invalidations of one call are under way at once.
const AT_ONCE: usize = 256;
