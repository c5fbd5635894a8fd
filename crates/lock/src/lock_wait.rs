//! `LockWait`: how long an attempt to lock waits.

use std::time::Duration;

/// How long [`Locks::lock`](super::Locks::lock) waits while another holder has the key.
///
/// ```
/// use std::time::Duration;
///
/// use bellwether_lock::LockWait;
///
/// let patient = LockWait::at_most(Duration::from_secs(60));
/// let brisk = LockWait::tries(3, Duration::from_millis(50));
/// let hasty = LockWait::fail_fast();
/// # let _ = (patient, brisk, hasty);
/// ```
///
/// The default is [`at_most`](Self::at_most) 5 s: longer than most work under a lock takes, and
/// shorter than most clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockWait {
    pub(super) limit: Duration,
    /// After the first try, with the interval between them.
    pub(super) tries: Option<(u32, Duration)>,
}

impl LockWait {
    /// Waits this long at most. The time that the lock server takes to answer counts.
    pub fn at_most(limit: Duration) -> Self {
        Self { limit, tries: None }
    }

    /// Tries once, and gives up if another holder has the key.
    pub fn fail_fast() -> Self {
        Self::at_most(Duration::ZERO)
    }

    /// Tries again up to `tries` times after the first try, once per interval, and gives up right
    /// after the last one. An interval below 1 ms counts as 1 ms.
    pub fn tries(tries: u32, interval: Duration) -> Self {
        let interval = interval.max(Duration::from_millis(1));
        Self { limit: interval.saturating_mul(tries), tries: Some((tries, interval)) }
    }
}

impl Default for LockWait {
    fn default() -> Self {
        Self::at_most(Duration::from_secs(5))
    }
}
