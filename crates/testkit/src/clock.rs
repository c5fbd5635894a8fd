//! The clock by which processes of one machine tell what was before what.
//!
//! It is the system's clock of the day: all processes of a machine read one and the same, to the
//! microsecond. The beginning of a call is recorded before it and its end after it, so a call that
//! by its records began after the end of another one did so. It can be set, so a test that depends
//! on it holds a [`Steady`] beside it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a time after 1970").as_micros() as u64
}

/// Checks that the clock is not set.
#[derive(Debug)]
pub struct Steady {
    since: Instant,
    /// The time of the clock at `since`, in us.
    offset: u64,
}

impl Steady {
    /// Watches from now on.
    pub fn begin() -> Self {
        let since = Instant::now();
        let offset = now();
        let mut steady = Self { since, offset };
        steady.offset = steady.measure();
        steady
    }

    /// Panics if the clock was set since this was last asked. A clock that is only slowed or
    /// hurried, by 500 us a second at most, still shows what was before what.
    pub fn check(&mut self) {
        let offset = self.measure();
        let moved = Duration::from_micros(offset.abs_diff(self.offset));
        assert!(moved < A_STEP, "the clock was set by {moved:?} meanwhile");
        self.offset = offset;
    }

    /// The clock's time at `since`, by the try that was disturbed least.
    fn measure(&self) -> u64 {
        let tries = (0..20).map(|_| {
            let before = self.since.elapsed();
            let shown = now();
            let after = self.since.elapsed();
            (after - before, shown - before.as_micros() as u64)
        });
        tries.min().expect("some tries").1
    }
}

/// More than a clock is slewed by in the seconds between two checks.
const A_STEP: Duration = Duration::from_millis(5);
