//! Pauses between attempts.

use std::time::Duration;

use bellwether::adapter::jitter;

/// Pauses that double from one failure to the next, up to a limit. Jitter shortens them by up to a
/// half, so that the processes of a fleet do not try again in step.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryPauses {
    first: Duration,
    longest: Duration,
}

impl RetryPauses {
    pub(super) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The pause after so many failures in a row. There is none after none.
    pub(super) fn after(self, failures: u32) -> Duration {
        self.jittered(failures, jitter())
    }

    fn jittered(self, failures: u32, jitter: f64) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let doubled = self.first.saturating_mul(1 << doublings.min(16));
        doubled.min(self.longest).mul_f64(0.5 + jitter / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_differ_between_processes() {
        let pauses = RetryPauses::new(Duration::from_millis(50), Duration::from_millis(400));
        let millis =
            |jitter| [0, 1, 2, 3, 4, 5, u32::MAX].map(|n| pauses.jittered(n, jitter).as_millis());
        assert_eq!(millis(1.0), [0, 50, 100, 200, 400, 400, 400]);
        assert_eq!(millis(0.0), [0, 25, 50, 100, 200, 200, 200]);
    }
}
