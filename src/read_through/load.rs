//! One call of the loader, and what becomes of its answer.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::time::timeout;
use tower::{Service, ServiceExt};
use tracing::Instrument;

use super::core::Core;
use super::error_rules::ErrorFacts;
use super::failure_cache::FailureCache;
use super::job::Job;
use super::many::error::ItemError;
use super::not_found::NotFound;
use super::outcome::{Outcome, ValueOrigin};
use crate::codec::{Cacheability, Codec, EncodeBuffer};
use crate::error::{BoxError, CacheError, FailureCause};
use crate::error_class::ErrorClass;
use crate::flight::Leader;
use crate::jitter::jitter;
use crate::key::Key;
use crate::lifetimes::Lifetimes;
use crate::log_throttle::warn_throttled;
use crate::policy::{FailureWindow, Policy, WhenAbandoned};
use crate::shared_error::SharedError;
use crate::stats::{LoadReason, RunningLoad};
use crate::store::Failure;
use crate::tag::{Tags, TooManyTags};
use crate::trace::CallerSpan;

/// How a load ended.
#[derive(Debug)]
pub(crate) enum LoaderAnswer {
    /// With a value, what becomes of it, and its tags.
    Loaded(Arc<dyn Any + Send + Sync>, AnswerStorage, Tags),
    /// Without a value.
    Failed(FailedLoad),
    /// All waiters had left, and it was cancelled.
    Abandoned,
}

/// What becomes of a loaded value.
#[derive(Clone, Debug)]
pub(crate) enum AnswerStorage {
    /// It is stored: its encoded bytes, how many bytes of memory it takes besides, and its
    /// lifetimes.
    Store(Bytes, usize, Lifetimes),
    /// The same, for an error that says "there is none".
    StoreNotFound(Arc<NotFound>, Lifetimes),
    /// The waiters share it, and it is not stored.
    Share,
    /// The same, because it cannot be stored. Other processes are told, and load individually.
    Uncacheable,
    /// It is private to the caller that loaded it, and so are the next ones.
    PrivateKey,
    /// It is private to the caller that loaded it this once.
    PrivateOnce,
}

/// How a load failed.
#[derive(Debug)]
pub(crate) struct FailedLoad {
    pub(crate) outcome: Outcome,
    /// How many bytes it takes to remember it, as far as that is known.
    pub(crate) bytes: usize,
    pub(crate) cause: FailureCause,
    pub(crate) scope: FailureScope,
    /// The text for other processes. Empty unless the layer describes failures.
    pub(crate) message: String,
}

/// Which requests a failure concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureScope {
    /// Every request: the source has failed.
    Source,
    /// Every request or only this one. A load of another request can tell.
    Unknown,
    /// Only this one, or only for a moment. Other requests load at once.
    Request,
    /// Every request that waits for this load, and no later one.
    Load,
    /// The same, and the loader gave an answer. So it is not remembered, and no stale answer
    /// replaces it.
    Answer,
}

impl FailedLoad {
    fn by(outcome: Outcome, bytes: usize, scope: FailureScope) -> Self {
        Self { outcome, bytes, cause: FailureCause::Error, scope, message: String::new() }
    }

    /// Whether other callers share it, after `before` other failures in a row.
    pub(crate) fn is_confirmed(&self, before: u32) -> bool {
        match self.scope {
            FailureScope::Source | FailureScope::Load => true,
            FailureScope::Request => false,
            FailureScope::Unknown | FailureScope::Answer => before > 0,
        }
    }

    /// Whether later loads count it.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self.scope, FailureScope::Request | FailureScope::Load)
    }

    /// What is remembered of it, after `before` other failures in a row.
    pub(crate) fn remembered(&self, before: u32, policy: &Policy) -> Failure {
        let window = match self.is_confirmed(before) && self.scope != FailureScope::Answer {
            true => policy.failures.confirmed(before.saturating_sub(1), policy.load_timeout),
            false => policy.failures.unconfirmed(),
        };
        let FailureWindow { window, cooldown, life } = window;
        let failure = Failure::new(self.cause, before.saturating_add(1), window);
        failure.with_cooldown(cooldown).with_life(life).with_message(&self.message)
    }
}

/// Why a load runs, and the span of the caller that opened it.
#[derive(Debug)]
pub(crate) struct LoadCause {
    pub(crate) why: LoadReason,
    pub(crate) trigger: CallerSpan,
}

/// Loads for a flight, until the load ends or the policy cancels it.
///
/// # Cancel safety
/// Dropping it drops the loader's future.
pub(crate) async fn load<S, Req, C>(
    job: Job<S, Req>,
    core: &Core<C>,
    leader: &Leader<Outcome>,
    when_abandoned: WhenAbandoned,
    cause: LoadCause,
) -> LoaderAnswer
where
    S: Service<Req>,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    C: Codec<S::Response>,
{
    tokio::select! {
        // In this order: no load begins if all waiters have left already.
        biased;
        () = abandoned(leader, when_abandoned) => LoaderAnswer::Abandoned,
        outcome = call(job, core, leader, when_abandoned, cause) => outcome,
    }
}

/// Returns when the load is to end because all waiters have left: at once, if the policy cancels
/// abandoned loads, or when too many of them run.
async fn abandoned(leader: &Leader<Outcome>, policy: WhenAbandoned) {
    match policy {
        WhenAbandoned::Cancel => leader.abandoned().await,
        WhenAbandoned::Finish => leader.cancelled().await,
    }
}

/// Drives the loader to readiness, calls it, and classifies its answer. A load over the limit and a
/// panic become failures.
async fn call<S, Req, C>(
    job: Job<S, Req>,
    core: &Core<C>,
    leader: &Leader<Outcome>,
    when_abandoned: WhenAbandoned,
    LoadCause { why, trigger }: LoadCause,
) -> LoaderAnswer
where
    S: Service<Req>,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    C: Codec<S::Response>,
{
    let key = leader.key();
    let mut running = core.statistics.load(Some(key), why, &trigger);
    drop(trigger);
    let span = running.span().clone();
    let announced = leader.announce_load(&span, when_abandoned == WhenAbandoned::Finish);
    let limit = core.policy.load_timeout;
    let called = timeout(limit.saturating_add(core.policy.collect_within), async {
        let response = job.service.oneshot(job.request).await?;
        Ok(classified(core.codec.keep(response), core, key, Some(&mut running)))
    });
    // The panic drops the loader, so no broken state of it is seen again.
    let answer = match AssertUnwindSafe(called).catch_unwind().instrument(span).await {
        Ok(Ok(Ok(outcome))) => outcome,
        Ok(Ok(Err(error))) => {
            let error: S::Error = error;
            loader_failed(error, core)
        }
        Ok(Err(_)) => failed(CacheError::load_timed_out(key, limit), FailureCause::TimedOut),
        Err(_) => failed(CacheError::loader_panicked(Some(key)), FailureCause::Panicked),
    };
    drop(announced);
    running.end(answer.result());
    answer
}

/// A load that ended with an error of the cache.
fn failed(error: CacheError, cause: FailureCause) -> LoaderAnswer {
    let failed = FailedLoad::by(Outcome::Failed(error), 0, FailureScope::Unknown);
    LoaderAnswer::Failed(FailedLoad { cause, ..failed })
}

/// A load that ended with an error of the loader.
fn loader_failed<E, C>(error: E, core: &Core<C>) -> LoaderAnswer
where
    E: Into<BoxError> + Send + Sync + 'static,
{
    if let Some(error) = timed_out(&error) {
        return failed(error, FailureCause::TimedOut);
    }
    let item = (&error as &dyn Any).downcast_ref::<ItemError>().cloned();
    let (error, facts) = match item {
        Some(ItemError::Load(error, facts)) => (error, facts),
        Some(ItemError::Cache(error)) => return failed(error, FailureCause::Error),
        None => {
            let facts = core.errors.facts(&error);
            (SharedError::new(error).into_erased(), facts)
        }
    };
    let freshness = &core.policy.freshness;
    let scope = match facts.class {
        ErrorClass::Failure => FailureScope::Unknown,
        ErrorClass::SourceFailure => FailureScope::Source,
        ErrorClass::Retry => FailureScope::Request,
        ErrorClass::NotRemembered => FailureScope::Load,
        ErrorClass::NotFound => {
            return not_found(error, facts, freshness.not_found_lifetimes(jitter()));
        }
        ErrorClass::NotFoundFor(ttl) => {
            let lifetimes = freshness.jittered(Lifetimes::fresh_for(ttl), jitter());
            return not_found(error, facts, lifetimes);
        }
    };
    let failed = FailedLoad::by(Outcome::LoadFailed(error), 0, scope);
    LoaderAnswer::Failed(FailedLoad { message: facts.message, ..failed })
}

/// A load that found that there is none.
fn not_found(
    error: Arc<dyn StdError + Send + Sync>,
    facts: ErrorFacts,
    lifetimes: Lifetimes,
) -> LoaderAnswer {
    let found = Arc::new(NotFound::new(error, facts.made_of, facts.message));
    let storage = match lifetimes.life().is_zero() {
        true => AnswerStorage::Share,
        false => AnswerStorage::StoreNotFound(Arc::clone(&found), lifetimes),
    };
    LoaderAnswer::Loaded(found, storage, Tags::none())
}

fn timed_out(error: &(dyn Any + Send + Sync)) -> Option<CacheError> {
    let error = error.downcast_ref::<BoxError>()?.downcast_ref::<LoadTimedOut>()?;
    Some(error.0.clone())
}

/// The error of a loader that enforces the [limit on one
/// load](crate::adapter::CacheClient::load_timeout) itself. As a [`BoxError`], it counts as if the
/// layer had ended the load.
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

impl std::error::Error for LoadTimedOut {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// What becomes of a kept value, by its cacheability. Notes in the record of its load if the value
/// says that there is none.
pub(super) fn classified<R, C: Codec<R> + ?Sized>(
    kept: C::Kept,
    core: &Core<C>,
    key: &Key,
    running: Option<&mut RunningLoad>,
) -> LoaderAnswer {
    let freshness = &core.policy.freshness;
    let lifetimes = match core.codec.classify(&kept) {
        Cacheability::Keep => {
            if freshness.ttl.is_zero() {
                core.warn_without_ttl(key);
            }
            freshness.lifetimes(jitter())
        }
        Cacheability::KeepFor(lifetimes) => freshness.jittered(lifetimes, jitter()),
        Cacheability::NotFound => {
            running.into_iter().for_each(RunningLoad::note_not_found);
            freshness.not_found_lifetimes(jitter())
        }
        Cacheability::PrivateKey => return not_stored(kept, AnswerStorage::PrivateKey),
        Cacheability::PrivateOnce => return not_stored(kept, AnswerStorage::PrivateOnce),
        Cacheability::Failure => {
            let bytes = weight(&kept, core);
            let outcome = Outcome::FailedValue(Arc::new(kept));
            return LoaderAnswer::Failed(FailedLoad::by(outcome, bytes, FailureScope::Unknown));
        }
        Cacheability::Unconfirmed => {
            let outcome = Outcome::Value(Arc::new(kept), ValueOrigin::Loaded { stored: false });
            return LoaderAnswer::Failed(FailedLoad::by(outcome, 0, FailureScope::Answer));
        }
    };
    let tags = match Tags::new(core.codec.tags(&kept)) {
        Ok(tags) => tags,
        Err(many) => {
            warn_too_many_tags(core, key, many);
            return not_stored(kept, AnswerStorage::Uncacheable);
        }
    };
    if lifetimes.life().is_zero() {
        return LoaderAnswer::Loaded(Arc::new(kept), AnswerStorage::Share, tags);
    }
    let Some(bytes) = encoded(&kept, core, key) else {
        return LoaderAnswer::Loaded(Arc::new(kept), AnswerStorage::Uncacheable, tags);
    };
    let kept = core.codec.settle(kept, &bytes);
    let extra_bytes = core.codec.weight(&kept, &bytes);
    LoaderAnswer::Loaded(Arc::new(kept), AnswerStorage::Store(bytes, extra_bytes, lifetimes), tags)
}

fn not_stored<K: Send + Sync + 'static>(kept: K, storage: AnswerStorage) -> LoaderAnswer {
    LoaderAnswer::Loaded(Arc::new(kept), storage, Tags::none())
}

/// Says that an answer is not stored, because of its tags.
pub(super) fn warn_too_many_tags<C: ?Sized>(core: &Core<C>, key: &Key, many: TooManyTags) {
    warn_throttled!(target: "bellwether::load", cache = &**core.statistics.name(), key = %core.statistics.shown(key), "an answer is not stored: it has {many}");
}

/// How many bytes a value takes that counts as a failure. `usize::MAX` if it is too large to
/// remember.
fn weight<R, C: Codec<R> + ?Sized>(kept: &C::Kept, core: &Core<C>) -> usize {
    let mut buffer = EncodeBuffer::new(FailureCache::MAX_FAILURE_BYTES);
    let written = core.codec.encode(kept, &mut buffer);
    written.map_or(usize::MAX, |()| buffer.into_bytes().len())
}

fn encoded<R, C: Codec<R> + ?Sized>(kept: &C::Kept, core: &Core<C>, key: &Key) -> Option<Bytes> {
    let most = core.policy.max_entry_bytes;
    let mut buffer = EncodeBuffer::new(most);
    match core.codec.encode(kept, &mut buffer) {
        Ok(()) => return Some(buffer.into_bytes()),
        Err(_) if buffer.is_over() => {
            warn_throttled!(target: "bellwether::load", cache = &**core.statistics.name(), key = %core.statistics.shown(key), most, "an answer is too large to be stored")
        }
        Err(error) => {
            warn_throttled!(target: "bellwether::load", cache = &**core.statistics.name(), key = %core.statistics.shown(key), %error, "an answer cannot be encoded, and is not stored")
        }
    }
    None
}
