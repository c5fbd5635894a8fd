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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Moment {
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
        Moment { micros: self.started_micros.saturating_add(micros(self.started.elapsed())) }
    }
}

impl Moment {
    /// The moment this long after it. One that is too late to be represented becomes the last one.
    pub fn after(self, duration: Duration) -> Self {
        Self { micros: self.micros.saturating_add(micros(duration)) }
    }

    /// The time until another moment. Zero if that has passed.
    pub fn until(self, then: Self) -> Duration {
        Duration::from_micros(then.micros.saturating_sub(self.micros))
    }
}

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
        assert!(now.until(now.after(Duration::MAX)) > Duration::from_secs(365 * 24 * 60 * 60));
        assert_eq!(now.after(Duration::from_secs(1)).until(now), Duration::ZERO);
    }
}
