//! What of a lease can be depended on.

use std::time::Duration;

/// How long after a request a lease that was granted to it is sure to hold: a clock may run 1 % faster
/// than another, and servers count in whole milliseconds.
pub(super) fn dependable(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
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
