//! What all clones of a service share.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::failure_cache::FailureCache;
use super::lookup::RequestOptions;
use super::outcome::Outcome;
use super::private_keys::{BypassPermit, PrivateKeys};
use crate::codec::{Cacheability, Codec};
use crate::error::Error;
use crate::flight::{FlightBounds, Flights};
use crate::key::Key;
use crate::policy::{Bounds, Policy};
use crate::status::{CacheStatus, StaleReason};
use crate::store::{Entry, Peek, Store, Value};

/// What all clones of a service share.
pub(crate) struct Core<C> {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) policy: Policy,
    pub(crate) codec: Arc<C>,
    pub(crate) errors: ErrorRules,
    pub(crate) loads: Loads,
}

impl<C: fmt::Debug> fmt::Debug for Core<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("store", &self.store)
            .field("policy", &self.policy)
            .field("codec", &self.codec)
            .field("loads", &self.loads)
            .finish_non_exhaustive()
    }
}

/// What a program says of its loader's errors.
#[derive(Clone, Default)]
pub(crate) struct ErrorRules {
    /// Puts an error into words, if it is of the type that it knows.
    pub(crate) describe: Option<Arc<ErrorRule<Option<String>>>>,
    /// Whether an error is the source's, whatever was asked for.
    pub(crate) is_of_source: Option<Arc<ErrorRule<bool>>>,
}

/// What a program says of an error.
pub(crate) type ErrorRule<T> = dyn Fn(AnyError<'_>) -> T + Send + Sync;

/// An error of any type.
pub(crate) type AnyError<'a> = &'a (dyn Any + Send + Sync);

/// What is under way in this process, for all services of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Loads {
    /// One per key.
    pub(crate) flights: Arc<Flights<Outcome>>,
    /// Uncached loads, for callers that waited in vain for another load, one per key.
    pub(crate) uncached: Arc<Flights<Outcome>>,
    /// Forced refreshes, one per key.
    pub(crate) forced: Arc<Flights<Outcome>>,
    /// Permits to load without a lease.
    pub(crate) permits: Arc<Semaphore>,
    /// What failed here a moment ago.
    pub(crate) failures: Arc<FailureCache>,
    /// The same, of loads whose failures must not hold up other callers: uncached and forced ones.
    pub(crate) apart: Arc<FailureCache>,
    /// Keys whose answers are each for one caller.
    pub(crate) private_keys: Arc<PrivateKeys>,
    /// How long loads take, in microseconds: a moving average. Zero: none has ended yet.
    typical: Arc<AtomicU64>,
}

impl Loads {
    pub(crate) fn none(bounds: Bounds) -> Self {
        let Bounds { waiters, flights, loads_around } = bounds;
        let flights = || Flights::new(FlightBounds { flights, waiters });
        Self {
            flights: flights(),
            uncached: flights(),
            forced: flights(),
            permits: Arc::new(Semaphore::new(loads_around)),
            failures: Arc::default(),
            apart: Arc::default(),
            private_keys: Arc::default(),
            typical: Arc::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flights.len() + self.uncached.len() + self.forced.len()
    }

    /// How long a load takes, by those that have ended.
    pub(crate) fn typical(&self) -> Duration {
        Duration::from_micros(self.typical.load(Ordering::Relaxed))
    }

    /// A load has ended. Each new one weighs an eighth; one that is lost to a race does not matter.
    pub(crate) fn note(&self, load_time: Duration) {
        let new = u64::try_from(load_time.as_micros()).unwrap_or(u64::MAX);
        let old = self.typical.load(Ordering::Relaxed);
        let average = if old == 0 { new } else { old - old / 8 + new / 8 };
        self.typical.store(average, Ordering::Relaxed);
    }
}

impl<C> Core<C> {
    /// What this process knows of a key without asking: a fresh entry that can be read, or whether
    /// it is worth to ask.
    #[inline]
    pub(crate) fn peek<R>(&self, key: &Key) -> Peeked<R>
    where
        C: Codec<R>,
    {
        match self.store.peek(key) {
            Peek::Found(entry) => match self.at_hand(&entry) {
                Some((answer, fresh_for)) => Peeked::Hit(answer, fresh_for),
                None => Peeked::Entry(entry),
            },
            Peek::Gone => Peeked::Miss,
            Peek::Unknown => Peeked::Unknown,
        }
    }

    /// The answer of an entry, if it is fresh, needs no closer look, and was decoded before.
    #[inline]
    fn at_hand<R>(&self, entry: &Entry) -> Option<(R, Option<Duration>)>
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

    /// Leave for a request to load for itself, if it does not wait for the loads of others.
    pub(crate) fn bypass(&self, key: &Key, how: RequestOptions) -> Option<BypassPermit> {
        let coalesces = how.bypasses_by_itself || how.is_forced;
        if coalesces { None } else { self.loads.private_keys.bypass(&key.digest()) }
    }

    /// The answer to a caller that has loaded for itself. Notes for whom it was.
    pub(crate) fn answer_of_bypass<R, E>(
        &self,
        key: &Key,
        loaded: Result<R, E>,
        status: CacheStatus,
    ) -> (Result<R, Error<E>>, CacheStatus)
    where
        C: Codec<R>,
    {
        let answer = loaded.map(|response| {
            let kept = self.codec.keep(response);
            self.note_verdict(key, &kept);
            self.codec.restore_owned(kept, &status)
        });
        (answer.map_err(|error| Error::Load(Arc::new(error))), status)
    }

    fn note_verdict<R>(&self, key: &Key, kept: &C::Kept)
    where
        C: Codec<R>,
    {
        // A panic of the program's code over an answer says nothing of it.
        match catch_unwind(AssertUnwindSafe(|| self.codec.classify(kept))) {
            Ok(Cacheability::PrivateKey) => self.note_private(key),
            Ok(Cacheability::PrivateOnce | Cacheability::Failure | Cacheability::Unconfirmed)
            | Err(_) => {}
            Ok(Cacheability::Keep | Cacheability::KeepFor(_) | Cacheability::NotFound) => {
                self.loads.private_keys.note_shared(&key.digest());
            }
        }
    }

    /// Notes that an answer for a key was for one caller only.
    pub(crate) fn note_private(&self, key: &Key) {
        self.loads.private_keys.note_private(key.digest(), self.policy.freshness.marker_ttl);
    }

    /// The answer of an entry that was looked up, if it can be read.
    pub(crate) fn answer<R>(&self, entry: Entry, status: CacheStatus) -> Option<(R, CacheStatus)>
    where
        C: Codec<R>,
    {
        let kept = self.read(&entry)?;
        drop(entry);
        let answer = match Arc::try_unwrap(kept) {
            Ok(kept) => self.codec.restore_owned(kept, &status),
            Err(kept) => self.codec.restore(&kept, &status),
        };
        Some((answer, status))
    }

    /// What an entry holds, if it is of our encoding and can be decoded.
    pub(crate) fn read<R>(&self, entry: &Entry) -> Option<Arc<C::Kept>>
    where
        C: Codec<R>,
    {
        if entry.codec() != self.codec.id() {
            return None;
        }
        let decode = || entry.value().decoded(|bytes| self.codec.decode(bytes));
        // A decoder that panics on what it was given has not decoded it, and that is all.
        let decoded = catch_unwind(AssertUnwindSafe(decode)).ok()?;
        decoded.inspect_err(|error| tracing::debug!(%error, "an entry that cannot be decoded")).ok()
    }
}

/// What a process knows of a key by itself.
#[derive(Debug)]
pub(crate) enum Peeked<R> {
    /// A fresh answer, and for how much longer it is, if that is known.
    Hit(R, Option<Duration>),
    /// To be looked at more closely.
    Entry(Entry),
    Miss,
    Unknown,
}

/// The status of an answer that was kept.
#[inline]
pub(crate) fn hit(entry: &Entry) -> CacheStatus {
    CacheStatus::Hit { fresh_for: entry.fresh_for() }
}

/// The status of a stale answer.
pub(crate) fn stale(entry: &Entry, why: StaleReason) -> CacheStatus {
    CacheStatus::Stale { why, stale_for: entry.stale_for().unwrap_or_default() }
}

/// A value that nobody keeps.
pub(crate) fn nothing() -> Value {
    Value::new(bytes::Bytes::new())
}
