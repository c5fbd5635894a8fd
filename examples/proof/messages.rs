//! What the main process and its workers send each other: lines of JSON.

use serde::{Deserialize, Serialize};

use crate::floors::Return;
use crate::late::Invalidation;
use crate::row::Versions;
use crate::tally::Tally;

/// What a worker is started with.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Setup {
    /// Its number, and how often it was started before.
    pub(crate) worker: u32,
    pub(crate) workers: usize,
    pub(crate) url: String,
    /// The database that records changes, if there is one.
    pub(crate) database: Option<String>,
    /// Where the main process listens, and the file of floors.
    pub(crate) socket: String,
    pub(crate) floors: String,
    pub(crate) seed: u64,
    /// How many reads of near copies it makes per second.
    pub(crate) near_rate: u64,
    /// Whether it leaves out some invalidations, so that there is a violation to find.
    pub(crate) plants_stale: bool,
    /// Whether faults are on when it starts.
    pub(crate) is_faulty: bool,
}

/// From a worker.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    /// It is connected to its store.
    Ready { worker: u32 },
    /// Asks the source.
    Ask { id: u64, ask: Ask },
    /// What it has done since it last said so.
    Tally(Box<Tally>),
    /// Invalidations that its reads have looked for since then, and how long after each the last old answer was.
    Late(Vec<(Invalidation, u64)>),
    /// A read that may have broken a promise.
    Suspect(Box<Suspect>),
    /// Its callers of a burst are answered.
    Burst { round: u64, errors: u64, bypassed: u64, stalled: u64 },
    /// It has ended its work.
    Ended,
}

/// A request to the source.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Ask {
    /// Reads rows, as a load does.
    Load { keys: Vec<u64> },
    /// Changes rows.
    Change { keys: Vec<u64> },
    /// Changes all rows of a group.
    ChangeGroup { group: u64 },
}

/// To a worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Order {
    /// The answer of the source: none if it fails.
    Answer { id: u64, rows: Option<Vec<Versions>> },
    /// To read the row of a burst at a moment, by so many callers.
    Burst { round: u64, at: u64, callers: usize },
    /// Whether faults are on.
    Faulty(bool),
    /// To end.
    End,
}

/// What a read may have broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) enum Promise {
    /// Nothing older than an invalidation that has returned.
    Invalidation,
    /// The same for a near copy, whose bound is a time for invalidations by others.
    NearCopy,
    /// The same for a stale answer, whose bound after an expiry is its stale window.
    Stale,
    /// The row of the key, and all of it.
    Value,
    /// Each answer comes within the bound of its caller.
    Wait,
    /// One load for a key that all miss.
    OneLoad,
}

/// A read that may have broken a promise, and how often the same was seen.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Suspect {
    pub(crate) promise: Promise,
    pub(crate) key: u64,
    pub(crate) tier: String,
    /// How the cache says that the answer came about, or its error.
    pub(crate) status: String,
    /// The store of a process that read, and when.
    pub(crate) member: usize,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// The version that was given, when its load began and ended, and where it ran.
    pub(crate) got: Versions,
    pub(crate) load: (u64, u64),
    pub(crate) loader: u32,
    /// The invalidations that had returned before, and that this version is older than.
    pub(crate) broken: Vec<Return>,
    /// Whether there may have been earlier ones.
    pub(crate) is_undecided: bool,
    pub(crate) detail: String,
}
