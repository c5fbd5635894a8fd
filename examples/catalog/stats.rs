//! The figures of a process that the page shows: all counted since the start, so that a reader may
//! subtract one reading from another.

use serde::Serialize;

use crate::shop::Shop;
use crate::timings::Counts;
use crate::way::Way;

/// All of them at one moment.
#[derive(Serialize)]
pub(crate) struct Stats {
    unprotected: Side,
    moka: Side,
    protected: Side,
    outcomes: Outcomes,
    queries: QueriesByOutcome,
}

#[derive(Serialize)]
struct Side {
    /// QueriesByOutcome that were begun at the database.
    queries: u64,
    /// How many queries wait for a connection to the database right now.
    queued: u64,
    #[serde(flatten)]
    counts: Counts,
}

/// How requests of bellwether's cache ended.
#[derive(Serialize)]
struct Outcomes {
    hit: u64,
    stale: u64,
    collapsed: u64,
    led: u64,
    bypass: u64,
    failed: u64,
}

/// The queries of bellwether's cache, by what their requests got. They are all of its side.
#[derive(Serialize)]
struct QueriesByOutcome {
    /// For the next requests: these got an answer that was still fresh.
    hit: u64,
    /// To replace a stale answer.
    stale: u64,
    led: u64,
    bypass: u64,
}

impl Stats {
    pub(crate) fn of(shop: &Shop) -> Self {
        let stats = shop.products.stats();
        let (requests, loads) = (stats.requests, stats.loads);
        let [unprotected, moka, protected] = Way::ALL.map(|way| Side::of(shop, way));
        let outcomes = Outcomes {
            hit: requests.hits(),
            stale: requests.stale(),
            collapsed: requests.collapsed(),
            led: requests.led(),
            bypass: requests.bypassed(),
            failed: requests.failed(),
        };
        let queries = QueriesByOutcome {
            hit: loads.early + loads.audit,
            stale: loads.revalidation,
            led: loads.miss + loads.forced,
            bypass: loads.uncached(),
        };
        Self { unprotected, moka, protected, outcomes, queries }
    }
}

impl Side {
    fn of(shop: &Shop, way: Way) -> Self {
        let database = shop.database(way);
        let counts = shop.timings(way).counts();
        Self { queries: database.queries(), queued: database.queued(), counts }
    }
}
