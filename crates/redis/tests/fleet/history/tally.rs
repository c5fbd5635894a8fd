//! What happened, counted: a history in which nothing happened proves nothing.

use std::collections::HashMap;

use super::checker::Checked;
use crate::answer::How;
use crate::messages::{Event, What};

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rounds: u64,
    bound: u64,
    bound_just_then: u64,
    invalidations: u64,
    reads: HashMap<How, u64>,
    /// Invalidations of which it is not known whether they were done.
    failed_invalidations: u64,
    failed_reads: Vec<String>,
}

impl Tally {
    pub(crate) fn count(&mut self, rounds: u64, history: &[Event], checked: &Checked) {
        self.rounds += rounds;
        self.bound += checked.bound;
        self.bound_just_then += checked.bound_just_then;
        for Event { what, .. } in history {
            match what {
                What::Invalidated { .. } => self.invalidations += 1,
                What::InvalidationFailed | What::InvalidationKept { .. } => {
                    self.failed_invalidations += 1;
                }
                What::Read { how, .. } => *self.reads.entry(*how).or_default() += 1,
                What::ReadFailed(why) => self.failed_reads.push(why.clone()),
            }
        }
    }

    /// Asserts that there were answers of every status.
    pub(crate) fn is_rich(&self) {
        let ways = [
            How::Bypassed,
            How::CollapsedElsewhere,
            How::CollapsedHere,
            How::Hit,
            How::Led { stored: false },
            How::Led { stored: true },
        ];
        for how in ways {
            assert!(self.reads.contains_key(&how), "no caller was answered by {how:?}");
        }
        assert!(self.bound_just_then > self.rounds / 10);
        assert!(self.failed_invalidations < self.invalidations / 4);
        assert!(self.failed_reads.is_empty(), "{:?}", self.failed_reads);
    }
}
