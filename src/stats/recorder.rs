//! The recorder: where a layer counts.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{Span, field};

use super::activity::{Activities, Activity};
use super::cache_stats::{
    CacheStats, CommitEvent, CommitStats, InvalidationEvent, InvalidationStats, LeaseEvent,
    LeaseStats, LimitEvent, LimitStats, LoadEndStats, LoadReason, LoadResult, LoadStartStats,
    LoadStats, LoadTimeStats, RefreshEvent, RefreshStats, RequestEvent, RequestStats,
    WaitTimeStats, WakeEvent, WakeStats,
};
use super::counters::Counters;
use super::histogram::Histogram;
use super::hot_keys::{HotKey, HotKeys};
use super::striped::Striped;
use crate::key::Key;
use crate::locked::locked;
use crate::log_throttle::LogThrottle;
use crate::status::LoadLocation;
use crate::trace::{CallerSpan, TraceKeys};

/// The statistics of a layer, shared by its services, their clones and its handles.
#[derive(Debug)]
pub(crate) struct Statistics {
    name: Arc<str>,
    trace_keys: TraceKeys,
    activities: Activities,
    requests: Striped<{ RequestStats::COUNT }>,
    started: Counters<{ LoadStartStats::COUNT }>,
    ended: Counters<{ LoadEndStats::COUNT }>,
    load_times: [Histogram; LoadEndStats::COUNT],
    wakes: Counters<{ WakeStats::COUNT }>,
    leases: Counters<{ LeaseStats::COUNT }>,
    commits: Counters<{ CommitStats::COUNT }>,
    refreshes: Counters<{ RefreshStats::COUNT }>,
    refused: Counters<{ LimitStats::COUNT }>,
    invalidations: Counters<{ InvalidationStats::COUNT }>,
    wait_times: [Histogram; WaitTimeStats::COUNT],
    flight_callers: Histogram,
    notice_lag: Histogram,
    hot_keys: HotKeys,
    /// When each kind of message may be logged again, so that no layer hides what another one has to
    /// say. Held to look that up, never across an `.await`.
    throttles: Mutex<HashMap<&'static str, LogThrottle>>,
}

impl Statistics {
    /// The name of a layer that was given none.
    pub(crate) const UNNAMED: &str = "unnamed";

    pub(crate) fn new(name: impl Into<Arc<str>>, trace_keys: TraceKeys) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            trace_keys,
            activities: Activities::default(),
            requests: Striped::default(),
            started: Counters::default(),
            ended: Counters::default(),
            load_times: Default::default(),
            wakes: Counters::default(),
            leases: Counters::default(),
            commits: Counters::default(),
            refreshes: Counters::default(),
            refused: Counters::default(),
            invalidations: Counters::default(),
            wait_times: Default::default(),
            flight_callers: Histogram::of_callers(),
            notice_lag: Histogram::default(),
            hot_keys: HotKeys::default(),
            throttles: Mutex::default(),
        })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn trace_keys(&self) -> TraceKeys {
        self.trace_keys
    }

    /// A key as log messages show it.
    pub(crate) fn shown<'a>(&self, key: &'a Key) -> ShownKey<'a> {
        ShownKey { key, is_plain: self.trace_keys == TraceKeys::Plain }
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

    /// Says from now on what is under way here, too, for as long as it is there.
    pub(crate) fn observe(&self, activity: &Arc<dyn Activity>) {
        self.activities.add(activity);
    }

    /// A request has ended.
    #[inline]
    pub(crate) fn request(&self, event: RequestEvent) {
        self.requests.add(event as usize);
    }

    /// A load starts. Its end is counted when the value is dropped. `trigger` is the span of the
    /// caller that opened it.
    pub(crate) fn load(
        self: &Arc<Self>,
        key: Option<&Key>,
        why: LoadReason,
        trigger: &CallerSpan,
    ) -> RunningLoad {
        key.inspect(|key| self.hot_keys.count(key));
        let load = RunningLoad::begin(Arc::clone(self), key, why, trigger);
        key.inspect(|key| self.note_key(load.span(), key));
        load
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

    pub(crate) fn refresh(&self, event: RefreshEvent) {
        self.refreshes.add(event as usize);
    }

    /// A load in the background has failed, which no caller notices.
    pub(crate) fn refresh_failed(&self, key: &Key, error: &dyn fmt::Display) {
        self.refresh(RefreshEvent::Failed);
        if let Some(held_back) = self.admit("refresh") {
            let (cache, key) = (&*self.name, self.shown(key));
            tracing::warn!(target: LOAD, cache, %key, %error, held_back, "a refresh in the background failed");
        }
    }

    /// A limit has refused a caller.
    pub(crate) fn refuse(&self, limit: LimitEvent) {
        self.refused.add(limit as usize);
        if let Some(held_back) = self.admit(LimitStats::FIELDS[limit as usize]) {
            let cache = &*self.name;
            tracing::warn!(target: LOAD, cache, ?limit, held_back, "a limit is reached: callers are refused");
        }
    }

    /// The store has failed, and this follows from it.
    pub(crate) fn store_failed(&self, consequence: &'static str, error: &dyn fmt::Display) {
        if let Some(held_back) = self.admit(consequence) {
            let cache = &*self.name;
            tracing::warn!(target: LOAD, cache, %error, held_back, "the store failed: {consequence}");
        }
    }

    /// Whether a message of this kind may be logged now, and how many were held back.
    fn admit(&self, kind: &'static str) -> Option<u64> {
        let mut throttles = locked(&self.throttles);
        throttles.entry(kind).or_insert_with(|| LogThrottle::once_per(LOG_EVERY)).admit()
    }

    /// A lease was lost during its load.
    pub(crate) fn lease_lost(&self, key: &Key) {
        self.lease(LeaseEvent::Lost);
        let key = self.shown(key);
        tracing::debug!(target: LOAD, cache = &*self.name, %key, "a lease was lost during its load");
    }

    /// A loaded answer was refused as outdated.
    pub(crate) fn superseded(&self, key: &Key) {
        self.commit(CommitEvent::Superseded);
        let key = self.shown(key);
        tracing::debug!(target: LOAD, cache = &*self.name, %key, "a loaded answer was refused as outdated");
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
        let ended = LoadEndStats::read(|event| self.ended.read(event));
        let started = LoadStartStats::read(|event| self.started.read(event));
        CacheStats {
            current: self.activities.read(),
            requests: RequestStats::read(|event| self.requests.read(event)),
            loads: LoadStats { started, ended },
            wakes: WakeStats::read(|event| self.wakes.read(event)),
            leases: LeaseStats::read(|event| self.leases.read(event)),
            commits: CommitStats::read(|event| self.commits.read(event)),
            refreshes: RefreshStats::read(|event| self.refreshes.read(event)),
            refused: LimitStats::read(|event| self.refused.read(event)),
            invalidations: InvalidationStats::read(|event| self.invalidations.read(event)),
            load_times: LoadTimeStats::read(|result| self.load_times[result].read()),
            wait_times: WaitTimeStats::read(|place| self.wait_times[place].read()),
            flight_callers: self.flight_callers.read(),
            notice_lag: self.notice_lag.read(),
        }
    }

    pub(crate) fn hottest(&self) -> Vec<HotKey> {
        self.hot_keys.hottest()
    }
}

/// A key as a log message shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownKey<'a> {
    key: &'a Key,
    is_plain: bool,
}

impl fmt::Display for ShownKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain { self.key.plain().fmt(f) } else { self.key.fmt(f) }
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
    is_not_found: bool,
}

impl RunningLoad {
    /// A load starts.
    fn begin(
        statistics: Arc<Statistics>,
        key: Option<&Key>,
        why: LoadReason,
        trigger: &CallerSpan,
    ) -> Self {
        statistics.started.add(why as usize);
        let span = span(statistics.name(), key, why, trigger);
        Self { statistics, began: Instant::now(), span, result: None, is_not_found: false }
    }

    /// The span in which the loader runs.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Notes that the answer is that there is none.
    pub(crate) fn note_not_found(&mut self) {
        self.is_not_found = true;
    }

    /// The load has ended.
    pub(crate) fn end(mut self, result: LoadResult) {
        self.result = Some(match result {
            LoadResult::Succeeded if self.is_not_found => LoadResult::NotFound,
            result => result,
        });
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        let result = self.result.unwrap_or_else(|| match thread::panicking() {
            true => LoadResult::Panicked,
            false => LoadResult::Cancelled,
        });
        self.span.record("result", LoadEndStats::FIELDS[result as usize]);
        self.statistics.load_times[result as usize].note(self.began.elapsed());
        self.statistics.ended.add(result as usize);
    }
}

/// The span of a load: a child of the current one. A load in the background outlives the request
/// that triggered it, so it has no parent, and follows from that request.
fn span(cache: &str, key: Option<&Key>, why: LoadReason, trigger: &CallerSpan) -> Span {
    let kind = key.map(Key::kind);
    let (reason, result) = (LoadStartStats::FIELDS[why as usize], field::Empty);
    if !matches!(why, LoadReason::Revalidation | LoadReason::Early) {
        return tracing::info_span!(target: LOAD, "cache.load", cache, key.kind = kind, key.digest = field::Empty, key.plain = field::Empty, why = reason, result);
    }
    let span = tracing::info_span!(target: LOAD, parent: None, "cache.load", cache, key.kind = kind, key.digest = field::Empty, key.plain = field::Empty, why = reason, result);
    trigger.precedes(&span);
    span
}

/// The target of spans and log messages about loads.
const LOAD: &str = "bellwether::load";

/// How often a layer logs one kind of message at most.
const LOG_EVERY: Duration = Duration::from_secs(10);
