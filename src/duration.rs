//! Durations as whole numbers, where they leave this process or are kept in atomics.

use std::time::Duration;

/// Whole milliseconds; the largest number for what is longer.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whole microseconds; the largest number for what is longer than 584,000 years.
#[cfg(feature = "redis")]
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Whole nanoseconds; the largest number for what is longer than five centuries.
#[cfg(feature = "redis")]
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
