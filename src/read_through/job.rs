//! Jobs: what a load needs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tower::Service;

use crate::error::BoxError;

/// A service that a cache can call for a request, also after its caller has left.
pub(crate) trait Loader<Req>:
    Service<Req, Error: Into<BoxError> + Send + Sync + 'static, Future: Send> + Clone + Send + 'static
{
}

impl<S, Req> Loader<Req> for S
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync + 'static,
{
}

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
