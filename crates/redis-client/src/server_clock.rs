//! An estimate of the server's clock.
//!
//! Some replies carry the server's time. It was read between sending the command and receiving the
//! reply. The estimate keeps these two bounds, moves them on by the local monotonic clock, and
//! widens them slowly, because two clocks drift apart.
//!
//! A server's clock can be set. A new reply that contradicts the bounds replaces them, so an
//! estimate is wrong only until the next reply. Decisions that use the estimate have to tolerate
//! that.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use bellwether::adapter::{locked, micros};

/// An estimate of the server's time, from replies that carry it.
#[derive(Debug, Default)]
pub struct ServerClock {
    /// The bounds of the server's time at a local moment. Held for a few instructions, never across
    /// an `.await`.
    bounds: Mutex<Option<(LocalMoment, ServerTime)>>,
}

/// What is known of the server's time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTime {
    /// It is not earlier than this.
    pub earliest: u64,
    /// It is not later than this.
    pub latest: u64,
}

/// A moment by both clocks of this machine. The monotonic one stands still while the machine is
/// suspended, and the wall clock does not.
#[derive(Clone, Copy, Debug)]
struct LocalMoment {
    monotonic: Instant,
    wall: SystemTime,
}

impl ServerClock {
    /// Notes that the server's time was `server_us`, in microseconds since the Unix epoch, at some
    /// moment from `asked_at` until now.
    pub fn note(&self, asked_at: Instant, server_us: u64) {
        self.note_at(asked_at, server_us, LocalMoment::now());
    }

    /// The server's time now. `None` before the first reply with the time, and if this machine was
    /// suspended or its own clock was set since then.
    pub fn now(&self) -> Option<ServerTime> {
        self.at(LocalMoment::now())
    }

    fn note_at(&self, asked_at: Instant, server_us: u64, received_at: LocalMoment) {
        let under_way = micros(received_at.monotonic.saturating_duration_since(asked_at));
        let latest = server_us.saturating_add(under_way);
        let reported = ServerTime { earliest: server_us, latest };
        let mut bounds = locked(&self.bounds);
        let known = estimate(*bounds, received_at);
        let time = known.and_then(|known| known.and(reported)).unwrap_or(reported);
        *bounds = Some((received_at, time));
    }

    fn at(&self, local: LocalMoment) -> Option<ServerTime> {
        estimate(*locked(&self.bounds), local)
    }
}

impl ServerTime {
    /// What both say. None if they contradict each other.
    fn and(self, other: Self) -> Option<Self> {
        let earliest = self.earliest.max(other.earliest);
        let latest = self.latest.min(other.latest);
        (earliest <= latest).then_some(Self { earliest, latest })
    }
}

/// The bounds at a later moment. None if it is unknown how much later that is.
fn estimate(bounds: Option<(LocalMoment, ServerTime)>, local: LocalMoment) -> Option<ServerTime> {
    let (at, time) = bounds?;
    let passed = local.passed_since(&at)?;
    let drift = passed / u64::from(DRIFT);
    let earliest = time.earliest.saturating_add(passed - drift);
    let latest = time.latest.saturating_add(passed.saturating_add(drift));
    Some(ServerTime { earliest, latest })
}

impl LocalMoment {
    fn now() -> Self {
        #[cfg(feature = "simulated-network")]
        let wall = super::simulated::WALL_CLOCK.get().unwrap_or_else(SystemTime::now);
        #[cfg(not(feature = "simulated-network"))]
        let wall = SystemTime::now();
        Self { monotonic: Instant::now(), wall }
    }

    /// How many microseconds have passed, if both local clocks agree.
    fn passed_since(&self, earlier: &Self) -> Option<u64> {
        let passed = self.monotonic.saturating_duration_since(earlier.monotonic);
        let by_wall = self.wall.duration_since(earlier.wall).unwrap_or_default();
        let agree = by_wall.abs_diff(passed) <= DISAGREEMENT + passed / DRIFT;
        agree.then(|| micros(passed))
    }
}

/// Two clocks drift apart by at most one part in this many. Oscillators differ by 0.01 %, and a
/// clock that is slewed differs by 0.05 %.
const DRIFT: u32 = 1000;

/// The maximum difference of two clocks of one machine about the time that has passed, beyond their
/// drift. More means a suspension, or a clock that was set.
const DISAGREEMENT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    const SERVER: u64 = 1_700_000_000_000_000;
    const SECOND: u64 = 1_000_000;

    /// A moment this many milliseconds after another one.
    fn after(local: LocalMoment, millis: u64) -> LocalMoment {
        let passed = Duration::from_millis(millis);
        LocalMoment { monotonic: local.monotonic + passed, wall: local.wall + passed }
    }

    fn time(range: RangeInclusive<u64>) -> ServerTime {
        ServerTime { earliest: *range.start(), latest: *range.end() }
    }

    fn note(clock: &ServerClock, asked_at: LocalMoment, server_us: u64, received_at: LocalMoment) {
        clock.note_at(asked_at.monotonic, server_us, received_at);
    }

    #[test]
    fn nothing_is_known_before_a_reply_has_told_it() {
        assert_eq!(ServerClock::default().now(), None);
    }

    #[test]
    fn the_time_was_read_between_sending_and_receiving() {
        let clock = ServerClock::default();
        let asked_at = LocalMoment::now();
        let received_at = after(asked_at, 3);
        note(&clock, asked_at, SERVER, received_at);
        assert_eq!(clock.at(received_at), Some(time(SERVER..=SERVER + 3000)));
    }

    #[test]
    fn bounds_move_on_and_widen_with_the_drift() {
        let clock = ServerClock::default();
        let start = LocalMoment::now();
        note(&clock, start, SERVER, start);
        let now = clock.at(after(start, 10_000)).expect("it is known");
        assert_eq!(now, time(SERVER + 10 * SECOND - 10_000..=SERVER + 10 * SECOND + 10_000));
    }

    #[test]
    fn a_slow_reply_leaves_tight_bounds_as_they_are() {
        let clock = ServerClock::default();
        let start = LocalMoment::now();
        note(&clock, start, SERVER, start);
        note(&clock, start, SERVER + 100_000, after(start, 200));
        let now = clock.at(after(start, 200)).expect("it is known");
        assert_eq!(now, time(SERVER + 199_800..=SERVER + 200_200));
    }

    #[test]
    fn a_server_whose_clock_was_set_is_believed_at_once() {
        let clock = ServerClock::default();
        let start = LocalMoment::now();
        note(&clock, start, SERVER, start);
        for set in [SERVER + 3600 * SECOND, SERVER - 3600 * SECOND] {
            note(&clock, start, set, after(start, 1));
            assert_eq!(clock.at(after(start, 1)), Some(time(set..=set + 1000)));
        }
    }

    #[test]
    fn nothing_is_known_after_the_machine_was_suspended_until_a_reply_tells_it() {
        let clock = ServerClock::default();
        let start = LocalMoment::now();
        note(&clock, start, SERVER, start);
        let woken = LocalMoment { wall: start.wall + Duration::from_secs(60), ..after(start, 1) };
        assert_eq!(clock.at(woken), None);
        note(&clock, woken, SERVER + 60 * SECOND, woken);
        let woken_at = SERVER + 60 * SECOND;
        assert_eq!(clock.at(woken), Some(time(woken_at..=woken_at)));
    }
}
