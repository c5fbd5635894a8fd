//! `Outcome`: what a flight completes its waiters with. And stale fallbacks, older answers that are
//! served instead of an error or a longer wait.

use std::any::{Any, TypeId};
use std::error::Error as StdError;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::error::{CacheError, CacheErrorKind, Error, SharedError};
use crate::key::Key;
use crate::lifetimes::Lifetimes;
use crate::status::{CacheStatus, StaleReason};
use crate::store::{Draft, Entry, Value};

/// What a waiter gets. Types are erased, since one layer can wrap many services.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// A `C::Kept`, and the status of the caller that opened the flight.
    Value(Arc<dyn Any + Send + Sync>, CacheStatus),
    /// An older entry, while the flight goes on.
    Stale(StaleFallback),
    /// The loader's error.
    LoadFailed(Arc<dyn StdError + Send + Sync>),
    /// A `C::Kept` that counts as a failure.
    FailedValue(Arc<dyn Any + Send + Sync>),
    /// The value is private to another caller, and so are the next ones: the waiter loads
    /// individually.
    PrivateKey,
    /// The value is private to another caller this once: the waiter loads individually, or asks
    /// once more if its request may share the next answer.
    PrivateOnce,
    /// The store may have a usable entry: the waiter reads the store itself.
    LookUp,
    /// An error of the cache.
    Failed(CacheError),
}

impl Outcome {
    /// The same, with another status if it is a value.
    pub(crate) fn with(self, status: CacheStatus) -> Self {
        match self {
            Self::Value(kept, _) => Self::Value(kept, status),
            other => other,
        }
    }
}

/// An entry that may be served instead of an error or a wait, and when the store gave it.
#[derive(Clone, Debug)]
pub(crate) struct StaleFallback {
    pub(super) entry: Entry,
    found_at: Instant,
}

impl StaleFallback {
    pub(super) fn found(entry: Entry) -> Self {
        Self { entry, found_at: Instant::now() }
    }

    /// The entry and its status, unless its stale windows are over by now.
    pub(super) fn serve(self, why: StaleReason, now: Instant) -> Option<(Entry, CacheStatus)> {
        let Self { entry, found_at } = self;
        let since = now.saturating_duration_since(found_at);
        let stale_for = match (entry.stale_for(), entry.fresh_for()) {
            (Some(stale_for), _) => stale_for.saturating_add(since),
            (None, Some(fresh_for)) if fresh_for <= since => since - fresh_for,
            (None, fresh_for) => return Some((entry, CacheStatus::Hit { fresh_for })),
        };
        let why = if entry.is_unwatched() { StaleReason::StoreFailed } else { why };
        // In either stale window: the longer one counts.
        let is_usable = stale_for < entry.lifetimes().served_stale();
        is_usable.then_some((entry, CacheStatus::Stale { why, stale_for }))
    }
}

/// Why a stale answer is served instead of this error.
pub fn stale_reason<E>(error: &Error<E>) -> StaleReason {
    use CacheErrorKind::{Contended, DeadlineExceeded, Full, WaitTimedOut};
    match error.cache().map(CacheError::kind) {
        Some(Full) => StaleReason::NoRoom,
        Some(Contended | DeadlineExceeded | WaitTimedOut) => StaleReason::WaitRanOut,
        _ => StaleReason::LoadFailed,
    }
}

/// An error that says "there is none". Flights and stores treat it as an answer. A process that has
/// not loaded it knows only its text.
#[derive(Clone)]
pub(crate) struct NotFound {
    message: Bytes,
    /// The loader's own error, with its type.
    own: Option<(Arc<dyn StdError + Send + Sync>, TypeId)>,
}

impl NotFound {
    pub(crate) fn new<E: 'static>(error: SharedError<E>, message: String) -> Self {
        Self { message: message.into(), own: Some((error.into_erased(), TypeId::of::<E>())) }
    }

    /// What an entry holds, if it is of this kind.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        if entry.codec() != CODEC {
            return None;
        }
        let value = entry.value();
        Some(value.decoded_as().cloned().unwrap_or_else(|| {
            let message = value.encoded().clone();
            Self { message, own: None }
        }))
    }

    /// What a store gets of it.
    pub(crate) fn draft(self: Arc<Self>, lifetimes: Lifetimes) -> Draft {
        let bytes = self.message.clone();
        let value = Value::of(bytes, self as Arc<dyn Any + Send + Sync>, WEIGHT);
        Draft::new(value, CODEC, lifetimes)
    }

    /// The error of a caller: the loader's own one, if it is known and of this type.
    pub(crate) fn to_error<E: 'static>(&self, key: &Key) -> Error<E> {
        match &self.own {
            Some((error, made_of)) if *made_of == TypeId::of::<E>() => {
                Error::Load(SharedError::erased(Arc::clone(error)).not_found())
            }
            _ => Error::Cache(CacheError::not_found(key, &String::from_utf8_lossy(&self.message))),
        }
    }
}

/// The codec id of these entries.
const CODEC: u8 = 63;

/// How many bytes the loader's error is taken to need.
const WEIGHT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreError;
    use crate::key::Key;

    #[test]
    fn a_bound_that_was_reached_is_no_failure_of_the_load() {
        let key = Key::of("item");
        let of = |error: CacheError| stale_reason(&Error::<StoreError>::from(error));
        assert_eq!(of(CacheError::full(&key, 1, "callers wait")), StaleReason::NoRoom);
        assert_eq!(of(CacheError::load_lost(&key)), StaleReason::LoadFailed);
        for kind in [
            CacheErrorKind::Contended,
            CacheErrorKind::DeadlineExceeded,
            CacheErrorKind::WaitTimedOut,
        ] {
            assert_eq!(of(CacheError::new(kind, "late".to_owned())), StaleReason::WaitRanOut);
        }
    }
}
