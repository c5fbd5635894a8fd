//! The figures that the page shows: all counted since the start, so that a reader may subtract one
//! reading from another.

use std::sync::atomic::Ordering;

use bellwether::stats::{CacheStats, HistogramStats};
use serde::Serialize;

use crate::demo::Demo;
use crate::switch::State;
use crate::timings::Timings;
use crate::way::Way;

/// All of them at one moment.
#[derive(Serialize)]
pub(crate) struct Stats {
    unprotected: Side,
    plain: Side,
    protected: Side,
    outcomes: Outcomes,
    loads: Loads,
    wakes: Wakes,
    /// How long callers waited for the load of another caller that answered them.
    waits: Times,
    /// For how long a load of another process had ended when its waiters here noticed.
    lags: Times,
    store: Store,
    slow: bool,
    broken: bool,
}

#[derive(Serialize)]
struct Side {
    /// Queries that were begun at the database.
    queries: u64,
    /// How many queries wait for a connection to the database right now.
    queued: u64,
    #[serde(flatten)]
    timings: Timings,
}

/// How requests for bellwether's caches ended.
#[derive(Default, Serialize)]
struct Outcomes {
    hit: u64,
    stale: u64,
    collapsed: u64,
    led: u64,
    bypass: u64,
    failed: u64,
}

/// Calls of the loaders.
#[derive(Default, Serialize)]
struct Loads {
    started: u64,
    failed: u64,
    /// Loads in the background that have failed, of which no caller knows.
    failed_refreshes: u64,
}

/// What ended waits for the load of another process.
#[derive(Default, Serialize)]
struct Wakes {
    push: u64,
    pause: u64,
    missed_push: u64,
}

/// How many of something took how long: by the classes of [`HistogramStats::SECONDS`].
#[derive(Default, Serialize)]
#[serde(transparent)]
struct Times([u64; 16]);

#[derive(Serialize)]
struct Store {
    kind: &'static str,
    state: &'static str,
    stopped: bool,
}

impl Stats {
    pub(crate) fn of(demo: &Demo) -> Self {
        let weather = &demo.shop.source.weather;
        let [unprotected, plain, protected] = Way::ALL.map(|way| Side::of(demo, way));
        let mut stats = Self {
            unprotected,
            plain,
            protected,
            outcomes: Outcomes::default(),
            loads: Loads::default(),
            wakes: Wakes::default(),
            waits: Times::default(),
            lags: Times::default(),
            store: Store::of(demo),
            slow: weather.slow.load(Ordering::Relaxed),
            broken: weather.broken.load(Ordering::Relaxed),
        };
        for (_, cache) in demo.shop.stats() {
            stats.outcomes.add(&cache);
            stats.loads.add(&cache);
            stats.wakes.push += cache.wakes.push;
            stats.wakes.pause += cache.wakes.pause;
            stats.wakes.missed_push += cache.wakes.missed_push;
            stats.waits.add(&cache.wait_times.here);
            stats.waits.add(&cache.wait_times.elsewhere);
            stats.lags.add(&cache.notice_lag);
        }
        stats
    }
}

impl Side {
    fn of(demo: &Demo, way: Way) -> Self {
        let connections = demo.shop.source.of(way);
        let queries = connections.queries();
        let queued = connections.queued();
        Self { queries, queued, timings: demo.shop.timings(way) }
    }
}

impl Outcomes {
    fn add(&mut self, cache: &CacheStats) {
        let requests = &cache.requests;
        self.hit += requests.hits();
        self.stale += requests.stale();
        self.collapsed += requests.collapsed();
        self.led += requests.led();
        self.bypass += requests.bypassed();
        self.failed += requests.failed();
    }
}

impl Loads {
    fn add(&mut self, cache: &CacheStats) {
        let ended = &cache.loads.ended;
        self.started += cache.loads.started.total();
        self.failed += ended.failed + ended.timed_out + ended.panicked;
        self.failed_refreshes += cache.refreshes.failed;
    }
}

impl Times {
    fn add(&mut self, times: &HistogramStats) {
        for (count, more) in self.0.iter_mut().zip(times.counts) {
            *count += more;
        }
    }
}

impl Store {
    fn of(demo: &Demo) -> Self {
        let store = &demo.shop.store;
        let state = match store.state() {
            State::Up => "up",
            State::Failing => "down",
            State::LeftAlone => "down, not asked (breaker open)",
        };
        Self { kind: store.kind(), state, stopped: store.is_stopped() }
    }
}
