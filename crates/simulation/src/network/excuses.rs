//! Excuses: which processes may have failures of which faults are the reason.

use std::collections::BTreeMap;

use crate::host::Millis;

/// A request that is lost with its link is sent again. It may fail if a second link ends soon after.
#[derive(Debug, Default)]
pub(super) struct Excuses {
    /// When faults have last ended a link of each process.
    cuts: BTreeMap<usize, Millis>,
    /// Since when each process has had its requests executed, after faults that may make some fail.
    well_since: BTreeMap<usize, Millis>,
}

impl Excuses {
    /// A fault has ended a link of a process, perhaps a new one.
    pub(super) fn link_ended(&mut self, process: usize, is_new: bool, now: Millis) {
        let before = self.cuts.insert(process, now);
        // An attempt to connect is not repeated, and a request that waits for it fails.
        if is_new || before.is_some_and(|at| at + LATEST_FAILURE >= now) {
            self.well_since.remove(&process);
        }
    }

    /// A request of a process was executed.
    pub(super) fn executed(&mut self, process: usize, now: Millis) {
        self.well_since.entry(process).or_insert(now);
    }

    pub(super) fn may_fail(&self, process: usize, now: Millis) -> bool {
        let well_since = self.well_since.get(&process);
        well_since.is_none_or(|since| since + LATEST_FAILURE >= now)
    }
}

/// How long requests may fail after links have ended, and one is executed: until the pause of the circuit breaker
/// is over.
pub(super) const LATEST_FAILURE: Millis = 2_000;
