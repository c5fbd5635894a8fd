//! `CacheClient`: the cache of a layer, for adapters that make their keys themselves.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tower::Service;

use super::core::{Core, Peeked};
use super::future::ResponseFuture;
use super::layer::ReadThroughLayer;
use super::lookup::RequestOptions;
use crate::codec::{Codec, EncodeBuffer};
use crate::jitter::jitter;
use crate::key::Key;
use crate::log_throttle::warn_throttled;
use crate::status::CacheStatus;
use crate::store::{
    Accept, Acquire, Claim, Commit, Draft, Entry, Lease, Lifetimes, Marker, Peek, Store, Value,
};

/// The cache of a [`ReadThroughLayer`], without a loader and without a function that makes keys.
///
/// Clones share one state, and so do all clients of one layer: its flights, its failure cache and
/// its store. See the [module page](crate::adapter).
#[derive(Debug)]
pub struct CacheClient<C>(Arc<Core<C>>);

impl<C> CacheClient<C> {
    /// The cache of a layer, with the options that the layer has now.
    pub fn new<K>(layer: &ReadThroughLayer<K, C>) -> Self {
        Self(Arc::new(layer.core()))
    }

    /// The same for loaders whose answers have a head and a body: a load may take this much longer
    /// than [`load_timeout`](Self::load_timeout), which then bounds the time until the head. The
    /// loader watches over that bound itself and gives [`LoadTimedOut`](super::load::LoadTimedOut).
    pub fn with_bodies<K>(layer: &ReadThroughLayer<K, C>, collect_within: Duration) -> Self {
        let mut core = layer.core();
        core.policy.collect_within = collect_within;
        Self(Arc::new(core))
    }

    /// How long a load may take, until the head of its answer is there if answers have one.
    pub fn load_timeout(&self) -> Duration {
        self.0.policy.load_timeout
    }

    /// How much longer the body of an answer may take. Zero for a client made by
    /// [`new`](Self::new).
    pub fn collect_within(&self) -> Duration {
        self.0.policy.collect_within
    }

    /// The largest answer that is stored, encoded, in bytes.
    pub fn max_entry_bytes(&self) -> usize {
        self.0.policy.max_entry_bytes
    }

    /// For how long a private answer is remembered:
    /// [`not_kept_for`](ReadThroughLayer::not_kept_for).
    pub fn not_kept_for(&self) -> Duration {
        self.0.policy.freshness.marker_ttl
    }

    /// The store of the layer.
    pub fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// What an entry holds. `None` if it is of another codec or cannot be decoded.
    pub fn read<R>(&self, entry: &Entry) -> Option<Arc<C::Kept>>
    where
        C: Codec<R>,
    {
        self.0.read(entry)
    }

    /// A fresh answer that this process holds, decoded: a hit without a future.
    pub fn cached<R>(&self, key: &Key) -> Option<(R, CacheStatus)>
    where
        C: Codec<R>,
    {
        match self.0.peek(key) {
            Peeked::Hit(answer, fresh_for) => Some((answer, CacheStatus::Hit { fresh_for })),
            _ => None,
        }
    }

    /// Answers a request by the entry of a key, or by the one load of that key.
    ///
    /// # Errors
    /// As a [`ReadThrough`](crate::ReadThrough) service gives them.
    pub fn request<S, Req>(
        &self,
        key: Key,
        options: RequestOptions,
        loader: &S,
        request: Req,
    ) -> ResponseFuture<S, Req, C>
    where
        S: Service<Req> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send + Sync + 'static,
        Req: Send + 'static,
        C: Codec<S::Response>,
    {
        ResponseFuture::begin(&self.0, key, loader, request, options)
    }

    /// What is stored for a key, fresh or stale. A store that fails counts as one that has nothing.
    pub async fn lookup(&self, key: &Key) -> Option<Entry> {
        match self.0.store.peek(key) {
            Peek::Found(entry) => Some(entry),
            Peek::Gone => None,
            Peek::Unknown => match self.0.store.lookup(key.clone()).await {
                Ok(entry) => entry,
                Err(error) => {
                    warn_throttled!(%error, "the store failed: the lookup counts as a miss");
                    None
                }
            },
        }
    }

    /// The same windows with a ttl that is shortened by the layer's [jitter](ReadThroughLayer::jitter).
    pub fn jittered(&self, windows: Lifetimes) -> Lifetimes {
        self.0.policy.freshness.jittered(windows, jitter())
    }

    /// Stores an answer under a key outside of a load, as when an origin confirms a stored one.
    ///
    /// It takes the lease of the key, and stores nothing if another caller has it, or if `replaces`
    /// refuses the entry that is there. Gives whether the answer was stored; a store that fails is
    /// logged and counts as no.
    ///
    /// # Cancel safety
    /// Dropped before it has returned, it may have stored the answer or not. The lease lapses after
    /// two seconds.
    pub async fn replace<R>(
        &self,
        key: Key,
        answer: C::Kept,
        windows: Lifetimes,
        replaces: impl FnOnce(Option<&Entry>) -> bool,
    ) -> bool
    where
        C: Codec<R>,
    {
        let Some(lease) = self.lease(key, replaces).await else { return false };
        let Some(value) = self.encode(answer) else {
            self.abandon(lease).await;
            return false;
        };
        self.commit(lease, Draft::new(value, self.0.codec.id(), windows)).await
    }

    /// Removes the entry of a key, unless a load of the key is under way: what that load gives is
    /// stored.
    ///
    /// Where no later request may be given the answer of that load either, invalidate the key
    /// instead.
    pub async fn remove_unless_loading(&self, key: Key) {
        if let Some(lease) = self.lease(key, |_| true).await {
            self.commit(lease, Draft::marker(Duration::ZERO, Marker::Uncacheable)).await;
        }
    }

    /// The lease of a key, if no other caller has it and `will_do` accepts the entry that is there.
    async fn lease(&self, key: Key, will_do: impl FnOnce(Option<&Entry>) -> bool) -> Option<Lease> {
        match self.0.store.acquire(Claim::new(key), TERM, Accept::Nothing).await {
            Ok(Acquire::Lead { lease, stale, .. }) if will_do(stale.as_ref()) => Some(lease),
            Ok(Acquire::Lead { lease, .. }) => {
                self.abandon(lease).await;
                None
            }
            Ok(_) => None,
            Err(error) => {
                warn_throttled!(%error, "the store failed: an answer is not stored");
                None
            }
        }
    }

    fn encode<R>(&self, answer: C::Kept) -> Option<Value>
    where
        C: Codec<R>,
    {
        let mut room = EncodeBuffer::new(self.max_entry_bytes());
        self.0.codec.encode(&answer, &mut room).ok()?;
        let encoded = room.into_bytes();
        let settled = self.0.codec.settle(answer, &encoded);
        let beside = self.0.codec.weight(&settled, &encoded);
        Some(Value::of(encoded, Arc::new(settled), beside))
    }

    fn commit(&self, lease: Lease, draft: Draft) -> impl Future<Output = bool> + use<C> {
        let committed = self.0.store.commit(lease, draft);
        async move {
            match committed.await {
                Ok(outcome) => outcome == Commit::Stored,
                Err(error) => {
                    warn_throttled!(%error, "the store failed: an answer is perhaps not stored");
                    false
                }
            }
        }
    }

    async fn abandon(&self, lease: Lease) {
        if let Err(error) = self.0.store.abandon(lease.into_claim()).await {
            tracing::debug!(%error, "the store failed: a lease ends when it lapses");
        }
    }
}

impl<C> Clone for CacheClient<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// How long a lease holds that is taken to store an answer that is there already.
const TERM: Duration = Duration::from_secs(2);
