//! `CacheClient`: the cache of a layer, for adapters that make their own keys.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tower::Service;

use super::core::{self, Core, Peeked};
use super::future::{AloneLoad, ResponseFuture};
use super::handle::Handle;
use super::layer::ReadThroughLayer;
use super::load::{self, AnswerStorage, LoaderAnswer};
use super::lookup::{Lookup, RequestOptions};
use super::many::{BatchFuture, BatchLoader, Batched, load_many};
use crate::codec::{Codec, EncodeBuffer};
use crate::error::{BoxError, CacheError, StoreError};
use crate::jitter::jitter;
use crate::key::Key;
use crate::lifetimes::Lifetimes;
use crate::stats::{CacheStats, InvalidationEvent, RequestEvent, RequestRecord};
use crate::status::CacheStatus;
use crate::store::{Accept, Acquire, Claim, Commit, Draft, Entry, Lease, Peek, Store, Value};
use crate::tag::Tags;

/// The cache of a [`ReadThroughLayer`], without a loader and without a key function.
///
/// Clones share one state, and so do all clients of one layer: its flights, its failure cache and
/// its store. See the [module page](crate::adapter).
#[derive(Debug)]
pub struct CacheClient<C: ?Sized>(Arc<Core<C>>);

impl<C> CacheClient<C> {
    /// The cache of a layer, with the options that the layer has now.
    pub fn new<K>(layer: &ReadThroughLayer<K, C>) -> Self {
        Self(Arc::new(layer.core.clone()))
    }

    /// The same, for loaders whose answers have a head and a body.
    /// [`load_timeout`](Self::load_timeout) then bounds the time until the head, and the body may
    /// take `collect_within` longer. The loader enforces the first bound itself, with
    /// [`LoadTimedOut`](super::load::LoadTimedOut).
    pub fn with_bodies<K>(layer: &ReadThroughLayer<K, C>, collect_within: Duration) -> Self {
        let mut core = layer.core.clone();
        core.policy.collect_within = collect_within;
        Self(Arc::new(core))
    }

    /// How long a load may take: until the head of its answer, for answers that have one.
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

    /// A fresh, decoded answer that this process has: a hit without a future. It is not counted:
    /// see [`count_hit`](Self::count_hit).
    pub fn cached<R>(&self, key: &Key) -> Option<(R, CacheStatus)>
    where
        C: Codec<R>,
    {
        match self.0.peek(key, &Tags::none()) {
            Peeked::Hit(answer, fresh_for) => Some((answer, CacheStatus::Hit { fresh_for })),
            _ => None,
        }
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
    /// not kept.
    pub fn load_alone<S, Req>(
        &self,
        key: Option<&Key>,
        loader: S,
        request: Req,
    ) -> AloneLoad<S, Req>
    where
        S: Service<Req>,
    {
        AloneLoad::new(loader, request, key, &self.0.statistics)
    }

    /// Answers a request with the entry of a key, or by the one load of that key.
    ///
    /// # Errors
    /// The errors of a [`ReadThrough`](crate::ReadThrough) service.
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
        S::Error: Into<BoxError> + Send + Sync + 'static,
        Req: Send + 'static,
        C: Codec<S::Response>,
    {
        ResponseFuture::begin(&self.0, key, loader, request, options)
    }

    /// Answers many requests, with one call of the loader for those that miss: see
    /// [`load_many`](crate::ReadThrough::load_many). One call gets at most 1,000 requests.
    pub fn request_many<B, Req>(
        &self,
        loader: B,
        requests: Vec<Req>,
        lookup_of: impl Fn(&Req) -> Lookup,
    ) -> BatchFuture<B::Answer, B::LoadError>
    where
        B: BatchLoader<Req>,
        Req: Send + 'static,
        C: Codec<B::Answer>,
    {
        load_many(&self.0, &Batched::new(loader), requests, lookup_of)
    }
}

impl<C: ?Sized> CacheClient<C> {
    /// The client of a cache.
    pub(super) fn of(core: Core<C>) -> Self {
        Self(Arc::new(core))
    }

    /// A fresh answer, if one is stored. Loads nothing.
    ///
    /// # Errors
    /// If the store fails, or the key is too long.
    pub async fn get<R>(&self, key: &Key, tags: &Tags) -> Result<Option<R>, CacheError>
    where
        C: Codec<R>,
    {
        let request = RequestRecord::begin(Arc::clone(&self.0.statistics));
        if key.byte_len() > Key::MAX_BYTES {
            request.count(RequestEvent::FailedMisuse);
            return Err(CacheError::key_too_long(key));
        }
        let (found, hit) = match self.0.peek(key, tags) {
            Peeked::Hit(answer, _) => {
                request.count(RequestEvent::HitLocal);
                return Ok(Some(answer));
            }
            Peeked::Entry(entry) => (Some(entry), RequestEvent::HitLocal),
            Peeked::Miss => (None, RequestEvent::Missed),
            Peeked::Unknown => match self.0.store.lookup_tagged(key.clone(), tags.clone()).await {
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

    /// What is stored for a key, fresh or stale. `None` also if the store fails, which is logged.
    pub async fn lookup(&self, key: &Key) -> Option<Entry> {
        match self.0.store.peek(key) {
            Peek::Found(entry) => Some(entry),
            Peek::Gone => None,
            Peek::Unknown => match self.0.store.lookup(key.clone()).await {
                Ok(entry) => entry,
                Err(error) => {
                    self.0.statistics.store_failed("the lookup counts as a miss", &error);
                    None
                }
            },
        }
    }

    /// The same lifetimes, with a ttl that is shortened by the layer's
    /// [jitter](ReadThroughLayer::jitter). An answer that is stored with them is fresh for just that
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
        let failed = |error: &StoreError| {
            self.0.statistics.store_failed("an answer may not be stored", error);
        };
        let acquired = self.acquire(&key).await.inspect_err(failed);
        let Ok(Some((lease, stored))) = acquired else { return false };
        let is_wanted = replaces(stored.as_ref());
        let draft = || {
            let tags = stored.map_or(Tags::none(), |entry| entry.tags());
            let tags = tags.union(&Tags::new(self.0.codec.tags(&answer)).ok()?).ok()?;
            let draft = Draft::new(self.encode(answer)?, self.0.codec.id(), lifetimes);
            Some(draft.tagged(self.0.tags.and_everything(&tags)))
        };
        let Some(draft) = is_wanted.then(draft).flatten() else {
            self.abandon(lease).await;
            return false;
        };
        let committed = self.0.store.commit(lease, draft).await.inspect_err(failed);
        committed.is_ok_and(|committed| committed == Commit::Stored)
    }

    /// Whether an entry of a key is stored, or a load of it is under way. Also true if the store fails.
    ///
    /// It has the lease for a moment, and leaves nothing in the store.
    pub async fn is_in_use(&self, key: &Key) -> bool {
        match self.acquire(key).await {
            Ok(Some((lease, stored))) => {
                self.abandon(lease).await;
                stored.is_some()
            }
            _ => true,
        }
    }

    /// Stores an answer that was just written to the source, with these tags and its own. Returns
    /// whether it was stored.
    ///
    /// When it has returned `Ok`, no answer of a load that began before is stored or served any
    /// more. See [`Cache::put`](crate::Cache::put) for the races of writers.
    ///
    /// # Errors
    /// If the store fails, or the key is too long. Then an older answer may still be stored. If the
    /// store failed, the key is invalidated, and the error is [kept](CacheError::is_kept) if the store
    /// repeats that.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the answer may be stored or not, and an older one may
    /// still be there. The lease lapses after two seconds.
    pub async fn put<R>(&self, key: Key, tags: &Tags, answer: R) -> Result<bool, CacheError>
    where
        C: Codec<R>,
    {
        if key.byte_len() > Key::MAX_BYTES {
            return Err(CacheError::key_too_long(&key));
        }
        let draft = self.draft(&key, tags, answer);
        let stored = match draft {
            Some(draft) => self.replace_older(&key, draft).await,
            None => Ok(false),
        };
        let put = match stored {
            Ok(true) => Ok(true),
            // What is stored may be older, or written by a caller that came before.
            Ok(false) => self.0.store.invalidate(key.clone()).await.map(|_| false),
            Err(error) => Err(self.remove_after(&key, error).await),
        };
        let counted = self.0.statistics.changed(InvalidationEvent::Put, put);
        counted.map_err(|error| CacheError::store(&key, &error))
    }

    /// What a store gets of an answer. `None` if the answer must not or cannot be stored.
    fn draft<R>(&self, key: &Key, tags: &Tags, answer: R) -> Option<Draft>
    where
        C: Codec<R>,
    {
        let core = &self.0;
        match load::classified(core.codec.keep(answer), core, key, None) {
            LoaderAnswer::Loaded(
                kept,
                AnswerStorage::Store(bytes, extra_bytes, lifetimes),
                own,
            ) => {
                let value = Value::of(bytes, kept, extra_bytes);
                let tags = tags.union(&own);
                let tags =
                    tags.inspect_err(|many| load::warn_too_many_tags(core, key, *many)).ok()?;
                let tags = core.tags.and_everything(&tags);
                Some(Draft::new(value, core.codec.id(), lifetimes).tagged(tags))
            }
            _ => None,
        }
    }

    /// Commits under a lease, and takes the lease from a load that began before.
    async fn replace_older(&self, key: &Key, draft: Draft) -> Result<bool, StoreError> {
        let mut acquired = self.acquire(key).await?;
        if acquired.is_none() {
            // A load may have read the source before it changed. Ending its lease refuses its
            // answer.
            self.0.store.invalidate(key.clone()).await?;
            acquired = self.acquire(key).await?;
        }
        let Some((lease, _)) = acquired else { return Ok(false) };
        let is_stored = self.0.store.commit(lease, draft).await? == Commit::Stored;
        if is_stored {
            // The key has an answer that can be shared, so what is remembered against it is over.
            let (loads, digest) = (&self.0.loads, key.digest());
            loads.failures.forget(&digest);
            loads.unshared_failures.forget(&digest);
            loads.private_keys.note_shared(&digest);
        }
        Ok(is_stored)
    }

    /// Removes what is older than an answer that could not be stored. Returns the error of that if
    /// the store keeps and repeats it.
    async fn remove_after(&self, key: &Key, error: StoreError) -> StoreError {
        match self.0.store.invalidate(key.clone()).await {
            Err(kept) if kept.is_kept() => kept,
            _ => error,
        }
    }

    /// The lease of a key and its entry, unless another caller has the lease.
    async fn acquire(&self, key: &Key) -> Result<Option<(Lease, Option<Entry>)>, StoreError> {
        let claim = Claim::new(key.clone());
        Ok(match self.0.store.acquire(claim, TERM, Accept::Nothing).await? {
            Acquire::Lead { lease, stale, .. } => Some((lease, stale)),
            _ => None,
        })
    }

    fn encode<R>(&self, answer: C::Kept) -> Option<Value>
    where
        C: Codec<R>,
    {
        let mut buffer = EncodeBuffer::new(self.0.policy.max_entry_bytes);
        self.0.codec.encode(&answer, &mut buffer).ok()?;
        let encoded = buffer.into_bytes();
        let settled = self.0.codec.settle(answer, &encoded);
        let extra_bytes = self.0.codec.weight(&settled, &encoded);
        Some(Value::of(encoded, Arc::new(settled), extra_bytes))
    }

    async fn abandon(&self, lease: Lease) {
        if let Err(error) = self.0.store.abandon(lease.into_claim()).await {
            tracing::debug!(target: "bellwether::load", cache = &**self.0.statistics.name(), %error, "a lease is not released: it ends when it lapses");
        }
    }
}

impl<C: ?Sized> Clone for CacheClient<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The term of a lease that is taken only to store an answer.
const TERM: Duration = Duration::from_secs(2);
