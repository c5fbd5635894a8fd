//! Pauses between attempts.

use std::time::Duration;

use super::server_error::ServerError;
use bellwether::adapter::jitter;
use bellwether::store::StoreErrorKind;

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

    /// Those after attempts to connect that fail in this way.
    pub(super) fn of_attempts(error: &ServerError, longest: Duration) -> Self {
        let of_mistakes = longest.max(LONGEST_OF_MISTAKES);
        let is_mistake = error.kind() == StoreErrorKind::Misconfigured;
        Self::new(FIRST_PAUSE, if is_mistake { of_mistakes } else { longest })
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

/// The pause after the first attempt to connect that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The limit of the pauses after mistakes in the options or the credentials, which usually last until
/// a person corrects them. So one that is corrected is over within two seconds.
const LONGEST_OF_MISTAKES: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_differ_between_processes() {
        let pauses = RetryPauses::new(Duration::from_millis(50), Duration::from_millis(400));
        let millis =
            |jitter| [0, 1, 2, 3, 4, 5, u32::MAX].map(|n| pauses.jittered(n, jitter).as_millis());
        assert_eq!(millis(1.0), [0, 50, 100, 200, 400, 400, 400]);
        assert_eq!(millis(0.0), [0, 25, 50, 100, 200, 200, 200]);
    }

    #[test]
    fn a_mistake_is_tried_again_every_two_seconds_at_most_and_a_failure_sooner() {
        let longest = Duration::from_millis(400);
        let pause = |error| RetryPauses::of_attempts(&error, longest).after(u32::MAX);
        let mistake = pause(ServerError::misconfigured("a wrong certificate"));
        assert!((LONGEST_OF_MISTAKES / 2..=LONGEST_OF_MISTAKES).contains(&mistake));
        assert!((longest / 2..=longest).contains(&pause(io::Error::other("refused").into())));
    }
}
