//! The shared state of a layer: what all its services and their clones have in common.

use std::any::type_name;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::error_rules::ErrorRules;
use super::handle::Handle;
use super::key_request::RequestOptions;
use super::outcome::{NotFound, Outcome};
use super::remembered::{BypassPermit, FailureCache, OrphanedClaims, PrivateKeys};
use super::step::AnswerKind;
use crate::codec::{Cacheability, Codec};
use crate::error::{CacheError, Error};
use crate::flight::{AbandonedLoads, Flights};
use crate::jitter::jitter;
use crate::key::Key;
use crate::loads::Loads;
use crate::locked::locked;
use crate::policy::Policy;
use crate::stats::{Activity, CurrentStats, RequestEvent, Statistics};
use crate::status::{BypassReason, CacheStatus, StaleReason};
use crate::store::{Accept, Claim, End, Entry, Peek, Store};
use crate::tag::{TagRules, Tags};

/// What all clones of a service share. Aligned, so that it is apart in memory from the count of its
/// owners, which each request changes.
#[repr(align(128))]
pub(crate) struct Core<C> {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) policy: Policy,
    pub(crate) codec: Arc<C>,
    pub(crate) errors: ErrorRules,
    pub(crate) tags: TagRules,
    pub(crate) loads: Arc<UnderWay>,
    pub(crate) statistics: Arc<Statistics>,
}

crate::debug_fields! { Core<C> where C: Debug => |it|
    store = it.store, policy = it.policy, codec = it.codec
}

/// What is under way in this process, for all services of one layer.
pub(crate) struct UnderWay {
    /// The flights that load under a lease, one per key.
    pub(crate) flights: Arc<Flights<Outcome>>,
    /// Uncached loads of callers whose wait for another load ran out, one per key.
    pub(crate) uncached: Arc<Flights<Outcome>>,
    /// Forced refreshes, one per key.
    pub(crate) forced: Arc<Flights<Outcome>>,
    /// The bound on its loads, if there is one.
    pub(crate) bound: Option<Loads>,
    /// Failures of a moment ago.
    pub(crate) failures: FailureCache,
    /// Keys with private answers.
    pub(crate) private_keys: PrivateKeys,
    /// Claims of flights that their runtime has dropped.
    pub(crate) orphaned: Arc<OrphanedClaims>,
    /// Each audit that waits before it decides has a clone.
    pub(crate) audits: Arc<()>,
    begun: Instant,
}

impl UnderWay {
    /// None yet.
    pub(crate) fn new(policy: &Policy, bound: Option<Loads>) -> Arc<Self> {
        let abandoned = AbandonedLoads::new(policy.max_abandoned_loads);
        let bounds = (policy.max_flights, policy.max_waiters);
        let flights = || Flights::new(bounds, Arc::clone(&abandoned));
        Arc::new(Self {
            flights: flights(),
            uncached: flights(),
            forced: flights(),
            bound,
            failures: FailureCache::default(),
            private_keys: PrivateKeys::default(),
            orphaned: Arc::default(),
            audits: Arc::default(),
            begun: Instant::now(),
        })
    }

    /// When a pause from now is over, or up to 3 % of it earlier: at a moment that all loads share. What
    /// they send then goes together, at a tenth of the cost: 1,000 renewals take 5 ms of the server in
    /// place of 52. At moments further apart, they would look like a burst to the client.
    pub(crate) fn shared_moment(&self, pause: Duration) -> Instant {
        let (now, every) = (Instant::now(), (pause / 32).as_nanos().max(1));
        let beyond = ((now + pause) - self.begun).as_nanos() % every;
        now + pause - Duration::from_nanos(u64::try_from(beyond).unwrap_or(0))
    }

    /// How many keys are under way.
    pub(crate) fn len(&self) -> usize {
        self.flights.len() + self.uncached.len() + self.forced.len()
    }
}

impl Activity for UnderWay {
    fn current(&self) -> CurrentStats {
        let mut current = CurrentStats::default();
        current.failing_keys += self.failures.failing_keys();
        for flights in [&self.flights, &self.uncached, &self.forced] {
            let [flights, waiters, queued_loads] = flights.counts();
            current.flights += flights;
            current.waiters += waiters;
            current.queued_loads += queued_loads;
        }
        current
    }
}

impl<C> Core<C> {
    /// A handle to the stored entries.
    pub(crate) fn handle(&self) -> Handle {
        let (store, statistics) = (Arc::clone(&self.store), Arc::clone(&self.statistics));
        let is_clearable = self.tags.is_clearable;
        Handle { store, is_clearable, statistics, expiry: None }
    }

    /// What this process knows of a key without asking the store: an entry with these tags, or that
    /// there is none. Of an entry without one of them it is not known what the store has.
    #[inline]
    pub(crate) fn peek<R>(&self, key: &Key, tags: &Tags) -> Peeked<R>
    where
        C: Codec<R>,
    {
        if !self.policy.serves_stored() {
            return Peeked::Miss;
        }
        match self.store.peek(key) {
            Peek::Found(entry) if !entry.has_tags(tags) => Peeked::Unknown,
            Peek::Found(entry) if self.audits(&entry) => Peeked::Audited(entry),
            Peek::Found(entry) => match self.decoded_hit(&entry) {
                Some((answer, fresh_for)) => Peeked::Hit(answer, fresh_for),
                None => Peeked::Entry(entry),
            },
            Peek::Gone => Peeked::Miss,
            Peek::Unknown => Peeked::Unknown,
        }
    }

    /// The answer of an entry that is fresh, cannot be due for an early refresh, and is decoded
    /// already.
    #[inline]
    fn decoded_hit<R>(&self, entry: &Entry) -> Option<(R, Option<Duration>)>
    where
        C: Codec<R>,
    {
        if !entry.is_fresh()
            || self.policy.freshness.early.is_some()
            || entry.codec() != self.codec.id()
        {
            return None;
        }
        let fresh_for = entry.fresh_for();
        let status = CacheStatus::Hit { fresh_for };
        Some((self.codec.restore(entry.value().decoded_as()?, &status), fresh_for))
    }

    /// Gives up the lease of a claim, if it was granted and still holds.
    pub(crate) async fn abandon(&self, claim: Claim) {
        if let Err(error) = self.store.settle(End::Abandon(claim)).await {
            let why = "a lease is not released: it ends when it lapses";
            self.statistics.debug(why, None, Some(&error));
        }
    }

    /// Whether a hit is audited. Each thread takes the set share of its hits.
    #[inline]
    pub(crate) fn audits(&self, entry: &Entry) -> bool {
        if self.policy.audit == 0.0 || !entry.is_fresh() {
            return false;
        }
        UNAUDITED.with(|share| {
            let sum = share.get() + self.policy.audit;
            share.set(sum.fract());
            sum >= 1.0
        })
    }

    /// Set if a fresh entry is due for an early refresh or an audit: what replaces it, and whether it is an audit.
    pub(crate) fn refresh_due(&self, entry: &Entry, is_audited: bool) -> Option<(Accept, bool)> {
        let audit = is_audited.then(|| (Accept::Other { than: entry.fence() }, true));
        self.due_early(entry).map(|accept| (accept, false)).or(audit)
    }

    /// Set if a fresh entry is due for an early refresh: what replaces it.
    pub(crate) fn due_early(&self, entry: &Entry) -> Option<Accept> {
        let freshness = &self.policy.freshness;
        let left = entry.fresh_for().filter(|_| freshness.early.is_some())?;
        let is_due = freshness.is_due_early(entry.load_time(), left, jitter());
        is_due.then(|| Accept::Other { than: entry.fence() })
    }

    /// Counts a request, or notes its end if it is a part of another one.
    #[inline]
    pub(crate) fn count(&self, options: &RequestOptions, event: RequestEvent) {
        match &options.noted {
            Some(noted) => *locked(noted) = Some(event),
            None => self.statistics.request(event),
        }
    }

    /// A permit to load individually, for a request whose key has private answers.
    pub(crate) fn bypass(&self, key: &Key, options: &RequestOptions) -> Option<BypassPermit> {
        let coalesces = options.returns_bypass || options.is_forced;
        if coalesces { None } else { self.loads.private_keys.bypass(&key.digest()) }
    }

    /// The answer to a caller that loaded individually. Remembers whether it can be shared.
    pub(crate) fn bypass_answer<R, E>(
        &self,
        key: &Key,
        loaded: Result<Result<R, Error<E>>, CacheError>,
    ) -> (Result<R, Error<E>>, CacheStatus)
    where
        C: Codec<R>,
    {
        let status = CacheStatus::Bypass(BypassReason::Private);
        let shown = |response| {
            let kept = self.codec.keep(response);
            self.note_cacheability(key, &kept);
            self.codec.restore_owned(kept, &status)
        };
        let answer = match loaded {
            // A panic of the codec counts as one of the loader, as in a flight.
            Ok(Ok(response)) => catch_unwind(AssertUnwindSafe(|| shown(response)))
                .map_err(|_| CacheError::loader_panicked(Some(key)).into()),
            Ok(Err(error)) => Err(self.errors.error(error)),
            Err(panicked) => Err(panicked.into()),
        };
        (answer, status)
    }

    fn note_cacheability<R>(&self, key: &Key, kept: &C::Kept)
    where
        C: Codec<R>,
    {
        // A panic in the program's `classify` says nothing about the answer.
        match catch_unwind(AssertUnwindSafe(|| self.codec.classify(kept))) {
            Ok(Cacheability::PrivateKey) => self.note_private(key),
            Ok(Cacheability::PrivateOnce | Cacheability::Failure | Cacheability::Unconfirmed)
            | Err(_) => {}
            Ok(Cacheability::Keep | Cacheability::KeepFor(_) | Cacheability::NotFound) => {
                self.loads.private_keys.note_shared(&key.digest());
            }
        }
    }

    /// Notes that an answer for a key was private.
    fn note_private(&self, key: &Key) {
        self.loads.private_keys.note_private(key.digest(), self.policy.freshness.marker_ttl);
    }

    /// Notes an answer for a key that is no failure: what is remembered against the key may be over.
    pub(crate) fn note_success(&self, key: &Key, kind: AnswerKind) {
        self.loads.failures.forget(key.digest());
        match kind {
            AnswerKind::PrivateKey => self.note_private(key),
            AnswerKind::PrivateOnce => {}
            _ => self.loads.private_keys.note_shared(&key.digest()),
        }
    }

    /// The answer of an entry, if it can be read: a value, or an error that says "there is none".
    pub(crate) fn answer<R, E: 'static>(
        &self,
        key: &Key,
        entry: Entry,
        status: CacheStatus,
    ) -> Option<(Result<R, Error<E>>, CacheStatus)>
    where
        C: Codec<R>,
    {
        if let Some(not_found) = NotFound::of(&entry) {
            return Some((Err(not_found.to_error(key)), status));
        }
        if entry.value().is_of_another_type::<C::Kept>() {
            // The two replace each other's values with every load.
            let why = ["two types of values have one name: each replaces the other", ""];
            let expected = type_name::<C::Kept>();
            self.statistics.warn(Statistics::ONCE, why, Some(key), Some(&expected));
            return None;
        }
        let kept = self.read(&entry)?;
        // The last owner of a value needs no copy for others.
        drop(entry);
        let answer = match Arc::try_unwrap(kept) {
            Ok(kept) => self.codec.restore_owned(kept, &status),
            Err(kept) => self.codec.restore(&kept, &status),
        };
        Some((Ok(answer), status))
    }

    /// What an entry holds, if it is of this codec and type, and can be decoded.
    pub(crate) fn read<R>(&self, entry: &Entry) -> Option<Arc<C::Kept>>
    where
        C: Codec<R>,
    {
        let value = entry.value();
        if value.is_of_another_type::<C::Kept>() {
            return None;
        }
        // A panic of the decoder counts as an entry that cannot be decoded.
        let decode = || value.decoded(|bytes| self.codec.decode(bytes));
        let error = match entry.codec() == self.codec.id() {
            false => Some("it has another codec".into()),
            true => match catch_unwind(AssertUnwindSafe(decode)) {
                Ok(Ok(kept)) => return Some(kept),
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            },
        };
        self.statistics.undecodable(type_name::<C::Kept>(), error);
        None
    }
}

thread_local! {
    /// Which part of an audit the hits since the last one add up to.
    static UNAUDITED: Cell<f64> = Cell::new(jitter().fract());
}

/// What a process knows of a key without asking the store.
#[derive(Debug)]
pub(crate) enum Peeked<R> {
    /// A fresh answer, and how much longer it is fresh if that is known.
    Hit(R, Option<Duration>),
    /// An entry that has to be decoded, is stale, or may be due for a refresh.
    Entry(Entry),
    /// A fresh entry that is loaded again to compare it.
    Audited(Entry),
    /// The store has no entry.
    Miss,
    /// The store has to be asked.
    Unknown,
}

/// The status of a stored answer that is fresh.
#[inline]
pub(crate) fn hit(entry: &Entry) -> CacheStatus {
    CacheStatus::Hit { fresh_for: entry.fresh_for() }
}

/// The status of a stale answer.
pub(crate) fn stale(entry: &Entry, why: StaleReason) -> CacheStatus {
    CacheStatus::Stale { why, stale_for: entry.stale_for().unwrap_or_default() }
}
