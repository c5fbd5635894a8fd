//! What a layer needs that has a `ReadThroughLayer` within: to ask with keys that it makes itself.

use std::sync::Arc;
use std::time::Duration;

use tower::Service;

use super::ask::How;
use super::core::{Core, Peeked};
use super::future::ResponseFuture;
use super::layer::ReadThroughLayer;
use crate::capture::Capture;
use crate::chance::draw;
use crate::key::Key;
use crate::status::CacheStatus;
use crate::store::{Entry, Store, Windows};

/// What the services of a layer share, without a loader and without a function that makes keys.
#[derive(Debug)]
pub(crate) struct Within<C>(Arc<Core<C>>);

impl<C> Within<C> {
    /// Of a layer whose loads may take so much longer once the head of a response is there.
    pub(crate) fn of<K>(layer: &ReadThroughLayer<K, C>, collect_within: Duration) -> Self {
        let mut core = layer.core();
        core.policy.collect_within = collect_within;
        Self(Arc::new(core))
    }

    /// How long a load may take until the head of its response is there.
    pub(crate) fn load_timeout(&self) -> Duration {
        self.0.policy.load_timeout
    }

    /// How much longer it may take from then on.
    pub(crate) fn collect_within(&self) -> Duration {
        self.0.policy.collect_within
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub(crate) fn max_entry_bytes(&self) -> usize {
        self.0.policy.max_entry_bytes
    }

    /// For how long it is known that answers are not kept.
    pub(crate) fn not_kept_for(&self) -> Duration {
        self.0.policy.freshness.marker_ttl
    }

    /// How long it is kept for at most, with its ttl shortened by chance.
    pub(crate) fn jittered(&self, windows: Windows) -> Windows {
        self.0.policy.freshness.jittered(windows, draw())
    }

    /// What an entry holds, if it can be read.
    pub(crate) fn read<R>(&self, entry: &Entry) -> Option<Arc<C::Kept>>
    where
        C: Capture<R>,
    {
        self.0.read(entry)
    }

    /// What a request for a key may be given at once, without anybody being asked.
    pub(crate) fn at_hand<R>(&self, key: &Key) -> Option<(R, CacheStatus)>
    where
        C: Capture<R>,
    {
        match self.0.peek(key) {
            Peeked::Hit(answer, fresh_for) => Some((answer, CacheStatus::Hit { fresh_for })),
            _ => None,
        }
    }

    /// Asks for a key, by a loader.
    pub(crate) fn ask<S, Req>(
        &self,
        key: Key,
        how: How,
        service: &S,
        request: Req,
    ) -> ResponseFuture<S, Req, C>
    where
        S: Service<Req> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send + Sync + 'static,
        Req: Send + 'static,
        C: Capture<S::Response>,
    {
        ResponseFuture::begin(&self.0, key, service, request, how)
    }
}

impl<C> Clone for Within<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
