//! What the coordinator and its processes say to each other, one JSON object a line.

use serde::{Deserialize, Serialize};

use crate::ways::Way;

/// The first line to a process: what to connect to. It goes by stdin because a command line is for
/// everyone to read.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Tells this run from all others, in the database and in Redis.
    pub(crate) run: String,
    pub(crate) database_url: String,
    pub(crate) redis_url: Option<String>,
    pub(crate) load_ms: u64,
    pub(crate) ways: Vec<Way>,
}

/// Every further line to a process: one burst.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) way: Way,
    pub(crate) round: u32,
    /// When to begin, so that all processes do so together.
    pub(crate) start: u64,
    /// What each caller asks for.
    pub(crate) skus: Vec<u32>,
}

/// Every line from a process.
#[derive(Serialize, Deserialize)]
pub(crate) enum Said {
    /// Connected, and waiting for orders.
    Ready,
    /// What came of an order.
    Done(Report),
    /// This process cannot go on.
    Failed(String),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) answers: Vec<Answer>,
    pub(crate) loads: Vec<Load>,
}

/// What one caller got.
#[derive(Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) sku: u32,
    pub(crate) at: u64,
    pub(crate) latency_us: u64,
    /// This caller's question was the one that was loaded.
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

/// One question of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) sku: u32,
    pub(crate) round: u32,
    pub(crate) caller: u32,
}
