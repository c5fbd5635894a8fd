//! The answer to one caller.

use std::io;

use bellwether::{CacheStatus, Error, LoadLocation};
use bellwether_testkit::clock;
use serde::{Deserialize, Serialize};

/// The answer to one caller.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Answer {
    /// The version of the row, or the error.
    pub(crate) version: Result<u64, String>,
    pub(crate) how: How,
    /// When, by the [clock](bellwether_testkit::clock).
    pub(crate) at: u64,
}

/// How an answer came about.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(crate) enum How {
    Bypassed,
    CollapsedElsewhere,
    CollapsedHere,
    Failed,
    Hit,
    Led { stored: bool },
    Stale,
}

impl From<&CacheStatus> for How {
    fn from(status: &CacheStatus) -> Self {
        match status {
            CacheStatus::Hit { .. } => Self::Hit,
            CacheStatus::Stale { .. } => Self::Stale,
            CacheStatus::Led { stored } => Self::Led { stored: *stored },
            CacheStatus::Collapsed { place, .. } => match place {
                LoadLocation::Remote => Self::CollapsedElsewhere,
                _ => Self::CollapsedHere,
            },
            CacheStatus::Bypass(_) => Self::Bypassed,
            _ => Self::Failed,
        }
    }
}

impl Answer {
    pub(crate) fn of(answer: (Result<u64, Error<io::Error>>, CacheStatus)) -> Self {
        let at = clock::now();
        Self { version: answer.0.map_err(|error| error.to_string()), how: How::from(&answer.1), at }
    }
}
