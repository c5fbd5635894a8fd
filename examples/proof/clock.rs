//! The clock by which all processes of this machine tell what was before what.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::locked::locked;

/// Microseconds of the system's monotonic clock, which all processes share and which is never set.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}

/// Seconds as microseconds.
pub(crate) const fn seconds(count: u64) -> u64 {
    count * 1_000_000
}

/// For how long this process did not run, because it was stopped or the machine was busy.
#[derive(Debug)]
pub(crate) struct Stalls(Mutex<Stalled>);

#[derive(Clone, Copy, Debug)]
struct Stalled {
    /// In all, up to `seen`.
    total: u64,
    /// When it ran last.
    seen: u64,
}

impl Stalls {
    /// Begins to measure, until no other handle is left.
    pub(crate) fn watch() -> Arc<Self> {
        let stalls = Arc::new(Self(Mutex::new(Stalled { total: 0, seen: now() })));
        let weak = Arc::downgrade(&stalls);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                let Some(stalls) = weak.upgrade() else { return };
                let mut stalled = locked(&stalls.0);
                *stalled = stalled.until(now());
            }
        });
        stalls
    }

    /// In microseconds, since it is measured. It never falls.
    pub(crate) fn total(&self) -> u64 {
        let stalled = locked(&self.0);
        // After a stall, others may run before the task that measures.
        stalled.until(now()).total
    }
}

impl Stalled {
    fn until(self, now: u64) -> Self {
        let ran = 2 * TICK.as_micros() as u64;
        Self { total: self.total + now.saturating_sub(self.seen + ran), seen: now }
    }
}

const TICK: Duration = Duration::from_millis(10);
