//! The clock by which all processes of this machine tell what was before what.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// For how long this process did not run, because it was stopped or the machine was busy.
#[derive(Debug)]
pub(crate) struct Stalls {
    /// In all, up to `seen`.
    total: AtomicU64,
    /// When it ran last.
    seen: AtomicU64,
}

impl Stalls {
    /// Begins to measure, until no other handle is left.
    pub(crate) fn watch() -> Arc<Self> {
        let stalls = Arc::new(Self { total: AtomicU64::new(0), seen: AtomicU64::new(now()) });
        let weak = Arc::downgrade(&stalls);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                let Some(stalls) = weak.upgrade() else { return };
                let late = stalls.late();
                stalls.total.fetch_add(late, Ordering::AcqRel);
                stalls.seen.store(now(), Ordering::Release);
            }
        });
        stalls
    }

    /// In microseconds, since it is measured.
    pub(crate) fn total(&self) -> u64 {
        // After a stall, others may run before the task that measures.
        let late = self.late();
        self.total.load(Ordering::Acquire) + late
    }

    fn late(&self) -> u64 {
        let ran = 2 * TICK.as_micros() as u64;
        now().saturating_sub(self.seen.load(Ordering::Acquire) + ran)
    }
}

const TICK: Duration = Duration::from_millis(10);
