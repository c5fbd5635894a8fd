//! Backoff: how long a waiter sleeps before it reads the store again.

use std::time::Duration;

/// The delays of one wait.
///
/// Where the store pushes changes, a delay only insures against a lost message, and every earlier read
/// is a wasted command: the delays are nearly as long as the promise allows. Where it does not, they
/// double from short to long with full jitter (Brooker, "Exponential Backoff And Jitter", AWS
/// Architecture Blog, 2015).
#[derive(Clone, Debug)]
pub struct Backoff {
    kind: Kind,
    taken: u32,
}

#[derive(Clone, Debug)]
enum Kind {
    Fixed(Duration),
    Insurance,
    BackOff,
}

impl Backoff {
    /// Pauses of the same length.
    pub fn fixed(interval: Duration) -> Self {
        Self { kind: Kind::Fixed(interval), taken: 0 }
    }

    /// Pauses between 5 ms and 250 ms. `told` says whether the waiter is told of changes, so that a
    /// pause only insures against a lost message.
    pub fn backing_off(told: bool) -> Self {
        let kind = if told { Kind::Insurance } else { Kind::BackOff };
        Self { kind, taken: 0 }
    }

    /// The next pause, by a draw from 0 to 1, and never past the end of a lease that has
    /// `lease_left`: then the key is free for the first claim.
    pub fn next(&mut self, draw: f64, lease_left: Duration) -> Duration {
        let pause = match self.kind {
            Kind::Fixed(interval) => interval,
            Kind::Insurance => LONGEST.mul_f64(0.7 + 0.2 * draw),
            Kind::BackOff => self.cap().mul_f64(draw).max(SHORTEST / 5),
        };
        self.taken = self.taken.saturating_add(1);
        pause.min(lease_left.max(JUST_AFTER))
    }

    fn cap(&self) -> Duration {
        SHORTEST.saturating_mul(2_u32.saturating_pow(self.taken)).min(LONGEST)
    }
}

const SHORTEST: Duration = Duration::from_millis(25);

/// A lost message costs no more than this, the question that follows the pause included.
const LONGEST: Duration = Duration::from_millis(250);

/// How long after the end of a lease a waiter asks at the earliest: stores count in milliseconds, and
/// a waiter that asks in the last one has to ask twice.
const JUST_AFTER: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn pauses_double_up_to_the_longest_where_nobody_tells() {
        let mut pauses = Backoff::backing_off(false);
        let taken: Vec<_> = (0..6).map(|_| pauses.next(1.0, HOUR).as_millis()).collect();
        assert_eq!(taken, [25, 50, 100, 200, 250, 250]);
    }

    #[test]
    fn a_pause_is_never_zero_however_the_draw_falls() {
        let mut pauses = Backoff::backing_off(false);
        assert!((0..100).all(|_| pauses.next(0.0, HOUR) >= Duration::from_millis(5)));
    }

    #[test]
    fn insurance_stays_within_the_promise_for_a_lost_message() {
        let mut pauses = Backoff::backing_off(true);
        for draw in [0.0, 0.5, 1.0] {
            let pause = pauses.next(draw, HOUR).as_millis();
            assert!((175..=225).contains(&pause), "{pause} ms");
        }
    }

    #[test]
    fn no_pause_goes_past_the_lease() {
        let left = Duration::from_millis(7);
        for mut pauses in [Backoff::fixed(HOUR), Backoff::backing_off(true)] {
            assert_eq!(pauses.next(1.0, left), left);
        }
    }
}
