//! Jobs: what a load needs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a load needs: a clone of the loader, and the request.
pub(crate) struct Job<S, Req> {
    pub(crate) service: S,
    pub(crate) request: Req,
}

/// A job that a caller shares with the task of its flight. The caller takes it back if it gives up
/// before the task loads.
pub(crate) struct LentJob<S, Req>(Arc<Mutex<Option<Job<S, Req>>>>);

impl<S, Req> LentJob<S, Req> {
    pub(crate) fn new(job: Option<Job<S, Req>>) -> Self {
        Self(Arc::new(Mutex::new(job)))
    }

    pub(crate) fn take(&self) -> Option<Job<S, Req>> {
        self.slot().take()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.slot().is_some()
    }

    /// Guards the slot only: held to look into it, never across an `.await`.
    fn slot(&self) -> MutexGuard<'_, Option<Job<S, Req>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S, Req> Clone for LentJob<S, Req> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S, Req> fmt::Debug for LentJob<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentJob").field("is_there", &self.is_there()).finish()
    }
}
