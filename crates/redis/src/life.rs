//! The life of an entry by the server's time.

use std::time::Duration;

use super::envelope::Stamp;
use bellwether::Lifetimes;
use bellwether::adapter::micros;
use bellwether_redis_client::ServerTime;

/// How far two clocks may drift apart during one load, in us. The scripts have the same value.
pub(super) const DRIFT: u64 = 1_000_000;

/// Whether an entry may be invalid because the server's clock was set back: its life may be over, or
/// may not have begun. If the clock was not set, this holds only at the very end of a life.
pub(super) fn may_be_over(lifetimes: Lifetimes, stamp: Stamp, now: Option<ServerTime>) -> bool {
    now.is_none_or(|now| {
        stamp.stored_at > now.earliest.saturating_add(DRIFT)
            || now.latest.saturating_sub(stamp.stored_at) >= micros(lifetimes.life())
    })
}

/// What is left of a life at a time of the server, or none if it is over. The life of an entry from a
/// later time has not begun: the server's clock was set back. `lookup.lua` goes by the same rules.
pub(super) fn life_left(lifetimes: Lifetimes, stamp: Stamp, now: u64) -> Option<Duration> {
    if stamp.stored_at > now.saturating_add(DRIFT) {
        return None;
    }
    let age = now.saturating_sub(stamp.stored_at);
    let left = micros(lifetimes.life()).saturating_sub(age);
    (left > 0).then(|| Duration::from_micros(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_ends_by_the_time_of_the_server_and_is_never_longer_than_it_was() {
        let lifetimes = Lifetimes::fresh_for(Duration::from_secs(2))
            .stale_while_revalidate(Duration::from_secs(1));
        let stored_at = 1_000_000_000;
        let stamp = Stamp { fence: 1, stored_at, is_expired: false };
        let left = |now| life_left(lifetimes, stamp, now).map(|left| left.as_micros());
        assert_eq!(left(stored_at), Some(3_000_000));
        assert_eq!(left(stored_at + 2_999_999), Some(1));
        assert_eq!(left(stored_at + 3_000_000), None);
        assert_eq!(left(stored_at - DRIFT), Some(3_000_000));
        assert_eq!(left(stored_at - DRIFT - 1), None);
        assert_eq!(left(u64::MAX), None);
    }
}
