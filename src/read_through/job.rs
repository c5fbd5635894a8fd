//! Jobs: what a load needs.

use std::sync::{Arc, Mutex};

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

/// A job that a request shares with the task of its flight, which takes it to load. The request takes
/// it back if it gives up before. Guards the slot only: held to look into it, never across an `.await`.
pub(crate) type LentJob<S, Req> = Arc<Mutex<Option<Job<S, Req>>>>;
