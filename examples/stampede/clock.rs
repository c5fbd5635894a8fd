//! The wall clock, which all processes of one machine share.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// How long until that instant; nothing if it has passed.
pub(crate) fn until(instant: u64) -> Duration {
    Duration::from_micros(instant.saturating_sub(now()))
}
