//! Durations as whole numbers, for wire formats and atomics.

use std::time::Duration;

/// Whole milliseconds. `u64::MAX` for longer durations.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whole microseconds. `u64::MAX` for more than 584,000 years.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Whole nanoseconds. `u64::MAX` for more than five centuries.
#[inline]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
