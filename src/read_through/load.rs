//! One call of the loader.

use std::any::Any;
use std::fmt;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::BoxError;
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use tower::{Service, ServiceExt};

use super::core::Core;
use super::failure_cache::FailureCache;
use super::outcome::{Origin, Outcome};
use crate::codec::{Cacheability, Codec, EncodeBuffer};
use crate::error::{CacheError, FailureCause};
use crate::flight::Leader;
use crate::jitter::jitter;
use crate::key::Key;
use crate::log_throttle::warn_throttled;
use crate::policy::{FailureWindow, Policy, WhenAbandoned};
use crate::store::{Failure, Lifetimes};

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
pub(crate) enum LoaderAnswer {
    /// A value, and what is to become of it.
    Loaded(Arc<dyn Any + Send + Sync>, Keeping),
    /// No value.
    Failed(FailedLoad),
    /// No waiter was left, and the policy is not to go on then.
    Abandoned,
}

/// What is to become of a value.
#[derive(Clone, Debug)]
pub(crate) enum Keeping {
    /// It is kept: its bytes, how many it takes besides, and for how long.
    Keep(Bytes, usize, Lifetimes),
    /// It is shared with those who wait for it, and not kept.
    Share,
    /// The same, and it is better that nobody waits for the next one.
    Uncacheable,
    /// It is for the caller whose load it was, and so are the next ones.
    PrivateKey,
    /// It is for the caller whose load it was, and says nothing of the next ones.
    PrivateOnce,
}

/// How a load failed.
#[derive(Debug)]
pub(crate) struct FailedLoad {
    pub(crate) outcome: Outcome,
    /// How many bytes of it there are to be remembered, as far as that is known.
    pub(crate) bytes: usize,
    pub(crate) cause: FailureCause,
    pub(crate) fault: Fault,
    /// Words for people, if the layer has them.
    pub(crate) message: String,
}

/// Where the fault lies if a load fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// With the source, whatever was asked for.
    Source,
    /// With the source or with this one request: only a load by another request can tell.
    Unknown,
    /// The same, and what the source gave is an answer: it is not remembered, and a stale answer is
    /// no better.
    Answer,
}

impl FailedLoad {
    fn by(outcome: Outcome, bytes: usize, fault: Fault) -> Self {
        Self { outcome, bytes, cause: FailureCause::Error, fault, message: String::new() }
    }

    /// Whether other callers may be held up by it, after so many others in a row.
    pub(crate) fn is_confirmed(&self, before: u32) -> bool {
        before > 0 || self.fault == Fault::Source
    }

    /// What is to be remembered of it, after so many others in a row.
    pub(crate) fn remembered(&self, before: u32, policy: &Policy) -> Failure {
        let window = match self.is_confirmed(before) && self.fault != Fault::Answer {
            true => policy.failures.confirmed(before.saturating_sub(1), policy.load_timeout),
            false => policy.failures.unconfirmed(),
        };
        let FailureWindow { window, cooldown, life } = window;
        let failure = Failure::new(self.cause, before.saturating_add(1), window);
        failure.with_cooldown(cooldown).with_life(life).with_message(&self.message)
    }
}

/// Loads for a flight, for as long as the policy is to go on.
///
/// # Cancel safety
/// Dropping it drops the loader's future.
pub(crate) async fn load<S, Req, C>(
    job: Job<S, Req>,
    core: &Core<C>,
    leader: &Leader<Outcome>,
    when_abandoned: WhenAbandoned,
) -> LoaderAnswer
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Codec<S::Response>,
{
    let began = Instant::now();
    let outcome = tokio::select! {
        // In this order: no load is begun for those who have left already.
        biased;
        () = abandoned(leader, when_abandoned) => return LoaderAnswer::Abandoned,
        outcome = call(job, core, leader.key()) => outcome,
    };
    core.loads.note(began.elapsed());
    outcome
}

/// Returns when no waiter is left and the policy is not to go on then.
async fn abandoned(leader: &Leader<Outcome>, policy: WhenAbandoned) {
    match policy {
        WhenAbandoned::Cancel => leader.abandoned().await,
        WhenAbandoned::Finish => pending().await,
    }
}

/// Drives the loader to readiness, calls it, and captures what it answers: within the limit, and
/// without letting a panic out.
async fn call<S, Req, C>(job: Job<S, Req>, core: &Core<C>, key: &Key) -> LoaderAnswer
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Codec<S::Response>,
{
    let limit = core.policy.load_timeout;
    let called = timeout(limit.saturating_add(core.policy.collect_within), async {
        let response = job.service.oneshot(job.request).await?;
        Ok(captured(core.codec.keep(response), core, key))
    });
    let failed = |error, cause| {
        let (fault, message) = (Fault::Unknown, String::new());
        LoaderAnswer::Failed(FailedLoad {
            outcome: Outcome::Failed(error),
            bytes: 0,
            cause,
            fault,
            message,
        })
    };
    // The loader is dropped with the panic; nothing of it is looked at again.
    match AssertUnwindSafe(called).catch_unwind().await {
        Ok(Ok(Ok(outcome))) => outcome,
        Ok(Ok(Err(error))) => {
            let error: S::Error = error;
            refused(Arc::new(error), core)
        }
        Ok(Err(_)) => failed(CacheError::load_timed_out(key, limit), FailureCause::TimedOut),
        Err(_) => failed(CacheError::loader_panicked(key), FailureCause::Panicked),
    }
}

fn refused<C>(error: Arc<dyn Any + Send + Sync>, core: &Core<C>) -> LoaderAnswer {
    if let Some(error) = timed_out(&*error) {
        let (outcome, message) = (Outcome::Failed(error), String::new());
        let (cause, fault) = (FailureCause::TimedOut, Fault::Unknown);
        return LoaderAnswer::Failed(FailedLoad { outcome, bytes: 0, cause, fault, message });
    }
    let rules = &core.errors;
    let describe = || rules.describe.as_ref()?(&*error);
    let is_of_source = || rules.is_of_source.as_ref().is_some_and(|rule| rule(&*error));
    // The rules are the program's own, and so is a panic in them.
    let message = catch_unwind(AssertUnwindSafe(describe)).ok().flatten().unwrap_or_default();
    let fault = match catch_unwind(AssertUnwindSafe(is_of_source)) {
        Ok(true) => Fault::Source,
        Ok(false) | Err(_) => Fault::Unknown,
    };
    let outcome = Outcome::LoadFailed(error);
    LoaderAnswer::Failed(FailedLoad {
        outcome,
        bytes: 0,
        cause: FailureCause::Error,
        fault,
        message,
    })
}

fn timed_out(error: &(dyn Any + Send + Sync)) -> Option<CacheError> {
    let error = error.downcast_ref::<BoxError>()?.downcast_ref::<LoadTimedOut>()?;
    Some(error.0.clone())
}

/// The error of a loader that watches over the [limit on one load](crate::adapter::CacheClient::load_timeout)
/// by itself. Boxed, it counts as if the layer had ended the load.
#[derive(Debug)]
pub struct LoadTimedOut(CacheError);

impl LoadTimedOut {
    /// The load of a key took longer than the limit.
    pub fn new(key: &Key, limit: Duration) -> Self {
        Self(CacheError::load_timed_out(key, limit))
    }
}

impl fmt::Display for LoadTimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LoadTimedOut {}

fn captured<R, C: Codec<R>>(kept: C::Kept, core: &Core<C>, key: &Key) -> LoaderAnswer {
    let freshness = &core.policy.freshness;
    let windows = match core.codec.classify(&kept) {
        Cacheability::Keep => freshness.windows(jitter()),
        Cacheability::KeepFor(windows) => freshness.jittered(windows, jitter()),
        Cacheability::NotFound => freshness.windows_of_not_found(jitter()),
        Cacheability::PrivateKey => {
            return LoaderAnswer::Loaded(Arc::new(kept), Keeping::PrivateKey);
        }
        Cacheability::PrivateOnce => {
            return LoaderAnswer::Loaded(Arc::new(kept), Keeping::PrivateOnce);
        }
        Cacheability::Failure => {
            let bytes = weight(&kept, core);
            let outcome = Outcome::FailedValue(Arc::new(kept));
            return LoaderAnswer::Failed(FailedLoad::by(outcome, bytes, Fault::Unknown));
        }
        Cacheability::Unconfirmed => {
            let outcome = Outcome::Value(Arc::new(kept), Origin::Loaded { stored: false });
            return LoaderAnswer::Failed(FailedLoad::by(outcome, 0, Fault::Answer));
        }
    };
    if windows.life().is_zero() {
        return LoaderAnswer::Loaded(Arc::new(kept), Keeping::Share);
    }
    let Some(bytes) = encoded(&kept, core, key) else {
        return LoaderAnswer::Loaded(Arc::new(kept), Keeping::Uncacheable);
    };
    let kept = core.codec.settle(kept, &bytes);
    let beside = core.codec.weight(&kept, &bytes);
    LoaderAnswer::Loaded(Arc::new(kept), Keeping::Keep(bytes, beside, windows))
}

/// How many bytes a value has that counts as a failure. Of more than is remembered, it does not
/// matter how many more.
fn weight<R, C: Codec<R>>(kept: &C::Kept, core: &Core<C>) -> usize {
    let mut room = EncodeBuffer::new(FailureCache::MOST_OF_ONE);
    let written = core.codec.encode(kept, &mut room);
    written.map_or(usize::MAX, |()| room.into_bytes().len())
}

fn encoded<R, C: Codec<R>>(kept: &C::Kept, core: &Core<C>, key: &Key) -> Option<Bytes> {
    let most = core.policy.max_entry_bytes;
    let mut room = EncodeBuffer::new(most);
    match core.codec.encode(kept, &mut room) {
        Ok(()) => return Some(room.into_bytes()),
        Err(_) if room.is_over() => warn_throttled!(%key, most, "too large to be kept"),
        Err(error) => warn_throttled!(%key, %error, "cannot be encoded, and is not kept"),
    }
    None
}
