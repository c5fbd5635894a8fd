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
use super::load;
use super::step::{self, AfterPut, AnswerKind, PutAttempt};
use crate::codec::Codec;
use crate::error::{BoxError, CacheError, StoreError};
use crate::jitter::jitter;
use crate::key::Key;
use crate::lifetimes::Lifetimes;
use crate::stats::{CacheStats, InvalidationEvent, RequestEvent, RequestRecord};
use crate::status::CacheStatus;
use crate::store::{
    Accept, Acquire, Claim, Draft, End, Entry, Peek, Settled, Store, Withdrawal, WithdrawalTarget,
};
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
        let loader = || load::sharing(loader.clone());
        future::begin(&self.0, key, loader, request, options, || None)
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
        let core = &*self.0;
        let draft = |stored: Option<&Entry>| {
            if !replaces(stored) {
                return None;
            }
            let tags = Tags::unbounded(core.codec.tags(&answer));
            let tags = stored.map_or(Tags::none(), Entry::tags).union(&tags).ok()?;
            let (value, _) = load::encoded(core, &key, answer).ok()?;
            let draft = Draft::new(value, core.codec.id(), lifetimes);
            Some(draft.tagged(core.tags.and_everything(&tags)))
        };
        match under_lease(core, &key, &Tags::none(), draft).await {
            Ok(attempt) => attempt == PutAttempt::Stored,
            Err(error) => {
                core.statistics.store_failed("an answer may not be stored", &error);
                false
            }
        }
    }

    /// Whether an entry of a key is stored, or a load of it is under way. Also true if the store fails.
    ///
    /// It has the lease for a moment, and leaves nothing in the store.
    pub async fn is_in_use(&self, key: &Key) -> bool {
        let mut is_stored = true;
        let look = |stored: Option<&Entry>| {
            is_stored = stored.is_some();
            None
        };
        _ = under_lease(&self.0, key, &Tags::none(), look).await;
        is_stored
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
        let core = &*self.0;
        let answer = load::classified(core, &key, tags, core.codec.keep(answer));
        // If the cache is off, the key is only cleared.
        let is_storable = core.policy.enabled && answer.kind == AnswerKind::Value;
        let draft = answer.draft.filter(|it| is_storable && it.is_value());
        let draft = draft.and_then(|draft| {
            let tags = tags.union(&draft.tags).ok()?;
            Some(draft.tagged(core.tags.and_everything(&tags)).invalidating())
        });
        let put = put_draft(core, &key, draft).await;
        if let Ok(true) = put {
            core.note_success(&key, AnswerKind::Value);
        }
        let put = core.statistics.changed(InvalidationEvent::Put, put);
        put.map_err(|error| CacheError::store(&key, &error))
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

/// Attempts to store a draft, and invalidates the key if that fails. Returns whether it was stored.
async fn put_draft<C>(core: &Core<C>, key: &Key, draft: Option<Draft>) -> Result<bool, StoreError> {
    let mut is_first = true;
    loop {
        let attempted = match &draft {
            // With its tags, so that an invalidation of one is noticed, whatever the store forgets.
            Some(draft) => under_lease(core, key, &draft.tags, |_| Some(draft.clone())).await,
            None => Ok(PutAttempt::Refused),
        };
        let next = step::after_put(attempted.as_ref().ok().copied(), is_first);
        if next == AfterPut::End {
            return Ok(true);
        }
        let target = WithdrawalTarget::Key(key.clone());
        let cleared = core.store.withdraw(target, Withdrawal::Invalidate).await;
        match (attempted, cleared) {
            // The error of the invalidation, if the store keeps and repeats that.
            (Err(error), cleared) => {
                return Err(cleared.err().filter(StoreError::is_pending).unwrap_or(error));
            }
            (Ok(_), Err(error)) => return Err(error),
            (Ok(_), Ok(_)) if next == AfterPut::Clear => return Ok(false),
            (Ok(_), Ok(_)) => is_first = false,
        }
    }
}

/// Takes the lease of a key for a claim with these tags, and stores under it what is made of the
/// entry that is there.
async fn under_lease<C>(
    core: &Core<C>,
    key: &Key,
    tags: &Tags,
    draft: impl FnOnce(Option<&Entry>) -> Option<Draft>,
) -> Result<PutAttempt, StoreError> {
    let store = &core.store;
    let claim = Claim::new(key.clone()).tagged(tags.clone());
    let Acquire::Lead { lease, stale, .. } = store.acquire(claim, TERM, Accept::Nothing).await?
    else {
        return Ok(PutAttempt::Busy);
    };
    if let Some(error) = lease.outage {
        // What is stored in this process alone replaces nothing elsewhere.
        core.abandon(lease.claim).await;
        return Err(error);
    }
    let Some(draft) = draft(stale.as_ref()) else {
        core.abandon(lease.claim).await;
        return Ok(PutAttempt::Refused);
    };
    Ok(match store.settle(End::Commit(lease, draft)).await? {
        Settled::Done => PutAttempt::Stored,
        Settled::Superseded | Settled::TooLarge => PutAttempt::Refused,
    })
}

/// The term of a lease that is taken only to store an answer.
const TERM: Duration = Duration::from_secs(2);
