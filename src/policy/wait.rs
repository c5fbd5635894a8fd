//! `Wait`: how long a waiter waits, and what it does then; and `Backoff`: how long it sleeps before it
//! reads the store again.

use std::time::Duration;

use super::failing::Doubling;

/// How long a caller waits for the load of another caller, and what it does then.
///
/// The caller whose own load runs waits for it up to the
/// [limit on one load](crate::service::ReadThroughLayerBuilder::load_timeout), unless the caller has a
/// [deadline](crate::service::KeyRequest::deadline). No caller waits when the value is there.
///
/// ```
/// use std::time::Duration;
/// use bellwether::Wait;
///
/// let patient = Wait::at_most(Duration::from_secs(5));
/// let brisk = Wait::tries(3, Duration::from_millis(50)).then_load();
/// let hasty = Wait::fail_fast();
/// # let _ = (patient, brisk, hasty);
/// ```
///
/// The default is [`Wait::for_load`], then an error: a load under way is no failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wait {
    /// As long as a load may take, if there is none.
    limit: Option<Duration>,
    pub(crate) interval: Option<Duration>,
    pub(crate) then: AfterWait,
}

impl Wait {
    /// Waits for as long as a load may take: the [limit on one
    /// load](crate::service::ReadThroughLayerBuilder::load_timeout), 30 s by default, and a second more for the
    /// outcome to arrive. If a load runs in this process by then, the caller waits for its end,
    /// which that limit bounds, unless there is a stale answer. The default.
    pub fn for_load() -> Self {
        Self::default()
    }

    /// Never waits for the load of another caller: gives up when the store says that one runs.
    ///
    /// The caller waits for that answer of the store, which a failing store gives after its
    /// timeout. A [deadline](crate::service::KeyRequest::deadline) bounds this as well.
    pub fn fail_fast() -> Self {
        Self::at_most(Duration::ZERO)
    }

    /// Reads the store `tries` times, `interval` apart, and gives up then. A push message of the
    /// store wakes the caller in between. An interval below 1 ms counts as 1 ms.
    pub fn tries(tries: u32, interval: Duration) -> Self {
        let interval = interval.max(Duration::from_millis(1));
        Self { interval: Some(interval), ..Self::at_most(interval.saturating_mul(tries)) }
    }

    /// Waits this long at most, including the time that the store takes to answer.
    pub fn at_most(limit: Duration) -> Self {
        Self { limit: Some(limit), ..Self::for_load() }
    }

    /// After giving up, calls the loader itself, without a lease and without storing the answer.
    ///
    /// Callers of one process that give up on a key share such a load, so there is at most one at
    /// a time per process and key.
    #[must_use]
    pub fn then_load(self) -> Self {
        Self { then: AfterWait::Load, ..self }
    }

    /// How long it waits, if a load may take `load`.
    pub(crate) fn max_wait(&self, load: Duration) -> Duration {
        self.limit.unwrap_or(load)
    }

    pub(crate) fn is_for_load(&self) -> bool {
        self.limit.is_none()
    }

    pub(crate) fn is_fail_fast(&self) -> bool {
        self.limit == Some(Duration::ZERO)
    }
}

/// What a caller does when its wait has run out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum AfterWait {
    #[default]
    Fail,
    Load,
}

/// The delays of one wait.
///
/// Where the store pushes changes, a delay only insures against a lost message, and every earlier
/// read is a wasted command: the delays are nearly as long as the promise allows, and become a share of
/// the time waited. Where it does not, they double from short to long with full jitter (Brooker, "Exponential Backoff And Jitter",
/// AWS Architecture Blog, 2015).
#[derive(Clone, Debug)]
pub struct Backoff {
    delays: Doubling,
    /// Between which shares of its length each delay is.
    jitter: [f64; 2],
    taken: u32,
    /// Whether they grow with the time waited.
    grows: bool,
}

impl Backoff {
    /// Delays of the same length.
    pub fn fixed(interval: Duration) -> Self {
        let first = interval.min(LONGEST_LEASE);
        let delays = Doubling { first, longest: first };
        Self { delays, jitter: [1.0, 1.0], taken: 0, grows: false }
    }

    /// Delays between 5 ms and 250 ms. If the waiter is `told` of changes, a delay only insures
    /// against a lost message: it costs 250 ms at most in the first second, and then a fifth of the wait.
    pub fn backing_off(told: bool) -> Self {
        let (first, jitter) = if told { (LONGEST, [0.7, 0.9]) } else { (SHORTEST, [0.0, 1.0]) };
        Self { delays: Doubling { first, longest: LONGEST }, jitter, taken: 0, grows: told }
    }

    /// The next delay, by a random number from 0 to 1, after a wait of `waited` without a sign. It never
    /// goes past the end of a lease that has `lease_left`: then the first claim gets the key.
    pub fn next(&mut self, random: f64, lease_left: Duration, waited: Duration) -> Duration {
        let [least, most] = self.jitter;
        let share = least + (most - least) * random;
        let length = self.delays.after(self.taken);
        // With the delay itself, a fourth is a fifth of the wait.
        let grown = if self.grows { waited.mul_f64(GROWN - random / 40.0) } else { Duration::ZERO };
        let delay = length.mul_f64(share).max(self.delays.first / 5).max(grown);
        self.taken = self.taken.saturating_add(1);
        delay.min(lease_left.max(JUST_AFTER))
    }
}

const SHORTEST: Duration = Duration::from_millis(25);

/// A lost message costs no more than this, including the request after the delay.
const LONGEST: Duration = Duration::from_millis(250);

/// How long a delay is at most, as a share of the time waited before it.
const GROWN: f64 = 0.25;

/// No lease is longer, so no longer delay is of use.
const LONGEST_LEASE: Duration = Duration::from_secs(60 * 60);

/// How long after the end of a lease a waiter asks at the earliest. Stores count in milliseconds,
/// and a waiter that asks in the last one would have to ask twice.
const JUST_AFTER: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn delays_double_up_to_the_longest_without_push_messages() {
        let mut backoff = Backoff::backing_off(false);
        let taken: Vec<_> = (0..6).map(|_| backoff.next(1.0, HOUR, HOUR).as_millis()).collect();
        assert_eq!(taken, [25, 50, 100, 200, 250, 250]);
    }

    #[test]
    fn a_delay_is_never_zero() {
        let mut backoff = Backoff::backing_off(false);
        assert!((0..100).all(|_| backoff.next(0.0, HOUR, HOUR) >= Duration::from_millis(5)));
    }

    #[test]
    fn insurance_stays_within_the_promise_for_a_lost_message() {
        let mut backoff = Backoff::backing_off(true);
        for random in [0.0, 0.5, 1.0] {
            let delay = backoff.next(random, HOUR, Duration::from_millis(700)).as_millis();
            assert!((175..=225).contains(&delay), "{delay} ms");
        }
    }

    #[test]
    fn insurance_becomes_a_fifth_of_the_wait() {
        let mut backoff = Backoff::backing_off(true);
        for random in [0.0, 0.5, 1.0] {
            let (waited, hour) = (HOUR.as_secs_f64(), HOUR * 2);
            let delay = backoff.next(random, hour, HOUR).as_secs_f64();
            let share = delay / (waited + delay);
            assert!((0.18..=0.2).contains(&share), "{share}");
        }
    }

    #[test]
    fn no_delay_goes_past_the_lease() {
        let left = Duration::from_millis(7);
        for mut backoff in [Backoff::fixed(HOUR), Backoff::backing_off(true)] {
            assert_eq!(backoff.next(1.0, left, HOUR), left);
        }
    }
}
