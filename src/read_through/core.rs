//! What all clones of a service share.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::capture::Capture;
use crate::error::CacheError;
use crate::flight::Flights;
use crate::key::Key;
use crate::policy::Policy;
use crate::status::{Bypass, CacheStatus};
use crate::store::{Entry, Peek, Store, Value};

/// What all clones of a service share.
#[derive(Debug)]
pub(crate) struct Core<C> {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) policy: Policy,
    pub(crate) capture: Arc<C>,
    pub(crate) loads: Loads,
}

/// What is under way in this process, for all services of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Loads {
    /// One per key.
    pub(crate) flights: Arc<Flights<Landing>>,
    /// Of those who have waited in vain for somebody else's, one per key.
    pub(crate) reliefs: Arc<Flights<Landing>>,
}

impl Loads {
    pub(crate) fn none() -> Self {
        Self { flights: Flights::new(), reliefs: Flights::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.flights.len() + self.reliefs.len()
    }
}

/// What lands on those who wait. Types are erased, since one layer can wrap many services.
#[derive(Clone, Debug)]
pub(crate) enum Landing {
    /// A `C::Kept`, and where it is from.
    Value(Arc<dyn Any + Send + Sync>, Origin),
    /// The loader's error.
    LoadFailed(Arc<dyn Any + Send + Sync>),
    /// Our error.
    Failed(CacheError),
}

/// Where a value is from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// It was kept when it was first asked for.
    Kept(CacheStatus),
    /// Somebody else loaded it while we waited.
    Elsewhere,
    /// The load of who opened the flight.
    Loaded { stored: bool },
    /// A load around the cache.
    Around(Bypass),
}

impl<C> Core<C> {
    /// What this process knows of a key without asking: a fresh entry that can be read, or whether
    /// it is worth to ask.
    pub(crate) fn peek<R>(&self, key: &Key) -> Peeked<C::Kept>
    where
        C: Capture<R>,
    {
        match self.store.peek(key) {
            Peek::Found(entry) => match self.read(&entry) {
                Some(kept) if entry.is_fresh() => Peeked::Hit(kept, hit(&entry)),
                _ => Peeked::Miss,
            },
            Peek::Gone => Peeked::Miss,
            Peek::Unknown => Peeked::Unknown,
        }
    }

    /// The answer of an entry that was looked up, if it can be read.
    pub(crate) fn answer<R>(&self, entry: Entry) -> Option<(R, CacheStatus)>
    where
        C: Capture<R>,
    {
        let status = hit(&entry);
        let kept = self.read(&entry)?;
        drop(entry);
        let answer = match Arc::try_unwrap(kept) {
            Ok(kept) => self.capture.give_out(kept, &status),
            Err(kept) => self.capture.restore(&kept, &status),
        };
        Some((answer, status))
    }

    /// What an entry holds, if it is of our encoding and can be decoded.
    pub(crate) fn read<R>(&self, entry: &Entry) -> Option<Arc<C::Kept>>
    where
        C: Capture<R>,
    {
        if entry.codec() != self.capture.codec() {
            return None;
        }
        let decode = || entry.value().decoded(|bytes| self.capture.decode(bytes));
        // A decoder that panics on what it was given has not decoded it, and that is all.
        let decoded = catch_unwind(AssertUnwindSafe(decode)).ok()?;
        decoded.inspect_err(|error| tracing::debug!(%error, "an entry that cannot be decoded")).ok()
    }
}

/// What a process knows of a key by itself.
#[derive(Debug)]
pub(crate) enum Peeked<K> {
    Hit(Arc<K>, CacheStatus),
    Miss,
    Unknown,
}

/// The status of an answer that was kept.
pub(crate) fn hit(entry: &Entry) -> CacheStatus {
    CacheStatus::Hit { fresh_for: entry.fresh_for() }
}

/// A value that nobody keeps.
pub(crate) fn nothing() -> Value {
    Value::new(bytes::Bytes::new())
}
