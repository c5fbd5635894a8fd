//! Outcomes: what a flight completes its waiters with.

use std::any::Any;
use std::error::Error;
use std::sync::Arc;

use super::fallback::StaleFallback;
use crate::error::CacheError;
use crate::status::{BypassReason, CacheStatus};

/// What a waiter gets. Types are erased, since one layer can wrap many services.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// A `C::Kept`, and where it comes from.
    Value(Arc<dyn Any + Send + Sync>, ValueOrigin),
    /// An older entry, while the flight goes on.
    Stale(StaleFallback),
    /// The loader's error.
    LoadFailed(Arc<dyn Error + Send + Sync>),
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

/// Where a value comes from.
#[derive(Clone, Debug)]
pub(crate) enum ValueOrigin {
    /// The store, which had it when the flight first asked.
    Stored(CacheStatus),
    /// Another process, which loaded it while the flight waited.
    Remote,
    /// The load of the caller that opened the flight.
    Loaded { stored: bool },
    /// A load without a lease.
    Uncached(BypassReason),
}

impl Outcome {
    /// The same, with another origin if it is a value.
    pub(crate) fn from(mut self, from: ValueOrigin) -> Self {
        if let Self::Value(_, origin) = &mut self {
            *origin = from;
        }
        self
    }
}
