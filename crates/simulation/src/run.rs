//! A run: what is simulated, and what has happened in it.

use std::collections::BTreeMap;

use crate::plan_kind::PlanKind;
use crate::reduction::Reduction;
use crate::server::Mutations;

/// What is simulated.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// It decides all that is random.
    pub seed: u64,
    /// What it is about. None lets the seed decide.
    pub kind: Option<PlanKind>,
    /// How many operations of callers there are, about. A burst has its own number.
    pub operations: u64,
    /// Replacements in the texts of the scripts.
    pub mutations: Mutations,
    /// Whether all that happens is listed.
    pub shows_trace: bool,
    /// What of it is left out.
    pub reduction: Reduction,
    /// When it ends, in simulated milliseconds, or with its first violation before. None runs all of it.
    pub ends_at: Option<u64>,
}

/// What has happened in a run.
#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    /// The operations of callers.
    pub operations: u64,
    /// The loads.
    pub loads: u64,
    /// The commands of the server.
    pub commands: u64,
    /// The simulated time in milliseconds.
    pub millis: u64,
    /// The faults of each kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The promises that were broken.
    pub violations: Vec<String>,
    /// How many operations and faults had begun when the first promise was found broken.
    pub begun_at_violation: Option<[u64; 2]>,
    /// When that was, in simulated milliseconds.
    pub violated_at: Option<u64>,
    /// A hash of all that has happened.
    pub trace: u64,
    /// All that has happened, if it was to be listed.
    pub lines: Vec<String>,
}

impl Run {
    /// What it is about.
    pub fn kind(&self) -> PlanKind {
        self.kind.unwrap_or_else(|| PlanKind::of(self.seed))
    }
}
