//! Instants: until when a lease can be depended on, and waits for an instant.

use std::future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How long after a request a lease that was granted to it is sure to hold: a clock may run 1 % faster
/// than another, and servers count in whole milliseconds.
pub(super) fn dependable(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}

/// Until when a lease that was asked for at an instant holds for certain.
pub(super) fn valid_until(asked_at: Instant, lease: Duration) -> Instant {
    asked_at + dependable(lease)
}

/// The instant after a duration, of which at most a year counts: clocks cannot represent any
/// instant.
pub(super) fn far(from: Instant, duration: Duration) -> Instant {
    from + duration.min(Duration::from_secs(366 * 24 * 60 * 60))
}

/// Waits for an instant, or for ever without one.
pub(super) async fn reached(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => future::pending().await,
    }
}

/// Pauses that double from one failure to the next, up to a second.
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) fn from(first: Duration) -> Self {
        Self(first)
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Duration::from_secs(1));
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundredth_and_two_milliseconds_are_not_depended_on() {
        assert_eq!(dependable(Duration::from_secs(10)), Duration::from_millis(9_898));
        assert_eq!(dependable(Duration::from_millis(1)), Duration::ZERO);
    }
}
