//! What a test tells its workers, and what they reply.

use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Setup {
    /// Of the Redis.
    pub(crate) url: String,
    /// The spans up to this level are recorded.
    pub(crate) level: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Command {
    /// Lets callers ask, each in the span of a request. The reply comes when each has been polled.
    Ask { callers: usize },
    /// Waits until this many loads have begun here.
    Loading { loads: usize },
    /// Waits until another process has refused the lease.
    Waiting,
    /// Lets a load end.
    LetGo,
    /// What all callers were answered.
    Answers,
    /// Makes the entry stale.
    Expire,
    /// Waits until this many loads in the background have ended.
    Refreshed { refreshes: u64 },
    /// Waits until this many spans have ended, and replies with all.
    Spans { ended: usize },
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Reply {
    Done,
    Answers(Vec<String>),
    Spans(Vec<EndedSpan>),
}

/// A span as it is exported.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct EndedSpan {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) span: String,
    /// Nothing, if it is the root of its trace.
    pub(crate) parent: Option<String>,
    /// The trace and the span of each link.
    pub(crate) links: Vec<(String, String)>,
    /// How many events and attributes it has.
    pub(crate) size: (usize, usize),
}
