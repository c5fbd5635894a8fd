//! The messages between a test and its workers.

use std::net::SocketAddr;
use std::ops::AddAssign;

use bellwether::CacheError;
use bellwether::stats::{CacheStats, WakeStats};
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, How};
use crate::fared::Fared;

/// A command to a worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Command {
    /// Let so many more callers ask for a key; done when each has been polled once.
    Begin { burst: u64, key: u64, callers: usize },
    /// Drop these callers of a burst, answered or not.
    Leave { burst: u64, callers: Vec<usize> },
    /// Await the callers of a burst that are still there.
    End { burst: u64 },
    /// Let callers come and go: each is dropped after so many microseconds, or answered before.
    Waver { key: u64, stays: Vec<u64> },
    /// Invalidate a key.
    Invalidate { key: u64 },
    /// Let callers ask again and again.
    Storm(Storm),
    /// Play at random.
    Play(Game),
    /// Play at random, with tags.
    PlayTags(TagGame),
    /// Ask for rows with tags, or change them.
    Tags(TagOrder),
    /// Report its state.
    Report,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Reply {
    Answers(Vec<Answer>),
    Fared(Fared),
    Done,
    /// What could not be done, and why.
    Failed(String),
    History(Vec<Event>),
    Report(Report),
}

/// How a worker is set up.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Setup {
    /// The Redis.
    pub(crate) url: String,
    pub(crate) database: SocketAddr,
    pub(crate) resp2: bool,
    /// Copies what it reads.
    pub(crate) near: bool,
    /// How long one operation of the store may take.
    pub(crate) timeout_ms: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) stale_if_error_ms: u64,
    pub(crate) lease_ms: u64,
    /// A fixed pause of waiters, which replaces the default.
    pub(crate) pause_ms: Option<u64>,
    /// An abandoned load is cancelled.
    pub(crate) cancels: bool,
}

/// The namespace of all fleets; each has a server of its own.
pub(crate) const NAMESPACE: &str = "fleet";

/// The state of a worker.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    pub(crate) pushes: u64,
    pub(crate) connects: u64,
    pub(crate) receives_pushes: bool,
    /// For how many keys it is loading or asking.
    pub(crate) in_flight: usize,
    /// How many failed invalidations are to be repeated.
    pub(crate) kept: u64,
    pub(crate) sums: Sums,
}

/// What ended the waits of some workers, in sum.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Sums {
    pub(crate) pushes: u64,
    pub(crate) pauses: u64,
    pub(crate) missed_pushes: u64,
}

impl From<CacheStats> for Sums {
    fn from(stats: CacheStats) -> Self {
        let WakeStats { push: pushes, pause: pauses, missed_push: missed_pushes, .. } = stats.wakes;
        Self { pushes, pauses, missed_pushes }
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.pushes += other.pushes;
        self.pauses += other.pauses;
        self.missed_pushes += other.missed_pushes;
    }
}

/// How a worker plays: see [`game`](crate::game).
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Game {
    pub(crate) seed: u64,
    pub(crate) rounds: u64,
    pub(crate) tracks: u64,
    pub(crate) keys: u64,
}

/// One operation, as its caller saw it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Event {
    pub(crate) key: u64,
    /// Taken before the call, by the [clock](bellwether_testkit::clock).
    pub(crate) began: u64,
    /// Taken after its return.
    pub(crate) ended: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum What {
    /// The source had this version, or a later one, when the invalidation began.
    Invalidated {
        version: u64,
    },
    /// It may have been done, or may yet be done: it promises nothing.
    InvalidationFailed,
    /// The same, and its process repeats it. It binds the reads of that process.
    InvalidationKept {
        version: u64,
    },
    Read {
        version: u64,
        how: How,
    },
    ReadFailed(String),
}

impl What {
    /// What has become of an invalidation that began when the source had this version.
    pub(crate) fn of_change(done: Result<(), CacheError>, version: u64) -> Self {
        match done {
            Ok(()) => Self::Invalidated { version },
            Err(error) if error.is_pending() => Self::InvalidationKept { version },
            Err(_) => Self::InvalidationFailed,
        }
    }
}

/// The callers: how many, how often and for how long.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Storm {
    pub(crate) key: u64,
    pub(crate) callers: usize,
    pub(crate) millis: u64,
    /// How long a caller pauses between an answer and its next call.
    pub(crate) rest_millis: u64,
}

/// How a worker plays.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct TagGame {
    pub(crate) seed: u64,
    pub(crate) rounds: u64,
    pub(crate) tracks: u64,
    pub(crate) of: TagUse,
    /// Over a store that does not notice invalidations during loads.
    pub(crate) is_blind: bool,
}

/// Where tags come from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum TagUse {
    OfRequest,
    OfAnswer,
}

/// An order about rows with tags.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum TagOrder {
    /// Callers ask for rows.
    Ask(RowCallers),
    /// Each of the first rows is changed, and its own tag invalidated.
    InvalidateEach { rows: u64 },
    /// The tag that all rows have is invalidated.
    InvalidateAll,
    /// It is expired, over so many milliseconds.
    ExpireAll { over_ms: u64 },
}

/// Callers of one process, and the rows for which they ask: each for a part of them, one by one.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct RowCallers {
    pub(crate) callers: u64,
    pub(crate) rows: u64,
    /// How many callers ask for each row.
    pub(crate) per_row: u64,
}
