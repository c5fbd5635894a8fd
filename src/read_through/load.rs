//! One call of the loader.

use std::any::Any;
use std::fmt;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::time::timeout;
use tower::{Service, ServiceExt};

use super::core::{Core, Landing};
use crate::capture::Capture;
use crate::error::CacheError;
use crate::flight::Leader;
use crate::key::Key;
use crate::policy::WhenAbandoned;

/// What is needed to load: a clone of the loader, and the request.
pub(crate) struct Job<S, Req> {
    pub(crate) service: S,
    pub(crate) request: Req,
}

/// A job that a caller has lent to the task of its flight, and takes back if it gives up before
/// the task has begun.
pub(crate) struct Lent<S, Req>(Arc<Mutex<Option<Job<S, Req>>>>);

impl<S, Req> Lent<S, Req> {
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

impl<S, Req> Clone for Lent<S, Req> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S, Req> fmt::Debug for Lent<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("is_there", &self.is_there()).finish()
    }
}

/// What came of a load.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A value, and its bytes unless it is not to be kept.
    Loaded(Arc<dyn Any + Send + Sync>, Option<Bytes>),
    /// No value; this is to be landed instead.
    Failed(Landing),
    /// Nobody waits for it any more, and the policy is not to go on then.
    Deserted,
}

/// Loads for a flight, for as long as the policy is to go on.
///
/// # Cancel safety
/// Dropping it drops the loader's future.
pub(crate) async fn load<S, Req, C>(
    job: Job<S, Req>,
    core: &Core<C>,
    leader: &Leader<Landing>,
) -> Outcome
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Capture<S::Response>,
{
    tokio::select! {
        // In this order: no load is begun for those who have left already.
        biased;
        () = abandoned(leader, core.policy.when_abandoned) => Outcome::Deserted,
        outcome = call(job, core, leader.key()) => outcome,
    }
}

/// Returns when nobody waits any more and the policy is not to go on then.
async fn abandoned(leader: &Leader<Landing>, policy: WhenAbandoned) {
    match policy {
        WhenAbandoned::Cancel => leader.deserted().await,
        WhenAbandoned::Finish => pending().await,
    }
}

/// Drives the loader to readiness, calls it, and captures what it answers: within the limit, and
/// without letting a panic out.
async fn call<S, Req, C>(job: Job<S, Req>, core: &Core<C>, key: &Key) -> Outcome
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Capture<S::Response>,
{
    let limit = core.policy.load_timeout;
    let called = timeout(limit, async {
        let response = job.service.oneshot(job.request).await?;
        Ok(captured(core.capture.keep(response), core, key))
    });
    // The loader is dropped with the panic; nothing of it is looked at again.
    match AssertUnwindSafe(called).catch_unwind().await {
        Ok(Ok(Ok(outcome))) => outcome,
        Ok(Ok(Err(error))) => {
            let error: S::Error = error;
            Outcome::Failed(Landing::LoadFailed(Arc::new(error)))
        }
        Ok(Err(_)) => Outcome::Failed(Landing::Failed(CacheError::load_timed_out(key, limit))),
        Err(_) => Outcome::Failed(Landing::Failed(CacheError::loader_panicked(key))),
    }
}

fn captured<R, C: Capture<R>>(kept: C::Kept, core: &Core<C>, key: &Key) -> Outcome {
    let bytes = if core.policy.ttl > Duration::ZERO { encoded(&kept, core, key) } else { None };
    Outcome::Loaded(Arc::new(kept), bytes)
}

fn encoded<R, C: Capture<R>>(kept: &C::Kept, core: &Core<C>, key: &Key) -> Option<Bytes> {
    let most = core.policy.max_entry_bytes;
    match core.capture.encode(kept) {
        Ok(bytes) if bytes.len() <= most => Some(bytes),
        Ok(bytes) => {
            tracing::warn!(%key, length = bytes.len(), most, "too large to be kept");
            None
        }
        Err(error) => {
            tracing::warn!(%key, %error, "cannot be encoded, and is not kept");
            None
        }
    }
}
