//! `Handle`: what a program does to what is kept.

use std::future::Future;
use std::sync::Arc;

use tower::{Service, ServiceExt};

use crate::error::CacheError;
use crate::key::Key;
use crate::store::Store;

/// A handle to the stored entries of a layer. Clones are handles to the same entries.
///
/// It is made by [`ReadThroughLayer::handle`](super::ReadThroughLayer::handle), before there is a
/// loader, or by [`ReadThrough::handle`](super::ReadThrough::handle), and can [`prefetch`] then.
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

    /// The same, able to prefetch through a service: the one this handle's layer made, or any that
    /// was stacked on it.
    pub fn over<S>(self, service: S) -> Handle<S> {
        Handle { store: self.store, service }
    }
}

impl<S> Handle<S> {
    /// Removes the entry of a key. After this has returned, no request that starts later gets a value
    /// whose load began before it, in any process. The value of a load under way is not stored, and
    /// only callers that had joined it get it.
    ///
    /// Call it after the source has changed, not before: a load in between would be stored.
    ///
    /// It leaves a watermark in the store for ten minutes. If Redis evicts or loses the watermark while
    /// a load is under way, the value of that load is stored.
    ///
    /// # Errors
    /// If the store fails. It may have been done or not: to be sure, do it again.
    ///
    /// # Cancel safety
    /// Dropped before it has returned, it may have been done or not.
    pub async fn invalidate(&self, key: &Key) -> Result<(), CacheError> {
        let invalidated = self.store.invalidate(key.clone()).await;
        invalidated.map_err(|error| CacheError::store(key, &error))
    }

    /// Makes the entry of a key stale, as if its ttl had passed: the next request loads it again. An
    /// entry without a stale window is removed, as by [`invalidate`](Self::invalidate).
    ///
    /// # Errors
    /// If the store fails. It may have been done or not: to be sure, do it again.
    ///
    /// # Cancel safety
    /// Dropped before it has returned, it may have been done or not.
    pub async fn expire(&self, key: &Key) -> Result<(), CacheError> {
        let expired = self.store.expire(key.clone()).await;
        expired.map_err(|error| CacheError::store(key, &error))
    }

    /// Loads the answer to a request unless it is stored already. Other callers in all processes share
    /// that load.
    ///
    /// # Errors
    /// What the service answers instead.
    ///
    /// # Cancel safety
    /// The load goes on if this is dropped, unless the policy says otherwise.
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
