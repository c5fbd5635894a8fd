//! The recorder: where a layer counts. A request counts once, whatever becomes of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use std::{fmt, thread};

use tokio::time::Instant;
use tracing::{Span, field};

use super::cache_stats::{
    AuditEvent, AuditStats, CacheStats, CommitEvent, CommitStats, CurrentStats, InvalidationEvent,
    InvalidationStats, LeaseEvent, LeaseStats, LimitEvent, LimitStats, LoadReason, LoadResult,
    LoadStats, LoadTimeStats, RefreshEvent, RefreshStats, RequestEvent, RequestStats,
    WaitTimeStats, WakeEvent, WakeStats,
};
use super::counters::{Counters, Striped};
use super::histogram::Histogram;
use crate::error::BoxError;
use crate::key::Key;
use crate::locked::locked;
use crate::log_throttle::LogThrottle;
use crate::status::{BypassReason, CacheStatus, LoadLocation, StaleReason};
use crate::trace::{CallerSpan, TraceKeys};

/// What can say what is under way in it.
pub(crate) trait Activity: Send + Sync {
    fn current(&self) -> CurrentStats;
}

/// The statistics of a layer, shared by its services, their clones and its handles.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    name: Arc<str>,
    trace_keys: TraceKeys,
    /// Says what is under way, for as long as it is there.
    activity: Option<Weak<dyn Activity>>,
    requests: Striped<{ RequestStats::COUNT }>,
    loads: Counters<{ LoadStats::COUNT }>,
    load_times: [Histogram; LoadTimeStats::COUNT],
    wakes: Counters<{ WakeStats::COUNT }>,
    leases: Counters<{ LeaseStats::COUNT }>,
    commits: Counters<{ CommitStats::COUNT }>,
    undecodable: AtomicU64,
    verifiable: AtomicU64,
    refreshes: Counters<{ RefreshStats::COUNT }>,
    audits: Counters<{ AuditStats::COUNT }>,
    stale_ages: Histogram,
    refused: Counters<{ LimitStats::COUNT }>,
    invalidations: Counters<{ InvalidationStats::COUNT }>,
    wait_times: [Histogram; WaitTimeStats::COUNT],
    flight_callers: Histogram,
    notice_lag: Histogram,
    /// When each kind of message may be logged again, so that no layer hides what another one has to
    /// say. Held to look that up, never across an `.await`.
    throttles: Mutex<HashMap<[&'static str; 2], LogThrottle>>,
}

impl Statistics {
    /// The name of a layer that was given none.
    pub(crate) const UNNAMED: &str = "unnamed";

    pub(crate) const NOW_AND_THEN: Duration = Duration::from_secs(10);

    /// Longer than a process lives.
    pub(crate) const ONCE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

    pub(crate) fn new(name: Arc<str>, trace_keys: TraceKeys, of: &Arc<dyn Activity>) -> Arc<Self> {
        let (activity, flight_callers) = (Some(Arc::downgrade(of)), Histogram::of_callers());
        let stale_ages = Histogram::of_ages();
        Arc::new(Self { name, trace_keys, activity, flight_callers, stale_ages, ..Self::default() })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Notes in a span what it may have of a key.
    pub(crate) fn note_key(&self, span: &Span, key: &Key) {
        if self.trace_keys == TraceKeys::Kind || span.is_disabled() {
            return;
        }
        span.record("key.digest", field::display(key.digest()));
        if self.trace_keys == TraceKeys::Plain {
            span.record("key.plain", field::display(key.plain()));
        }
    }

    /// A request has ended.
    #[inline]
    pub(crate) fn request(&self, event: RequestEvent) {
        self.requests.add(event as usize);
    }

    /// A load starts. Its end is counted when the value is dropped. `trigger` is the span of the
    /// caller that opened it, if that is not its parent.
    pub(crate) fn load(
        self: &Arc<Self>,
        key: Option<&Key>,
        why: LoadReason,
        trigger: &CallerSpan,
    ) -> RunningLoad {
        self.loads.add(why as usize);
        let span = span(&self.name, key, why, trigger);
        if let Some(key) = key {
            self.note_key(&span, key);
        }
        RunningLoad { statistics: Arc::clone(self), began: Instant::now(), span, result: None }
    }

    /// A request was answered by the load of another caller, after this wait.
    pub(crate) fn waited(&self, place: LoadLocation, waited: Duration) {
        self.wait_times[place as usize].note(waited);
    }

    /// A flight has ended that so many callers had joined.
    pub(crate) fn flight(&self, callers: u64) {
        if callers > 0 {
            self.flight_callers.note_units(callers);
        }
    }

    /// A load of another process had ended for this long when a flight that waited for it noticed.
    pub(crate) fn noticed(&self, lag: Duration) {
        self.notice_lag.note(lag);
    }

    pub(crate) fn wake(&self, event: WakeEvent) {
        self.wakes.add(event as usize);
    }

    pub(crate) fn lease(&self, event: LeaseEvent) {
        self.leases.add(event as usize);
    }

    pub(crate) fn commit(&self, event: CommitEvent) {
        self.commits.add(event as usize);
    }

    /// A stored answer could not be decoded. The error may tell of the value, which no warning does.
    pub(crate) fn undecodable(&self, value: &'static str, error: Option<BoxError>) {
        self.undecodable.fetch_add(1, Ordering::Relaxed);
        self.debug("an answer that cannot be decoded", None, error.as_ref().map(|it| it as _));
        let why = "a stored answer cannot be decoded, and is loaded again: if the type or its codec has \
                   changed, set another `.version(..)` of the cache";
        self.warn(Self::NOW_AND_THEN, [why, ""], None, Some(&value));
    }

    /// An answer is not stored, because its bytes would not give it again.
    pub(crate) fn unfaithful(&self, key: &Key, value: &'static str, error: BoxError) {
        self.commit(CommitEvent::Unfaithful);
        self.debug("an answer that its bytes do not give again", Some(key), Some(&error));
        let why = "values of a type are not stored if their bytes do not give them again: see \
                   `Codec::verify`, and `Cache::in_process` for caches of one process";
        self.warn(Self::ONCE, [why, ""], Some(key), Some(&value));
    }

    /// Whether an answer of so many bytes is to be verified before it is stored.
    pub(crate) fn verifies(&self, bytes: usize) -> bool {
        let earlier = self.verifiable.fetch_add(1, Ordering::Relaxed);
        bytes <= 4096
            || earlier < 32
            || earlier.is_multiple_of(32)
            || self.commits.read(CommitEvent::Unfaithful as usize) > 0
    }

    pub(crate) fn refresh(&self, event: RefreshEvent) {
        self.refreshes.add(event as usize);
    }

    pub(crate) fn audit(&self, event: AuditEvent) {
        self.audits.add(event as usize);
    }

    /// A stored value of this age is wrong, and no invalidation has come.
    pub(crate) fn stale_served(&self, finding: AuditEvent, key: &Key, age: Duration) {
        self.audit(finding);
        self.stale_ages.note(age);
        let why = "a stored value is not what the source says, and was not invalidated: a writer has not told \
                   the cache";
        self.warn(
            Self::NOW_AND_THEN,
            [why, ""],
            Some(key),
            Some(&format_args!("stored {age:?} ago")),
        );
    }

    /// A limit has refused a caller.
    pub(crate) fn refuse(&self, limit: LimitEvent) {
        self.refused.add(limit as usize);
        let message = ["a limit is reached: ", LimitStats::FIELDS[limit as usize]];
        self.warn(Self::NOW_AND_THEN, message, None, None);
    }

    /// The store has failed, and this follows from it.
    pub(crate) fn store_failed(&self, consequence: &'static str, error: &dyn fmt::Display) {
        let message = ["the store failed: ", consequence];
        self.warn(Self::NOW_AND_THEN, message, None, Some(error));
    }

    /// Warns, with a pause between two messages of one kind: [`NOW_AND_THEN`](Self::NOW_AND_THEN), or
    /// [`ONCE`](Self::ONCE) of what the program may want.
    pub(crate) fn warn(
        &self,
        pause: Duration,
        message: [&'static str; 2],
        key: Option<&Key>,
        error: Option<&dyn fmt::Display>,
    ) {
        let mut throttles = locked(&self.throttles);
        let throttle = throttles.entry(message).or_insert_with(|| LogThrottle::once_per(pause));
        let Some(held_back) = throttle.admit() else { return };
        drop(throttles);
        let (cache, key, error) =
            (&*self.name, key.map(|key| self.shown(key)), error.map(field::display));
        let held_back = Some(held_back).filter(|it| *it > 0);
        tracing::warn!(target: LOAD, cache, key, error, held_back, "{}{}", message[0], message[1]);
    }

    /// Tells at level debug what no caller notices.
    pub(crate) fn debug(&self, message: &str, key: Option<&Key>, error: Option<&dyn fmt::Display>) {
        tracing::debug!(target: LOAD, cache = &*self.name, key = key.map(|key| self.shown(key)), error = error.map(field::display), "{message}");
    }

    /// A key as log messages show it.
    fn shown(&self, key: &Key) -> field::DisplayValue<String> {
        field::display(match self.trace_keys {
            TraceKeys::Plain => key.plain().to_string(),
            _ => key.to_string(),
        })
    }

    /// A change through a handle has ended. Gives its result back.
    pub(crate) fn changed<T, E>(
        &self,
        event: InvalidationEvent,
        result: Result<T, E>,
    ) -> Result<T, E> {
        let event = if result.is_ok() { event } else { InvalidationEvent::Failed };
        self.invalidations.add(event as usize);
        result
    }

    pub(crate) fn read(&self) -> CacheStats {
        // In this order: no load is seen to end that is not seen to start.
        let load_times = LoadTimeStats::read(|result| self.load_times[result].read());
        let loads = LoadStats::read(|event| self.loads.read(event));
        let activity = self.activity.as_ref().and_then(Weak::upgrade);
        let current = activity.map_or_else(CurrentStats::default, |it| it.current());
        CacheStats {
            current,
            requests: RequestStats::read(|event| self.requests.read(event)),
            loads,
            wakes: WakeStats::read(|event| self.wakes.read(event)),
            leases: LeaseStats::read(|event| self.leases.read(event)),
            commits: CommitStats::read(|event| self.commits.read(event)),
            undecodable: self.undecodable.load(Ordering::Relaxed),
            refreshes: RefreshStats::read(|event| self.refreshes.read(event)),
            audits: AuditStats::read(|event| self.audits.read(event)),
            stale_ages: self.stale_ages.read(),
            refused: LimitStats::read(|event| self.refused.read(event)),
            invalidations: InvalidationStats::read(|event| self.invalidations.read(event)),
            load_times,
            wait_times: WaitTimeStats::read(|place| self.wait_times[place].read()),
            flight_callers: self.flight_callers.read(),
            notice_lag: self.notice_lag.read(),
        }
    }
}

/// A load that has started. If it is dropped without a result, it counts as cancelled, or as
/// panicked if a panic drops it.
#[derive(Debug)]
pub(crate) struct RunningLoad {
    statistics: Arc<Statistics>,
    began: Instant,
    span: Span,
    result: Option<LoadResult>,
}

impl RunningLoad {
    /// The span in which the loader runs.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// The load has ended.
    pub(crate) fn end(mut self, result: LoadResult) {
        self.result = Some(result);
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        let result = self.result.unwrap_or_else(|| match thread::panicking() {
            true => LoadResult::Panicked,
            false => LoadResult::Cancelled,
        });
        self.span.record("result", LoadTimeStats::FIELDS[result as usize]);
        self.statistics.load_times[result as usize].note(self.began.elapsed());
    }
}

/// The span of a load: a child of the current one, from which the trigger follows. A load in the background
/// outlives the request that triggered it, so it has no parent, and follows from that request.
fn span(cache: &str, key: Option<&Key>, why: LoadReason, trigger: &CallerSpan) -> Span {
    let kind = key.map(Key::kind);
    let (reason, result) = (LoadStats::FIELDS[why as usize], field::Empty);
    if !matches!(why, LoadReason::Revalidation | LoadReason::Early | LoadReason::Audit) {
        let span = tracing::info_span!(target: LOAD, "cache.load", cache, key.kind = kind, key.digest = field::Empty, key.plain = field::Empty, why = reason, result);
        trigger.follows(&span);
        return span;
    }
    let span = tracing::info_span!(target: LOAD, parent: None, "cache.load", cache, key.kind = kind, key.digest = field::Empty, key.plain = field::Empty, why = reason, result);
    trigger.precedes(&span);
    span
}

/// A request that an adapter answers, perhaps after several lookups. It counts once: by how it has
/// [ended](Self::end), or, if it is dropped before, as left by its caller. Made by
/// [`AdapterCache::begin`](crate::adapter::AdapterCache::begin).
#[derive(Debug)]
pub struct RequestRecord {
    statistics: Arc<Statistics>,
    /// Made by the first lookup, since a bypass has none.
    noted: OnceLock<NotedEvent>,
    is_counted: bool,
}

impl RequestRecord {
    pub(crate) fn begin(statistics: Arc<Statistics>) -> Self {
        Self { statistics, noted: OnceLock::new(), is_counted: false }
    }

    /// What the lookups of the request note their ends in, instead of counting them.
    pub(crate) fn noted(&self) -> &NotedEvent {
        self.noted.get_or_init(NotedEvent::default)
    }

    /// The request was answered with this status.
    pub fn end(self, status: &CacheStatus) {
        let event = RequestEvent::of(status);
        // Its last lookup may know more.
        let noted = self.noted.get().and_then(|noted| *locked(noted));
        let noted = noted.filter(|noted| noted.refines(event));
        self.count(noted.unwrap_or(event));
    }

    pub(crate) fn count(mut self, event: RequestEvent) {
        self.is_counted = true;
        self.statistics.request(event);
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        if !self.is_counted {
            self.statistics.request(RequestEvent::Left);
        }
    }
}

/// How the last lookup of a request has ended. Held to set or to read it, never across an `.await`.
pub(crate) type NotedEvent = Arc<Mutex<Option<RequestEvent>>>;

impl RequestEvent {
    /// How a request with this status counts: a hit as one of the store, a failure as one of the
    /// loader.
    pub(crate) fn of(status: &CacheStatus) -> Self {
        match status {
            CacheStatus::Hit { .. } => Self::HitStore,
            CacheStatus::Stale { why, .. } => match why {
                StaleReason::Revalidating => Self::StaleRevalidating,
                StaleReason::LoadFailed => Self::StaleLoadFailed,
                StaleReason::LoadSlow => Self::StaleLoadSlow,
                StaleReason::WaitRanOut => Self::StaleWaitRanOut,
                StaleReason::NoRoom => Self::StaleNoRoom,
                StaleReason::StoreFailed => Self::StaleStoreFailed,
            },
            CacheStatus::Led { stored: true } => Self::LedStored,
            CacheStatus::Led { stored: false } => Self::LedUnstored,
            CacheStatus::Collapsed { place: LoadLocation::Local, .. } => Self::CollapsedLocal,
            CacheStatus::Collapsed { place: LoadLocation::Remote, .. } => Self::CollapsedRemote,
            CacheStatus::Bypass(why) => match why {
                BypassReason::NoKey => Self::BypassedNoKey,
                BypassReason::Private => Self::BypassedPrivate,
                BypassReason::StoreFailed => Self::BypassedStoreFailed,
                BypassReason::WaitRanOut => Self::BypassedWaitRanOut,
                BypassReason::Disabled => Self::BypassedDisabled,
            },
            CacheStatus::Failed => Self::FailedLoader,
        }
    }

    /// Whether a request that counts as `other` counts as this one more exactly: as a hit in this
    /// process or in the store, or as a failure for this reason.
    fn refines(self, other: Self) -> bool {
        match other {
            Self::HitStore => matches!(self, Self::HitLocal | Self::HitStore),
            Self::FailedLoader => self.is_failure(),
            _ => false,
        }
    }

    fn is_failure(self) -> bool {
        (Self::FailedLoader as usize..=Self::FailedMisuse as usize).contains(&(self as usize))
    }
}

/// The target of spans and log messages about loads.
const LOAD: &str = "bellwether::load";
