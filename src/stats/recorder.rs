//! The recorder: where a layer counts.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::cache_stats::{
    CacheStats, CommitEvent, CommitStats, InvalidationEvent, InvalidationStats, LeaseEvent,
    LeaseStats, LimitEvent, LimitStats, LoadEndStats, LoadReason, LoadResult, LoadStartStats,
    LoadStats, RefreshEvent, RefreshStats, RequestEvent, RequestStats, WakeEvent, WakeStats,
};
use super::counters::Counters;
use super::hot_keys::{HotKey, HotKeys};
use super::striped::Striped;
use crate::key::Key;
use crate::log_throttle::LogThrottle;

/// The statistics of a layer, shared by its services, their clones and its handles.
#[derive(Debug)]
pub(crate) struct Statistics {
    name: Arc<str>,
    requests: Striped<{ RequestEvent::COUNT }>,
    started: Counters<{ LoadReason::COUNT }>,
    ended: Counters<{ LoadResult::COUNT }>,
    wakes: Counters<{ WakeEvent::COUNT }>,
    leases: Counters<{ LeaseEvent::COUNT }>,
    commits: Counters<{ CommitEvent::COUNT }>,
    refreshes: Counters<{ RefreshEvent::COUNT }>,
    refused: Counters<{ LimitEvent::COUNT }>,
    invalidations: Counters<{ InvalidationEvent::COUNT }>,
    hot_keys: HotKeys,
    log: Log,
}

/// What may be logged now: each layer has throttles of its own, so that one does not hide what
/// another one has to say.
#[derive(Debug)]
struct Log {
    failed_refreshes: LogThrottle,
    refused: [LogThrottle; LimitEvent::COUNT],
}

impl Default for Log {
    fn default() -> Self {
        let throttle = || LogThrottle::once_per(LOG_EVERY);
        Self { failed_refreshes: throttle(), refused: [(); LimitEvent::COUNT].map(|()| throttle()) }
    }
}

impl Statistics {
    /// The name of a layer that was given none.
    pub(crate) const UNNAMED: &str = "unnamed";

    pub(crate) fn named(name: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            requests: Striped::default(),
            started: Counters::default(),
            ended: Counters::default(),
            wakes: Counters::default(),
            leases: Counters::default(),
            commits: Counters::default(),
            refreshes: Counters::default(),
            refused: Counters::default(),
            invalidations: Counters::default(),
            hot_keys: HotKeys::default(),
            log: Log::default(),
        })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// A request has ended.
    #[inline]
    pub(crate) fn request(&self, event: RequestEvent) {
        self.requests.add(event as usize);
    }

    /// A load starts. Its end is counted when the value is dropped.
    pub(crate) fn load(self: &Arc<Self>, key: Option<&Key>, why: LoadReason) -> RunningLoad {
        self.started.add(why as usize);
        key.inspect(|key| self.hot_keys.count(key));
        RunningLoad { statistics: Arc::clone(self), result: None, is_not_found: false }
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
        if let Some(held_back) = self.log.failed_refreshes.admit() {
            let cache = &*self.name;
            tracing::warn!(target: LOAD, cache, %key, %error, held_back, "a refresh in the background failed");
        }
    }

    /// A limit has refused a caller.
    pub(crate) fn refuse(&self, limit: LimitEvent) {
        self.refused.add(limit as usize);
        if let Some(held_back) = self.log.refused[limit as usize].admit() {
            let cache = &*self.name;
            tracing::warn!(target: LOAD, cache, ?limit, held_back, "a limit is reached: callers are refused");
        }
    }

    /// A lease was lost during its load.
    pub(crate) fn lease_lost(&self, key: &Key) {
        self.lease(LeaseEvent::Lost);
        tracing::debug!(target: LOAD, cache = &*self.name, %key, "a lease was lost during its load");
    }

    /// A loaded answer was refused as outdated.
    pub(crate) fn superseded(&self, key: &Key) {
        self.commit(CommitEvent::Superseded);
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
            requests: RequestStats::read(|event| self.requests.read(event)),
            loads: LoadStats { started, ended },
            wakes: WakeStats::read(|event| self.wakes.read(event)),
            leases: LeaseStats::read(|event| self.leases.read(event)),
            commits: CommitStats::read(|event| self.commits.read(event)),
            refreshes: RefreshStats::read(|event| self.refreshes.read(event)),
            refused: LimitStats::read(|event| self.refused.read(event)),
            invalidations: InvalidationStats::read(|event| self.invalidations.read(event)),
        }
    }

    pub(crate) fn hottest(&self) -> Vec<HotKey> {
        self.hot_keys.hottest()
    }
}

/// A load that has started. If it is dropped without a result, it counts as cancelled, or as
/// panicked if a panic drops it.
#[derive(Debug)]
pub(crate) struct RunningLoad {
    statistics: Arc<Statistics>,
    result: Option<LoadResult>,
    is_not_found: bool,
}

impl RunningLoad {
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
        self.statistics.ended.add(result as usize);
    }
}

/// The target of log messages about loads.
const LOAD: &str = "bellwether::load";

/// How often a layer logs one kind of message at most.
const LOG_EVERY: Duration = Duration::from_secs(10);
