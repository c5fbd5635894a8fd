//! The clock of stores and locks in the memory of a process.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::duration::micros;

/// A monotonic clock that counts from the Unix epoch, so that fencing tokens grow across restarts.
///
/// It is for stores and locks in the memory of one process. It reads the system's clock once, at
/// its start, and follows tokio's clock from then on. So paused time works in tests.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    started_micros: u64,
}

/// A moment by a [`Clock`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Moment {
    /// By tokio's clock.
    pub instant: Instant,
    /// Microseconds since the Unix epoch.
    pub micros: u64,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self { started: Instant::now(), started_micros: micros(since_epoch) }
    }

    /// The current time.
    pub fn now(&self) -> Moment {
        let instant = Instant::now();
        let since = micros(instant.saturating_duration_since(self.started));
        Moment { instant, micros: self.started_micros.saturating_add(since) }
    }
}

impl Moment {
    /// The instant this long after the moment. One that is too late to be represented becomes an
    /// instant a year later.
    pub fn after(&self, duration: Duration) -> Instant {
        later(self.instant, duration)
    }

    /// The time until an instant. Zero if that has passed.
    pub fn until(&self, then: Instant) -> Duration {
        then.saturating_duration_since(self.instant)
    }
}

/// The policy bounds durations, but a store accepts any: a sum that overflows becomes a year.
pub(super) fn later(from: Instant, duration: Duration) -> Instant {
    from.checked_add(duration).unwrap_or_else(|| from + A_YEAR)
}

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_counted_from_the_epoch_and_moves_with_the_clock() {
        let clock = Clock::start();
        let before = clock.now();
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(clock.now().micros - before.micros, 5_000);
        assert!(before.micros > 1_700_000_000_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn no_duration_is_too_long() {
        let now = Clock::start().now();
        assert_eq!(now.until(now.after(Duration::MAX)), A_YEAR);
        assert_eq!(now.until(now.instant - Duration::from_secs(1)), Duration::ZERO);
    }
}
