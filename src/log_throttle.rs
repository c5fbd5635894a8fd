//! The log throttle: at most one line per period about events that every request may cause.

use std::mem;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::locked::locked;

/// Admits one message per period, and counts those that it holds back.
///
/// Without it, an outage would log a line per request, when readers of the log have the least time.
#[derive(Debug)]
pub struct LogThrottle {
    period: Duration,
    /// When the last message has passed, and how many were held back since. Held for a few instructions.
    last: Mutex<(Option<Instant>, u64)>,
}

impl LogThrottle {
    /// A throttle that admits one message per period, and the first one at once.
    pub const fn once_per(period: Duration) -> Self {
        Self { period, last: Mutex::new((None, 0)) }
    }

    /// `Some` if a message may pass now, with the number of messages held back since the last one.
    ///
    /// By the system's monotonic clock. The clock of the runtime can be paused by tests, but logs are for
    /// people.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let (last, held_back) = &mut *locked(&self.last);
        if last.is_some_and(|last| now.saturating_duration_since(last) < self.period) {
            *held_back += 1;
            return None;
        }
        *last = Some(now);
        Some(mem::take(held_back))
    }
}

/// Logs at level `warn`, with a target, at most every ten seconds at one place in the code, with the
/// number of lines that were held back as the field `held_back`. It expands to `tracing::warn!`, so the crate
/// that uses it depends on `tracing`.
#[macro_export]
macro_rules! warn_throttled {
    (target: $target:literal, $($message:tt)+) => {{
        static LOG: $crate::adapter::LogThrottle =
            $crate::adapter::LogThrottle::once_per(std::time::Duration::from_secs(10));
        if let Some(held_back) = LOG.admit() {
            tracing::warn!(target: $target, held_back, $($message)+);
        }
    }};
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    #[test]
    fn the_first_message_is_admitted_at_once() {
        static STATIC: LogThrottle = LogThrottle::once_per(Duration::MAX);
        assert_eq!(STATIC.admit(), Some(0));
        assert_eq!(STATIC.admit(), None);
    }

    #[test]
    fn a_message_says_how_many_were_held_back_since_the_last_one() {
        let (throttle, start) = (LogThrottle::once_per(PERIOD), Instant::now());
        let millis = Duration::from_millis;
        assert_eq!(throttle.admit_at(start), Some(0));
        for after in [millis(0), millis(1), PERIOD - millis(1)] {
            assert_eq!(throttle.admit_at(start + after), None, "after {after:?}");
        }
        assert_eq!(throttle.admit_at(start + PERIOD), Some(3));
        assert_eq!(throttle.admit_at(start + 3 * PERIOD), Some(0));
    }

    #[test]
    fn one_of_many_concurrent_messages_is_admitted_and_the_others_are_counted() {
        let (throttle, start) = (LogThrottle::once_per(PERIOD), Instant::now());
        let admitted: usize = thread::scope(|scope| {
            let admitted = || (0..1000).filter_map(|_| throttle.admit_at(start)).count();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(admitted)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 1);
        assert_eq!(throttle.admit_at(start + PERIOD), Some(7_999));
    }
}
