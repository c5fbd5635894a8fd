//! The figures that the page shows: all counted since the start, so that a reader may subtract one
//! reading from another.

use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::demo::Demo;
use crate::meter::Counts;
use crate::switch::State;
use crate::way::Way;

/// All of them at one moment.
#[derive(Serialize)]
pub(crate) struct Stats {
    unprotected: Side,
    protected: Side,
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
    counts: Counts,
}

#[derive(Serialize)]
struct Store {
    kind: &'static str,
    state: &'static str,
    stopped: bool,
}

impl Stats {
    pub(crate) fn of(demo: &Demo) -> Self {
        let weather = &demo.shop.source.weather;
        Self {
            unprotected: Side::of(demo, Way::Unprotected),
            protected: Side::of(demo, Way::Protected),
            store: Store::of(demo),
            slow: weather.slow.load(Ordering::Relaxed),
            broken: weather.broken.load(Ordering::Relaxed),
        }
    }
}

impl Side {
    fn of(demo: &Demo, way: Way) -> Self {
        let connections = demo.shop.source.of(way);
        let queries = connections.queries();
        let queued = connections.queued();
        Self { queries, queued, counts: demo.shop.meter(way).counts() }
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
