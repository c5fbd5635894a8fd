//! The messages between the coordinator and its processes, one JSON object per line.

use serde::{Deserialize, Serialize};

use crate::ways::Way;

/// The first line to a process: what to connect to. It goes to stdin because other users of the
/// machine can read a command line.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The name of this run, in the database and in Redis.
    pub(crate) run: String,
    pub(crate) database_url: String,
    pub(crate) redis_url: Option<String>,
    pub(crate) load_ms: u64,
    /// To the database, of this process.
    pub(crate) connections: u32,
    pub(crate) ways: Vec<Way>,
}

/// Every further line to a process: one burst.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) way: Way,
    pub(crate) round: u32,
    /// When to start, the same instant for all processes.
    pub(crate) start: u64,
    /// What each caller asks for.
    pub(crate) skus: Vec<u32>,
}

/// Every line from a process.
#[derive(Serialize, Deserialize)]
pub(crate) enum Said {
    /// Connected, and waiting for orders.
    Ready,
    /// The result of an order.
    Done(Report),
    /// This process cannot go on.
    Failed(String),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) answers: Vec<Answer>,
    pub(crate) loads: Vec<Load>,
}

/// The answer to one caller.
#[derive(Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) sku: u32,
    pub(crate) at: u64,
    pub(crate) latency_us: u64,
    /// Whether this caller's request was loaded.
    pub(crate) loaded: bool,
    pub(crate) fault: Option<String>,
}

/// One call of the loader.
#[derive(Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) ask: Ask,
    pub(crate) started: u64,
    pub(crate) ended: u64,
}

/// One request of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) sku: u32,
    pub(crate) round: u32,
    pub(crate) caller: u32,
}
