//! `LockStats`: what a set of locks has done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    /// How long all attempts have waited, together.
    pub waited: Duration,
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
    acquired: AtomicU64,
    busy: AtomicU64,
    timed_out: AtomicU64,
    failed: AtomicU64,
    left: AtomicU64,
    /// In nanoseconds.
    waited: AtomicU64,
    wait_times: Histogram,
    renewed: AtomicU64,
    renewals_failed: AtomicU64,
    lost: AtomicU64,
    held: AtomicU64,
}

impl LockCounters {
    /// An attempt begins.
    pub(super) fn attempt(&self) -> CountedAttempt<'_> {
        CountedAttempt { counters: self, began: Instant::now(), result: &self.left }
    }

    pub(super) fn note_renewal(&self, is_renewed: bool) {
        add(if is_renewed { &self.renewed } else { &self.renewals_failed }, 1);
    }

    pub(super) fn note_lost(&self) {
        add(&self.lost, 1);
    }

    /// A key is held from now on.
    pub(super) fn note_held(&self) {
        add(&self.held, 1);
    }

    /// A key that was held is released from now on.
    pub(super) fn note_released(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, keys: usize) -> LockStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LockStats {
            acquired: read(&self.acquired),
            busy: read(&self.busy),
            timed_out: read(&self.timed_out),
            failed: read(&self.failed),
            left: read(&self.left),
            waited: Duration::from_nanos(read(&self.waited)),
            wait_times: self.wait_times.read(),
            renewed: read(&self.renewed),
            renewals_failed: read(&self.renewals_failed),
            lost: read(&self.lost),
            held: read(&self.held),
            keys: keys as u64,
        }
    }
}

/// An attempt to get a key. Without an end, its caller has left.
pub(super) struct CountedAttempt<'a> {
    counters: &'a LockCounters,
    began: Instant,
    result: &'a AtomicU64,
}

impl CountedAttempt<'_> {
    pub(super) fn end(mut self, error: Option<&LockError>) {
        self.result = match error.map(LockError::kind) {
            None => &self.counters.acquired,
            Some(LockErrorKind::Busy) => &self.counters.busy,
            Some(LockErrorKind::TimedOut) => &self.counters.timed_out,
            Some(_) => &self.counters.failed,
        };
    }
}

impl Drop for CountedAttempt<'_> {
    fn drop(&mut self) {
        add(self.result, 1);
        let waited = self.began.elapsed();
        self.counters.wait_times.note(waited);
        add(&self.counters.waited, u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
