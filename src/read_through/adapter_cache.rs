//! `AdapterCache`: the cache of a layer, for adapters that make their own keys.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tower::Service;

use super::core::{self, Core, Peeked};
use super::future::{self, AnswerFuture};
use super::handle::Handle;
use super::key_request::RequestOptions;
use super::layer::ReadThroughLayer;
use super::{load, put};
use crate::codec::Codec;
use crate::error::{BoxError, CacheError};
use crate::jitter::jitter;
use crate::key::Key;
use crate::lifetimes::Lifetimes;
use crate::stats::{CacheStats, RequestEvent, RequestRecord};
use crate::status::CacheStatus;
use crate::store::{Entry, Peek, Store};
use crate::tag::Tags;

/// The cache of a [`ReadThroughLayer`], without a loader and without a key function.
///
/// Clones share one state, and so do all clients of one layer: its flights, its failure cache and
/// its store. See the [module page](crate::adapter).
#[derive(Debug)]
pub struct AdapterCache<C>(pub(crate) Arc<Core<C>>);

impl<C> AdapterCache<C> {
    /// The cache of a layer.
    pub fn new<K>(layer: &ReadThroughLayer<K, C>) -> Self {
        Self(Arc::clone(&layer.core))
    }

    /// Whether it is [on](crate::service::ReadThroughLayerBuilder::enabled).
    pub fn is_enabled(&self) -> bool {
        self.0.policy.enabled
    }

    /// How long a load may take: until the head of its answer, for answers that have one.
    pub fn load_timeout(&self) -> Duration {
        self.0.policy.load_timeout
    }

    /// How much longer the body of an answer may take:
    /// [`collect_within`](crate::service::ReadThroughLayerBuilder::collect_within).
    pub fn collect_within(&self) -> Duration {
        self.0.policy.collect_within
    }

    /// The largest answer that is stored, encoded, in bytes.
    pub fn max_entry_bytes(&self) -> usize {
        self.0.policy.max_entry_bytes
    }

    /// For how long a private answer is remembered:
    /// [`private_for`](crate::service::ReadThroughLayerBuilder::private_for).
    pub fn private_for(&self) -> Duration {
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

    /// A fresh, decoded answer that this process has: a hit without a future. It is not counted:
    /// see [`count_hit`](Self::count_hit).
    pub fn cached<R>(&self, key: &Key) -> Option<(R, CacheStatus)>
    where
        C: Codec<R>,
    {
        let Peeked::Hit(answer, fresh_for) = self.0.peek(key, &Tags::none()) else { return None };
        Some((answer, CacheStatus::Hit { fresh_for }))
    }

    /// Counts a request that was answered at once, by what [`cached`](Self::cached) gave.
    pub fn count_hit(&self) {
        self.0.statistics.request(RequestEvent::HitLocal);
    }

    /// Begins a request that takes several lookups, or none. It counts once, by the status with
    /// which it [ends](RequestRecord::end). Its lookups are [parts](RequestOptions::part_of) of it.
    pub fn begin(&self) -> RequestRecord {
        RequestRecord::begin(Arc::clone(&self.0.statistics))
    }

    /// Calls a loader for one request past the cache: counts the load, and runs it in a span. It
    /// counts as a load without a lease, of a request without a key or for a key whose answers are
    /// not kept. It starts with the first poll. The outer error is a panic of the loader.
    ///
    /// # Cancel safety
    /// Dropping it drops the call.
    pub fn load_alone<S: Service<Req, Future: Send> + Send + 'static, Req: Send + 'static>(
        &self,
        key: Option<&Key>,
        loader: S,
        request: Req,
    ) -> load::AloneLoad<S::Response, S::Error> {
        load::load_alone(loader, request, key, &self.0.statistics)
    }

    /// Answers a request with the entry of a key, or by the one load of that key.
    ///
    /// # Errors
    /// The errors of a [`ReadThrough`](crate::service::ReadThrough) service.
    pub fn request<S, Req: Send + 'static>(
        &self,
        key: Key,
        options: RequestOptions,
        loader: &S,
        request: Req,
    ) -> AnswerFuture<S::Response, S::Error>
    where
        S: Service<
                Req,
                Response: Send,
                Error: Into<BoxError> + Send + Sync + 'static,
                Future: Send,
            >,
        S: Clone + Send + 'static,
        C: Codec<S::Response>,
    {
        future::begin::<S::Error, _, _, _>(&self.0, key, loader, request, options, || None)
    }

    /// A fresh answer, if one is stored. Loads nothing.
    ///
    /// # Errors
    /// If the store fails, the key is too long, or there are too many tags.
    pub async fn get<R>(&self, key: &Key, tags: &Tags) -> Result<Option<R>, CacheError>
    where
        C: Codec<R>,
    {
        let request = RequestRecord::begin(Arc::clone(&self.0.statistics));
        if let Err(error) = within_bounds(key, tags) {
            request.count(RequestEvent::FailedMisuse);
            return Err(error);
        }
        let (found, hit) = match self.0.peek(key, tags) {
            Peeked::Hit(answer, _) => {
                request.count(RequestEvent::HitLocal);
                return Ok(Some(answer));
            }
            Peeked::Entry(entry) | Peeked::Audited(entry) => (Some(entry), RequestEvent::HitLocal),
            Peeked::Miss => (None, RequestEvent::Missed),
            Peeked::Unknown => match self.0.store.lookup(key.clone(), tags.clone()).await {
                Ok(found) => (found, RequestEvent::HitStore),
                Err(error) => {
                    request.count(RequestEvent::FailedStore);
                    return Err(CacheError::store(key, &error));
                }
            },
        };
        let fresh = found.filter(|entry| entry.is_fresh() && entry.as_marker().is_none());
        let answer = fresh.and_then(|entry| {
            let status = core::hit(&entry);
            let (answer, _) = self.0.answer::<R, Infallible>(key, entry, status)?;
            answer.ok()
        });
        request.count(if answer.is_some() { hit } else { RequestEvent::Missed });
        Ok(answer)
    }

    /// A handle to the stored entries.
    pub fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// What all clients and services of the layer have done in this process.
    pub fn stats(&self) -> CacheStats {
        self.0.statistics.read()
    }

    /// How many keys this process looks up or loads right now.
    pub fn in_flight(&self) -> usize {
        self.0.loads.len()
    }

    /// What is stored for a key with these tags, fresh or stale. `None` also if the store fails, which is
    /// logged.
    pub async fn lookup(&self, key: &Key, tags: &Tags) -> Option<Entry> {
        match self.0.store.peek(key) {
            Peek::Found(entry) if entry.has_tags(tags) => Some(entry),
            Peek::Gone => None,
            _ => match self.0.store.lookup(key.clone(), tags.clone()).await {
                Ok(entry) => entry,
                Err(error) => {
                    self.0.statistics.store_failed("the lookup counts as a miss", &error);
                    None
                }
            },
        }
    }

    /// The same lifetimes, with a ttl that is shortened by the layer's
    /// [jitter](crate::service::ReadThroughLayerBuilder::jitter). An answer that is stored with them is fresh for just that
    /// long.
    pub fn jittered(&self, lifetimes: Lifetimes) -> Lifetimes {
        self.0.policy.freshness.jittered(lifetimes, jitter())
    }

    /// Stores an answer outside of a load, for example when an origin confirms a stored response. One
    /// that is stored for no time removes the entry.
    ///
    /// It takes the lease of the key. It stores nothing if another caller has the lease, or if
    /// `replaces` refuses the stored entry. The answer gets the tags of the stored entry, and its
    /// own. Returns whether it was stored. A failure of the store is logged and returns `false`.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the answer may be stored or not. The lease lapses after
    /// two seconds.
    pub async fn replace<R>(
        &self,
        key: Key,
        answer: C::Kept,
        lifetimes: Lifetimes,
        replaces: impl FnOnce(Option<&Entry>) -> bool,
    ) -> bool
    where
        C: Codec<R>,
    {
        put::replace::<R, C>(&self.0, &key, answer, lifetimes, replaces).await
    }

    /// Whether an entry of a key is stored, or a load of it is under way. Also true if the store fails.
    ///
    /// It has the lease for a moment, and leaves nothing in the store.
    pub async fn is_in_use(&self, key: &Key) -> bool {
        put::is_in_use(&self.0, key).await
    }

    /// Stores an answer that was just written to the source, with these tags and its own. Returns
    /// whether it was stored.
    ///
    /// When it has returned `Ok`, no answer of a load that began before is stored or served any
    /// more. See [`Cache::put`](crate::Cache::put) for the races of writers.
    ///
    /// # Errors
    /// If the store fails, or the key is too long. Then an older answer may still be stored. If the
    /// store failed, the key is invalidated, and the error is [pending](CacheError::is_pending) if the store
    /// repeats that.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the answer may be stored or not, and an older one may
    /// still be there. The store releases the lease soon, or it lapses after two seconds.
    pub async fn put<R>(&self, key: Key, tags: &Tags, answer: R) -> Result<bool, CacheError>
    where
        C: Codec<R>,
    {
        within_bounds(&key, tags)?;
        put::put(&self.0, &key, tags, answer).await.map_err(|error| CacheError::store(&key, &error))
    }
}

impl<C> Clone for AdapterCache<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Checks a key and the tags of a call.
fn within_bounds(key: &Key, tags: &Tags) -> Result<(), CacheError> {
    if key.byte_len() > Key::MAX_BYTES {
        return Err(CacheError::key_too_long(key));
    }
    tags.within_bounds().map_err(|many| CacheError::too_many_tags(key, &many))
}
