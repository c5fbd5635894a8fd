//! The recorder: where a layer counts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Span;

use super::activity::{Activities, Activity};
use super::cache_stats::{
    CacheStats, CommitEvent, CommitStats, InvalidationEvent, InvalidationStats, LeaseEvent,
    LeaseStats, LimitEvent, LimitStats, LoadReason, RefreshEvent, RefreshStats, RequestEvent,
    RequestStats, WaitPlace, WaitTimeStats, WakeEvent, WakeStats,
};
use super::counters::Counters;
use super::histogram::{Histogram, TimeHistogram, TimeHistograms};
use super::hot_keys::{HotKey, HotKeys};
use super::layer_log::{LOAD, LayerLog, StoreFailure};
use super::running_load::{LoadCounters, RunningLoad};
use super::shown_key::ShownKey;
use super::striped::Striped;
use crate::key::Key;
use crate::trace::{CallerSpan, TraceKeys};

/// The statistics of a layer, shared by its services, their clones and its handles.
#[derive(Debug)]
pub(crate) struct Statistics {
    name: Arc<str>,
    trace_keys: TraceKeys,
    activities: Activities,
    requests: Striped<{ RequestEvent::COUNT }>,
    loads: Arc<LoadCounters>,
    wakes: Counters<{ WakeEvent::COUNT }>,
    leases: Counters<{ LeaseEvent::COUNT }>,
    commits: Counters<{ CommitEvent::COUNT }>,
    refreshes: Counters<{ RefreshEvent::COUNT }>,
    refused: Counters<{ LimitEvent::COUNT }>,
    invalidations: Counters<{ InvalidationEvent::COUNT }>,
    wait_times: TimeHistograms<{ WaitPlace::COUNT }>,
    flight_callers: Histogram,
    notice_lag: TimeHistogram,
    hot_keys: HotKeys,
    log: LayerLog,
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
            loads: Arc::default(),
            wakes: Counters::default(),
            leases: Counters::default(),
            commits: Counters::default(),
            refreshes: Counters::default(),
            refused: Counters::default(),
            invalidations: Counters::default(),
            wait_times: TimeHistograms::default(),
            flight_callers: Histogram::of_callers(),
            notice_lag: TimeHistogram::default(),
            hot_keys: HotKeys::default(),
            log: LayerLog::default(),
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
        ShownKey::of(key, self.trace_keys)
    }

    /// Notes in a span what it may have of a key.
    pub(crate) fn note_key(&self, span: &Span, key: &Key) {
        self.shown(key).note_in(span);
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
        &self,
        key: Option<&Key>,
        why: LoadReason,
        trigger: &CallerSpan,
    ) -> RunningLoad {
        key.inspect(|key| self.hot_keys.count(key));
        let load = self.loads.begin(&self.name, key, why, trigger);
        key.inspect(|key| self.note_key(load.span(), key));
        load
    }

    /// A request was answered by the load of another caller, after this wait.
    pub(crate) fn waited(&self, place: WaitPlace, waited: Duration) {
        self.wait_times.note(place as usize, waited);
    }

    /// A flight has ended that so many callers had joined.
    pub(crate) fn flight(&self, callers: u64) {
        if callers > 0 {
            self.flight_callers.note_callers(callers);
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
        self.log.refresh_failed(&self.name, self.shown(key), error);
    }

    /// A limit has refused a caller.
    pub(crate) fn refuse(&self, limit: LimitEvent) {
        self.refused.add(limit as usize);
        self.log.refused(&self.name, limit);
    }

    /// The store has failed.
    pub(crate) fn store_failed(&self, failure: StoreFailure, error: &dyn fmt::Display) {
        self.log.store_failed(&self.name, failure, error);
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
        let (loads, load_times) = self.loads.read();
        CacheStats {
            current: self.activities.read(),
            requests: RequestStats::read(|event| self.requests.read(event)),
            loads,
            wakes: WakeStats::read(|event| self.wakes.read(event)),
            leases: LeaseStats::read(|event| self.leases.read(event)),
            commits: CommitStats::read(|event| self.commits.read(event)),
            refreshes: RefreshStats::read(|event| self.refreshes.read(event)),
            refused: LimitStats::read(|event| self.refused.read(event)),
            invalidations: InvalidationStats::read(|event| self.invalidations.read(event)),
            load_times,
            wait_times: WaitTimeStats::read(|place| self.wait_times.read(place)),
            flight_callers: self.flight_callers.read(),
            notice_lag: self.notice_lag.read(),
        }
    }

    pub(crate) fn hottest(&self) -> Vec<HotKey> {
        self.hot_keys.hottest()
    }
}
