//! What a flight completes its waiters with.

use std::any::Any;
use std::sync::Arc;

use crate::error::CacheError;
use crate::status::{BypassReason, CacheStatus};

/// What a waiter is given. Types are erased, since one layer can wrap many services.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// A `C::Kept`, and where it is from.
    Value(Arc<dyn Any + Send + Sync>, Origin),
    /// The loader's error.
    LoadFailed(Arc<dyn Any + Send + Sync>),
    /// A `C::Kept` that counts as a failure.
    FailedValue(Arc<dyn Any + Send + Sync>),
    /// The value is for another caller, and so are the next ones: the waiter is to load for itself.
    Private,
    /// The value is for another caller, which says nothing of the next ones: the waiter is to load
    /// for itself, or to ask once more.
    Own,
    /// The store has an entry that may do: the waiter is to look for itself.
    Look,
    /// Our error.
    Failed(CacheError),
}

/// Where a value is from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// It was in the store when it was first asked for.
    Kept(CacheStatus),
    /// Another process loaded it while the flight waited.
    Elsewhere,
    /// The load of the caller that opened the flight.
    Loaded { stored: bool },
    /// A load without the cache.
    Around(BypassReason),
}
