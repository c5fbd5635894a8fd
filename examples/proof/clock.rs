//! The clock by which all processes of this machine tell what was before what.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds of the system's monotonic clock, which all processes share and which is never set.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}

/// Seconds as microseconds.
pub(crate) const fn seconds(count: u64) -> u64 {
    count * 1_000_000
}

/// Measures for how long this process does not run, because it is stopped or the machine is busy. Ends when
/// that is not noted any more.
pub(crate) async fn watch_stalls(note: impl Fn(u64) -> bool) {
    const TICK: Duration = Duration::from_millis(10);
    let mut is_noted = true;
    while is_noted {
        let began = now();
        tokio::time::sleep(TICK).await;
        is_noted = note((now() - began).saturating_sub(2 * TICK.as_micros() as u64));
    }
}
