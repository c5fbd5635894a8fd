//! The log throttle: at most one line per period about events that every request may cause.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Admits one message per period, and counts those that it holds back.
///
/// Without it, an outage would log a line per request, when readers of the log have the least time.
#[derive(Debug)]
pub struct LogThrottle {
    period_ms: u64,
    /// When the next message may pass, in milliseconds since this process began to log.
    due: AtomicU64,
    /// How many messages were held back since the last one.
    held_back: AtomicU64,
}

impl LogThrottle {
    /// A throttle that admits one message per period, and the first one at once.
    pub const fn once_per(period: Duration) -> Self {
        Self {
            period_ms: period.as_millis() as u64,
            due: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
        }
    }

    /// `Some` if a message may pass now, with the number of messages held back since the last one.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(millis_of_process())
    }

    fn admit_at(&self, now: u64) -> Option<u64> {
        let due = self.due.load(Ordering::Relaxed);
        let next = now.saturating_add(self.period_ms);
        // One of several concurrent callers wins.
        let is_ours = now >= due
            && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_ours {
            self.held_back.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.held_back.swap(0, Ordering::Relaxed))
    }
}

/// By the system's monotonic clock. The clock of the runtime can be paused by tests, but logs are
/// for people.
fn millis_of_process() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let began = BEGAN.get_or_init(Instant::now);
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
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

    const PERIOD: u64 = 10_000;

    fn throttle() -> LogThrottle {
        LogThrottle::once_per(Duration::from_millis(PERIOD))
    }

    #[test]
    fn the_first_message_is_admitted_at_once() {
        static STATIC: LogThrottle = LogThrottle::once_per(Duration::from_secs(3600));
        assert_eq!(STATIC.admit(), Some(0));
        assert_eq!(STATIC.admit(), None);
    }

    #[test]
    fn a_message_says_how_many_were_held_back_since_the_last_one() {
        let throttle = throttle();
        assert_eq!(throttle.admit_at(5), Some(0));
        for now in [5, 6, 5 + PERIOD - 1] {
            assert_eq!(throttle.admit_at(now), None, "at {now}");
        }
        assert_eq!(throttle.admit_at(5 + PERIOD), Some(3));
        assert_eq!(throttle.admit_at(5 + 3 * PERIOD), Some(0));
    }

    #[test]
    fn one_of_many_concurrent_messages_is_admitted_and_the_others_are_counted() {
        let throttle = throttle();
        let admitted: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..1000).filter_map(|_| throttle.admit_at(1)).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 1);
        // The one that is admitted may be overtaken by some that it does not count any more.
        let later = throttle.admit_at(1 + PERIOD).unwrap();
        assert!(later <= 7_999, "{later}");
    }

    #[test]
    fn the_end_of_time_is_no_overflow() {
        let throttle = throttle();
        assert_eq!(throttle.admit_at(u64::MAX), Some(0));
    }
}
