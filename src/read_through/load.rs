//! Loads: what a load needs, one call of the loader, and what its answer says.

use std::any::{Any, TypeId, type_name};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::task_local;
use tokio::time::timeout;
use tower::{Service, ServiceExt};
use tracing::Instrument;

use super::core::Core;
use super::error_rules::{ErrorClass, ErrorFacts};
use super::outcome::{NotFound, Outcome};
use super::remembered::FailureCache;
use super::step::AnswerKind;
use crate::box_future::BoxFuture;
use crate::codec::{Cacheability, Codec, EncodeBuffer};
use crate::error::{BoxError, CacheError, CacheErrorKind, Error, FailureCause, SharedError};
use crate::flight::Leader;
use crate::jitter::jitter;
use crate::key::Key;
use crate::lifetimes::Lifetimes;
use crate::policy::WhenAbandoned;
use crate::stats::{LoadReason, LoadResult, Statistics};
use crate::status::CacheStatus;
use crate::store::{Draft, Marker, Value};
use crate::tag::Tags;
use crate::trace::CallerSpan;

/// A service that a cache can call for a request, also after its caller has left. It gives callers their errors.
pub(crate) trait Loader<Req>:
    Service<Req, Response: Send, Error = Error<Self::Own>, Future: Send> + Clone + Send + 'static
{
    /// The loader's own error.
    type Own: 'static;
}

impl<S, Req, E: 'static> Loader<Req> for S
where
    S: Service<Req, Response: Send, Error = Error<E>, Future: Send> + Clone + Send + 'static,
{
    type Own = E;
}

/// A loader of the program, whose callers share its errors.
pub(crate) fn sharing<S, Req>(loader: S) -> impl Loader<Req, Response = S::Response, Own = S::Error>
where
    S: Service<Req, Response: Send, Error: Into<BoxError> + 'static, Future: Send>,
    S: Clone + Send + 'static,
{
    loader.map_err(Error::of)
}

/// What a load needs: a clone of the loader, and the request.
pub(crate) struct Job<S, Req> {
    pub(crate) service: S,
    pub(crate) request: Req,
}

/// A job that a request shares with the task of its flight, which takes it to load. The request takes
/// it back if it gives up before. Guards the slot only: held to look into it, never across an `.await`.
pub(crate) type LentJob<S, Req> = Arc<Mutex<Option<Job<S, Req>>>>;

/// An answer of the loader.
pub(crate) struct LoaderAnswer {
    pub(crate) kind: AnswerKind,
    /// The answer is that there is none.
    is_not_found: bool,
    pub(crate) outcome: Outcome,
    /// What the store gets of a value: that value, a marker, or nothing.
    pub(crate) draft: Option<Draft>,
    /// How many bytes it takes to remember a failure, as far as that is known.
    pub(crate) bytes: usize,
    pub(crate) cause: FailureCause,
    /// The text of a failure for other processes. Empty unless the layer describes failures.
    pub(crate) message: String,
}

impl LoaderAnswer {
    fn failed(kind: AnswerKind, outcome: Outcome) -> Self {
        let (draft, cause, message) = (None, FailureCause::Error, String::new());
        Self { kind, is_not_found: false, outcome, draft, bytes: 0, cause, message }
    }

    fn value(kind: AnswerKind, kept: Arc<dyn Any + Send + Sync>, draft: Draft) -> Self {
        let outcome = Outcome::Value(kept, CacheStatus::Led { stored: false });
        Self { draft: Some(draft), ..Self::failed(kind, outcome) }
    }

    /// How its load counts.
    fn result(&self) -> LoadResult {
        match (self.kind, self.cause) {
            (AnswerKind::Value, _) if self.is_not_found => LoadResult::NotFound,
            (AnswerKind::Value, _) => LoadResult::Succeeded,
            (AnswerKind::PrivateKey | AnswerKind::PrivateOnce, _) => LoadResult::Private,
            (_, FailureCause::Error) => LoadResult::Failed,
            (_, FailureCause::TimedOut) => LoadResult::TimedOut,
            (_, FailureCause::Panicked) => LoadResult::Panicked,
        }
    }
}

/// Loads for a flight of requests with these tags, until the load ends. `None` if it is cancelled
/// because all waiters have left: at once, if the policy cancels abandoned loads, or when too many
/// of them run.
///
/// # Cancel safety
/// Dropping it drops the loader's future.
pub(crate) async fn load<S: Loader<Req>, Req, C: Codec<S::Response>>(
    job: Job<S, Req>,
    core: &Core<C>,
    leader: &Leader<Outcome>,
    tags: &Tags,
    when_abandoned: WhenAbandoned,
    (why, trigger): (LoadReason, CallerSpan),
) -> Option<LoaderAnswer> {
    let goes_on = when_abandoned == WhenAbandoned::Finish;
    let left = async { if goes_on { leader.cancelled().await } else { leader.abandoned().await } };
    let called = async {
        let running = core.statistics.load(Some(leader.key()), why, &trigger);
        drop(trigger);
        let span = running.span().clone();
        let announced = leader.announce_load(CallerSpan::of(span.clone()), goes_on);
        let answer = call(job, core, leader.key(), tags).instrument(span).await;
        drop(announced);
        running.end(answer.result());
        answer
    };
    tokio::select! {
        // In this order: no load begins if all waiters have left already.
        biased;
        () = left => None,
        answer = called => Some(answer),
    }
}

task_local! {
    /// Set while a loader is polled.
    static IN_LOAD: ();
}

/// A call of a loader: what it asks of a cache is part of a load that may hold a permit.
pub(crate) fn in_load<F: Future>(call: F) -> impl Future<Output = F::Output> {
    IN_LOAD.scope((), call)
}

/// Whether this is called by a loader. Requests of a loader wait for no permit, since the load around them
/// may hold the one for which they would wait. A task that a loader spawns is not recognised.
pub(crate) fn is_in_load() -> bool {
    IN_LOAD.try_with(|()| ()).is_ok()
}

/// Calls the loader for one request past the cache: for lack of a key, or because answers for the key
/// are not kept. The load counts, and has a span of its own. It starts with the first poll. The outer
/// error is a panic of the loader.
///
/// It takes no permit of [`max_loads`](crate::service::ReadThroughLayerBuilder::max_loads): its caller polls
/// it. A caller that stops would keep the permit from all others.
pub(crate) fn load_alone<S: Service<Req, Future: Send> + Send + 'static, Req: Send + 'static>(
    loader: S,
    request: Req,
    key: Option<&Key>,
    statistics: &Arc<Statistics>,
) -> AloneLoad<S::Response, S::Error> {
    let (key, statistics) = (key.cloned(), Arc::clone(statistics));
    async move {
        let why = if key.is_some() { LoadReason::Private } else { LoadReason::NoKey };
        let running = statistics.load(key.as_ref(), why, &CallerSpan::default());
        let called = loader.oneshot(request).instrument(running.span().clone());
        let answer = AssertUnwindSafe(called).catch_unwind().await;
        running.end(match &answer {
            Ok(Ok(_)) => LoadResult::Succeeded,
            Ok(Err(_)) => LoadResult::Failed,
            Err(_) => LoadResult::Panicked,
        });
        answer.map_err(|_| CacheError::loader_panicked(key.as_ref()))
    }
    .boxed()
}

/// A load past the cache. The outer error is a panic of the loader.
pub(crate) type AloneLoad<R, E> = BoxFuture<'static, Result<Result<R, E>, CacheError>>;

/// Drives the loader to readiness, calls it, and classifies its answer. A load over the limit and a
/// panic become failures.
async fn call<S, Req, C>(job: Job<S, Req>, core: &Core<C>, key: &Key, tags: &Tags) -> LoaderAnswer
where
    S: Loader<Req>,
    C: Codec<S::Response>,
{
    let limit = core.policy.load_timeout;
    let called = in_load(timeout(limit.saturating_add(core.policy.collect_within), async {
        match job.service.oneshot(job.request).await {
            Ok(response) => classified(core, key, tags, core.codec.keep(response)),
            Err(error) => loader_failed(error, core),
        }
    }));
    // The panic drops the loader, so no broken state of it is seen again.
    match AssertUnwindSafe(called).catch_unwind().await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => failed(CacheError::load_timed_out(key, limit), FailureCause::TimedOut),
        Err(_) => failed(CacheError::loader_panicked(Some(key)), FailureCause::Panicked),
    }
}

/// A load that ended with an error of the cache.
fn failed(error: CacheError, cause: FailureCause) -> LoaderAnswer {
    let kind =
        if cause == FailureCause::TimedOut { AnswerKind::TimedOut } else { AnswerKind::Failed };
    LoaderAnswer { cause, ..LoaderAnswer::failed(kind, Outcome::Failed(error)) }
}

/// A load that ended with an error of the loader.
fn loader_failed<E: 'static, C>(error: Error<E>, core: &Core<C>) -> LoaderAnswer {
    let error = match error {
        Error::Load(error) => error,
        Error::Cache(error) => return failed(error, FailureCause::Error),
    };
    if let Some(error) = timed_out(&error) {
        return failed(error, FailureCause::TimedOut);
    }
    let (ErrorFacts { message, class }, freshness) =
        (core.errors.facts(&error), &core.policy.freshness);
    let kind = match class {
        ErrorClass::Failure => AnswerKind::Failed,
        ErrorClass::SourceFailure => AnswerKind::SourceFailed,
        ErrorClass::Retry => AnswerKind::RequestFailed,
        ErrorClass::NotRemembered => AnswerKind::LoadFailed,
        ErrorClass::NotFound => {
            return not_found(
                NotFound::new(error, message),
                freshness.not_found_lifetimes(jitter()),
            );
        }
        ErrorClass::NotFoundFor(ttl) => {
            let lifetimes = freshness.jittered(Lifetimes::fresh_for(ttl), jitter());
            return not_found(NotFound::new(error, message), lifetimes);
        }
    };
    let outcome = Outcome::LoadFailed(error.into_erased());
    LoaderAnswer { message, ..LoaderAnswer::failed(kind, outcome) }
}

/// A load that found that there is none.
fn not_found(found: NotFound, lifetimes: Lifetimes) -> LoaderAnswer {
    let found = Arc::new(found);
    let draft = match lifetimes.life().is_zero() {
        true => Draft::nothing(),
        false => Arc::clone(&found).draft(lifetimes),
    };
    LoaderAnswer { is_not_found: true, ..LoaderAnswer::value(AnswerKind::Value, found, draft) }
}

/// The error of a loader that enforces the [limit on one
/// load](crate::adapter::AdapterCache::load_timeout) itself, as a [`BoxError`]. It counts as if the layer had ended
/// the load.
fn timed_out<E: 'static>(error: &SharedError<E>) -> Option<CacheError> {
    let is_boxed = TypeId::of::<E>() == TypeId::of::<BoxError>();
    let error = error.downcast_ref::<CacheError>().filter(|_| is_boxed)?;
    Some(error.clone()).filter(|error| error.kind() == CacheErrorKind::LoadTimedOut)
}

/// What a kept value says, for a request with these tags. Notes in the record of its load if it says
/// that there is none.
pub(super) fn classified<R, C: Codec<R>>(
    core: &Core<C>,
    key: &Key,
    tags: &Tags,
    kept: C::Kept,
) -> LoaderAnswer {
    let freshness = &core.policy.freshness;
    let marker = |marker| Draft::marker(freshness.marker_ttl, marker);
    let lifetimes = match core.codec.classify(&kept) {
        Cacheability::Keep => {
            if freshness.ttl.is_zero() && !freshness.coalesce_only {
                let why = ["answers are not stored: the layer has no ttl", ""];
                core.statistics.warn(Statistics::ONCE, why, Some(key), None);
            }
            freshness.lifetimes(jitter())
        }
        Cacheability::KeepFor(lifetimes) => freshness.jittered(lifetimes, jitter()),
        Cacheability::NotFound => {
            let answer = storable(core, key, tags, kept, freshness.not_found_lifetimes(jitter()));
            return LoaderAnswer { is_not_found: true, ..answer };
        }
        Cacheability::PrivateKey => {
            let marker = marker(Marker::PrivateKey);
            return LoaderAnswer::value(AnswerKind::PrivateKey, Arc::new(kept), marker);
        }
        Cacheability::PrivateOnce => {
            let marker = marker(Marker::PrivateOnce);
            return LoaderAnswer::value(AnswerKind::PrivateOnce, Arc::new(kept), marker);
        }
        Cacheability::Failure => {
            let bytes = weight(&kept, core);
            let outcome = Outcome::FailedValue(Arc::new(kept));
            return LoaderAnswer { bytes, ..LoaderAnswer::failed(AnswerKind::Failed, outcome) };
        }
        Cacheability::Unconfirmed => {
            let outcome = Outcome::Value(Arc::new(kept), CacheStatus::Led { stored: false });
            return LoaderAnswer::failed(AnswerKind::Unconfirmed, outcome);
        }
    };
    storable(core, key, tags, kept, lifetimes)
}

/// A kept value with these lifetimes, for a request with these tags: what is stored of it.
fn storable<R, C: Codec<R>>(
    core: &Core<C>,
    key: &Key,
    tags: &Tags,
    kept: C::Kept,
    lifetimes: Lifetimes,
) -> LoaderAnswer {
    let uncacheable = |kept| {
        let marker = Draft::marker(core.policy.freshness.marker_ttl, Marker::Uncacheable);
        LoaderAnswer::value(AnswerKind::Value, kept, marker)
    };
    let own = Tags::unbounded(core.codec.tags(&kept));
    if let Err(many) = tags.union(&own) {
        let why = ["an answer is not stored", ""];
        core.statistics.warn(Statistics::NOW_AND_THEN, why, Some(key), Some(&many));
        return uncacheable(Arc::new(kept));
    }
    if lifetimes.life().is_zero() {
        let nothing = Draft::nothing().tagged(own);
        return LoaderAnswer::value(AnswerKind::Value, Arc::new(kept), nothing);
    }
    match encoded(core, key, kept) {
        Ok((value, kept)) => {
            let draft = Draft::new(value, core.codec.id(), lifetimes).tagged(own);
            LoaderAnswer::value(AnswerKind::Value, kept, draft)
        }
        Err(kept) => uncacheable(Arc::new(kept)),
    }
}

/// How many bytes a value takes that counts as a failure. `usize::MAX` if it is too large to
/// remember.
fn weight<R, C: Codec<R>>(kept: &C::Kept, core: &Core<C>) -> usize {
    let mut buffer = EncodeBuffer::new(FailureCache::MAX_FAILURE_BYTES);
    let written = core.codec.encode(kept, &mut buffer);
    written.map_or(usize::MAX, |()| buffer.into_bytes().len())
}

/// What a store gets of a kept value, and what callers share; or the value, if it cannot be stored.
pub(super) fn encoded<R, C: Codec<R>>(
    core: &Core<C>,
    key: &Key,
    kept: C::Kept,
) -> Result<(Value, Arc<C::Kept>), C::Kept> {
    let most = core.policy.max_entry_bytes;
    let mut buffer = EncodeBuffer::new(most);
    match core.codec.encode(&kept, &mut buffer) {
        Ok(()) => {
            let bytes = buffer.into_bytes();
            if let Err(error) = verified::<R, C>(core, &kept, &bytes) {
                core.statistics.unfaithful(key, type_name::<C::Kept>(), error);
                return Err(kept);
            }
            let kept = core.codec.complete(kept, &bytes);
            let extra_bytes = core.codec.weight(&kept, &bytes);
            let kept = Arc::new(kept);
            Ok((Value::of(bytes, Arc::clone(&kept) as _, extra_bytes), kept))
        }
        Err(error) => {
            if let Some(most) = buffer.over {
                let (why, most) =
                    ("an answer is too large to be stored", format!("over {most} bytes"));
                core.statistics.warn(Statistics::NOW_AND_THEN, [why, ""], Some(key), Some(&most));
            } else {
                core.statistics.unfaithful(key, type_name::<C::Kept>(), error);
            }
            Err(kept)
        }
    }
}

/// Whether bytes give a value again, if that is to be verified now.
fn verified<R, C: Codec<R>>(core: &Core<C>, kept: &C::Kept, bytes: &[u8]) -> Result<(), BoxError> {
    if !core.statistics.verifies(bytes.len()) {
        return Ok(());
    }
    let verify = AssertUnwindSafe(|| core.codec.verify(kept, bytes));
    catch_unwind(verify).unwrap_or_else(|_| Err("the codec has panicked".into()))
}
