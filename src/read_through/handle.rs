//! `Handle`: what a program does to what is kept.

use std::future::Future;
use std::sync::Arc;

use tower::{Service, ServiceExt};

use crate::error::CacheError;
use crate::key::Key;
use crate::store::Store;

/// A handle to what is kept. Clones are handles to the same.
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
    /// Removes what is kept for a key. No request that starts after this has returned is answered
    /// with a value whose load began before it, in any process: a load that is under way is not
    /// stored, and is given only to those who had asked for it before it began.
    ///
    /// To be called after the source was changed, not before: a load in between would be kept.
    ///
    /// It rests on a note that the store keeps for ten minutes. A Redis that evicts or loses it
    /// within the time of a load that was under way cannot refuse what that load gave.
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

    /// Makes what is kept for a key stale, as if its time had run out: it is loaded anew by the
    /// next request. What has no stale window is removed, as by [`invalidate`](Self::invalidate).
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

    /// Sees to it that the answer to a request is kept: loads it if it is not there, as the one
    /// load of the fleet that anybody else who asks for it meanwhile shares.
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
