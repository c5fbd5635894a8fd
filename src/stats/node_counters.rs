//! The recorder of what a node of a store was sent, and what came of it.

use super::counters::Counters;
use super::store_stats::StoreErrorStats;
use crate::error::StoreErrorKind;

/// What a node was sent, and what came of it.
#[derive(Debug, Default)]
pub struct NodeCounters(Counters<COUNT>);

const REQUESTS: usize = 0;
const REDIRECTIONS: usize = 1;
const CONNECTS: usize = 2;
const OUTAGES: usize = 3;
const ERRORS: usize = 4;
const COUNT: usize = ERRORS + StoreErrorStats::COUNT;

impl NodeCounters {
    /// It was sent so many requests.
    pub fn sent(&self, requests: usize) {
        self.0.add_many(REQUESTS, requests as u64);
    }

    /// It has sent a request to another node.
    pub fn redirected(&self) {
        self.0.add(REDIRECTIONS);
    }

    /// A request has failed.
    pub fn failed(&self, kind: StoreErrorKind) {
        self.0.add(ERRORS + kind as usize);
    }

    /// An attempt to connect begins.
    pub fn connects(&self) {
        self.0.add(CONNECTS);
    }

    /// The circuit breaker has opened.
    pub fn went_down(&self) {
        self.0.add(OUTAGES);
    }

    /// Its requests, those of them that it has sent to another node, attempts to connect, and how
    /// often its circuit breaker has opened.
    pub fn figures(&self) -> [u64; 4] {
        [REQUESTS, REDIRECTIONS, CONNECTS, OUTAGES].map(|event| self.0.read(event))
    }

    /// The requests that have failed.
    pub fn errors(&self) -> StoreErrorStats {
        StoreErrorStats::read(|event| self.0.read(ERRORS + event))
    }

    /// The node is another server from now on.
    pub fn reset(&self) {
        self.0.reset();
    }
}
