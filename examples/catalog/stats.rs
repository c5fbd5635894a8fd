//! The figures of a process that the page shows: all counted since the start, so that a reader may
//! subtract one reading from another.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::shop::Shop;
use crate::way::Way;

/// The upper ends of the classes of a histogram: from a quarter of a millisecond to 8 s, each twice
/// the one before. What takes longer is in a class of its own.
const FIRST_CLASS_MICROS: u128 = 250;
const CLASSES: usize = 17;

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

/// How long the requests of a way took, and how many failed.
#[derive(Default)]
pub(crate) struct Timings(
    /// Held to count one request or to copy all.
    Mutex<Counts>,
);

#[derive(Clone, Default, Serialize)]
struct Counts {
    answers: u64,
    errors: u64,
    /// How many answers and errors took how long.
    latency: [u64; CLASSES],
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
        let counts = shop.timings(way).0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self { queries: database.queries(), queued: database.queued(), counts }
    }
}

impl Timings {
    /// Counts an answer, or an error.
    pub(crate) fn note(&self, took: Duration, is_ok: bool) {
        let ends = (0..CLASSES - 1).map(|class| FIRST_CLASS_MICROS << class);
        let class = ends.take_while(|end| took.as_micros() >= *end).count();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.latency[class] += 1;
        *(if is_ok { &mut counts.answers } else { &mut counts.errors }) += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_ends_where_the_next_begins() {
        for (micros, class) in [(249, 0), (250, 1), (8_191_000, 15), (9_000_000, 16)] {
            let timings = Timings::default();
            timings.note(Duration::from_micros(micros), true);
            assert_eq!(timings.0.into_inner().unwrap().latency[class], 1, "{micros}");
        }
    }
}
