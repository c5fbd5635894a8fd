//! `LockStats`: what a set of locks has done.

use std::sync::Mutex;

use bellwether::adapter::locked;
use bellwether::stats::{Histogram, HistogramStats};
use tokio::time::Instant;

use super::error::{LockError, LockErrorKind};

/// What a set of locks and all its clones have done in this process. Made by
/// [`Locks::stats`](super::Locks::stats).
///
/// Counters only grow. Each attempt is counted once, when it ends.
///
/// # Metrics
/// For `bellwether::metrics` (feature `metrics` of `bellwether`), with names that begin with
/// `bellwether_`. The name that you pass is the value of `kind`. Keys are never labels.
///
/// | metric | type | labels | what it is |
/// |---|---|---|---|
/// | `lock_waits_total` | counter | `kind`, `result` | attempts that have ended: `acquired`, `busy`, `timed_out`, `failed`, `left` |
/// | `lock_wait_duration_seconds` | histogram | `kind` | how long attempts took |
/// | `lock_held` | gauge | `kind` | keys that this process holds |
/// | `lock_lost_total` | counter | `kind` | holds that were lost before their holder released them |
/// | `lock_renewals_total` | counter | `kind`, `result` | renewals of a hold: `renewed`, `failed` |
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LockStats {
    /// Attempts that got their key.
    pub acquired: u64,
    /// Attempts without a wait, while another holder had the key.
    pub busy: u64,
    /// Attempts whose wait ran out.
    pub timed_out: u64,
    /// Attempts that failed because the lock did, because of a shutdown, or without a runtime.
    pub failed: u64,
    /// Attempts that were dropped before they ended.
    pub left: u64,
    /// How long each attempt took, whatever came of it.
    pub wait_times: HistogramStats,
    /// Renewals of a hold.
    pub renewed: u64,
    /// Renewals that failed. They are repeated until the lease ends.
    pub renewals_failed: u64,
    /// Holds that were lost before their holder released them.
    pub lost: u64,
    /// How many keys this process holds right now, or has lost and not yet released.
    pub held: u64,
    /// How many keys this process holds, waits for, or is releasing, by all [`Locks`](super::Locks)
    /// over clones of this lock.
    pub keys: u64,
}

bellwether::metric_table! { LockStats, "kind":
    Counter "bellwether.lock.waits" "{attempt}" "Attempts to lock, by how they ended." = |it, to| {
        to.each("result", [
            ("acquired", it.acquired),
            ("busy", it.busy),
            ("timed_out", it.timed_out),
            ("failed", it.failed),
            ("left", it.left),
        ]);
    };
    Counter "bellwether.lock.lost" "{hold}" "Holds that ended before their release."
        = |it, to| to.one(it.lost);
    Counter "bellwether.lock.renewals" "{renewal}" "Renewals of holds."
        = |it, to| to.each("result", [("renewed", it.renewed), ("failed", it.renewals_failed)]);
    Gauge "bellwether.lock.held" "{key}" "Keys that this process holds." = |it, to| to.one(it.held);
    Histogram "bellwether.lock.wait.duration" "s" "How long attempts to lock took."
        = |it, to| to.one(it.wait_times);
}

/// Where a set of locks counts.
#[derive(Debug, Default)]
pub(super) struct LockCounters {
    /// All but `wait_times` and `keys`. Held to change or copy it, never across an `.await`.
    counted: Mutex<LockStats>,
    wait_times: Histogram,
}

impl LockCounters {
    /// An attempt begins.
    pub(super) fn attempt(&self) -> CountedAttempt<'_> {
        CountedAttempt { counters: self, began: Instant::now(), result: |stats| &mut stats.left }
    }

    /// Counts what happens.
    pub(super) fn note(&self, event: impl FnOnce(&mut LockStats)) {
        // A panic cannot leave it half changed: these are numbers.
        event(&mut locked(&self.counted));
    }

    pub(super) fn read(&self, keys: usize) -> LockStats {
        let mut stats = LockStats::default();
        self.note(|counted| stats = *counted);
        LockStats { wait_times: self.wait_times.read(), keys: keys as u64, ..stats }
    }
}

/// An attempt to get a key. Without an end, its caller has left.
pub(super) struct CountedAttempt<'a> {
    counters: &'a LockCounters,
    began: Instant,
    result: fn(&mut LockStats) -> &mut u64,
}

impl CountedAttempt<'_> {
    pub(super) fn end(mut self, error: Option<&LockError>) {
        self.result = match error.map(LockError::kind) {
            None => |stats| &mut stats.acquired,
            Some(LockErrorKind::Busy) => |stats| &mut stats.busy,
            Some(LockErrorKind::TimedOut) => |stats| &mut stats.timed_out,
            Some(_) => |stats| &mut stats.failed,
        };
    }
}

impl Drop for CountedAttempt<'_> {
    fn drop(&mut self) {
        self.counters.wait_times.note(self.began.elapsed());
        self.counters.note(|stats| *(self.result)(stats) += 1);
    }
}
