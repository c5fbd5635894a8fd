//! The recorder of what a node of a store was sent, and what came of it.

use super::counters::Counters;
use super::store_stats::StoreErrorStats;
use crate::error::StoreErrorKind;

/// What a node was sent, and what came of it.
#[derive(Debug, Default)]
pub struct NodeCounters(Counters<COUNT>);

/// A snapshot of [`NodeCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFigures([u64; COUNT]);

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

    /// What has come so far.
    pub fn read(&self) -> NodeFigures {
        NodeFigures(std::array::from_fn(|event| self.0.read(event)))
    }
}

impl NodeFigures {
    /// What has come since an older snapshot.
    pub fn since(&self, older: &Self) -> Self {
        Self(std::array::from_fn(|event| self.0[event].wrapping_sub(older.0[event])))
    }

    /// How many requests it was sent.
    pub fn requests(&self) -> u64 {
        self.0[REQUESTS]
    }

    /// How many of them it has sent to another node.
    pub fn redirections(&self) -> u64 {
        self.0[REDIRECTIONS]
    }

    /// How often an attempt to connect began.
    pub fn connects(&self) -> u64 {
        self.0[CONNECTS]
    }

    /// How often its circuit breaker has opened.
    pub fn outages(&self) -> u64 {
        self.0[OUTAGES]
    }

    /// The requests that have failed.
    pub fn errors(&self) -> StoreErrorStats {
        StoreErrorStats::read(|event| self.0[ERRORS + event])
    }
}
