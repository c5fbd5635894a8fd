//! The verdict on what was suspected in a turn, once all its faults are known.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::faults::{Fault, FaultLog};
use crate::hub::Hub;
use crate::kinds::RowKey;
use crate::messages::{Promise, Suspect};
use crate::source::Happened;
use crate::tally::Tally;

/// A broken promise, with all that is known of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Violation {
    pub(crate) servers: &'static str,
    pub(crate) seed: u64,
    pub(crate) row: String,
    pub(crate) read: Suspect,
    pub(crate) faults_around: Vec<Fault>,
    pub(crate) history: Vec<Happened>,
}

/// What came of a turn.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) tally: Tally,
    pub(crate) violations: Vec<Violation>,
    pub(crate) faults: BTreeMap<String, u64>,
}

/// Judges a turn that is over, by what the hub has suspected and which faults there were.
pub(crate) fn judge(servers: &'static str, seed: u64, hub: &Hub, log: &FaultLog) -> Judged {
    let (mut tally, _) = hub.so_far();
    hub.take_late().measure(|from, to| log.is_calm(from, to), &mut tally);
    let mut violations = Vec::new();
    for (read, history) in hub.suspects() {
        if read.broken.is_empty() && read.is_undecided {
            tally.count("undecided", 1);
            continue;
        }
        if let Some(excuse) = log.excuse(&read) {
            tally.count(&format!("excepted: {excuse}"), 1);
            continue;
        }
        tally.count(&format!("violated: {:?}", read.promise), 1);
        let faults_around = log.around(&read);
        let row = RowKey::name_of(read.key);
        violations.push(Violation { servers, seed, row, read, faults_around, history });
    }
    Judged { tally, violations, faults: log.by_kind() }
}

/// All promises that are checked, each with how it reads.
pub(crate) const PROMISES: [(Promise, &str); 6] = [
    (
        Promise::Invalidation,
        "A read that begins after an invalidation has returned gets nothing older: hits in Redis, loads, waits",
    ),
    (
        Promise::NearCopy,
        "A near copy is not served for longer than 1.25 s after an invalidation by another process, and not at all after one by its own",
    ),
    (
        Promise::Stale,
        "A stale answer is not older than an invalidation, nor than its stale window after an expiry",
    ),
    (Promise::Value, "An answer is the row of its key, and whole"),
    (Promise::Wait, "A caller is answered by its deadline, or within its wait"),
    (Promise::OneLoad, "One load for a key that all processes miss together, without faults"),
];
