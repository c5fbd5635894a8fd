//! Kept invalidations: those that have failed, and those that a failover may have lost. They are
//! repeated until the server has executed them.
//!
//! # What holds meanwhile
//! 1. No operation of this process reads a key or a tag with a kept invalidation. It repeats the
//!    invalidation first, or fails as that does. So nothing that was invalidated is served, not
//!    even when the server answers again.
//! 2. A commit does the same. So a load that began before the invalidation stores nothing, and
//!    waiters that joined it later do not get its value.
//! 3. Near copies end when an invalidation is kept, and none is made while there is any.
//! 4. An invalidation that is repeated late removes a value that was stored in between. That costs
//!    a load. It never brings an older value back.
//!
//! # What a failover may have lost
//! The last acknowledged invalidations are remembered. When a connection breaks or a slot gets
//! another owner, the server may be another one, or the same one without its last writes. So the
//! invalidations from shortly before are kept again. That happens before the first request to that
//! server. A read that was on its way to it is repeated: [`reassertions`] tells it to.
//!
//! [`reassertions`]: KeptInvalidations::reassertions
//!
//! # When there are too many
//! The table is bounded. If an invalidation does not fit, it is not known by name any more. So all
//! entries count as none whose load began before that moment: those with a lower
//! [fence](KeptInvalidations::floor). Other processes do not learn of it.

mod table;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

pub(super) use self::table::{Change, ChangeTarget, KeptInvalidation};

use self::table::KeptTable;
use super::near::Near;
use super::stats::ReplayStats;
use crate::keeping_rules::KeepingRules;
use bellwether::Digest;
use bellwether::adapter::LogThrottle;
use bellwether::store::Watchers;

/// The invalidations that a store repeats.
pub(super) struct KeptInvalidations {
    rules: KeepingRules,
    /// The name of the store in log messages.
    store: Arc<str>,
    near: Option<Arc<Near>>,
    /// Told when invalidations are re-asserted.
    watchers: Watchers,
    /// Whether there is nothing to do before a read. Then operations take no lock.
    is_quiet: AtomicBool,
    reassertions: AtomicU64,
    floor: AtomicU64,
    /// Held for a few operations, never across an `.await`.
    table: Mutex<KeptTable>,
    /// Starts the task that repeats them.
    start: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Whether that task runs.
    pub(super) has_task: AtomicBool,
    kept: AtomicU64,
    replayed: AtomicU64,
    dropped: AtomicU64,
    reasserted: AtomicU64,
    failed_log: LogThrottle,
    dropped_log: LogThrottle,
}

/// What became of an invalidation that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// It is repeated.
    Kept,
    /// There are too many. In this process, all entries from before count as none.
    Dropped,
    /// The options say that none is kept.
    Off,
}

impl KeptInvalidations {
    pub(super) fn new(
        rules: KeepingRules,
        store: Arc<str>,
        near: Option<Arc<Near>>,
        watchers: Watchers,
    ) -> Self {
        Self {
            rules,
            store,
            near,
            watchers,
            is_quiet: AtomicBool::new(true),
            reassertions: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            table: Mutex::new(KeptTable::new(rules.most)),
            start: OnceLock::new(),
            has_task: AtomicBool::new(false),
            kept: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            reasserted: AtomicU64::new(0),
            failed_log: LogThrottle::once_per(LOG_EVERY),
            dropped_log: LogThrottle::once_per(LOG_EVERY),
        }
    }

    /// The name of the store in log messages.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// Sets what starts the task that repeats invalidations.
    pub(super) fn start_by(&self, start: impl Fn() + Send + Sync + 'static) {
        // It is set once, when the store is made.
        _ = self.start.set(Box::new(start));
    }

    /// Starts the task, unless it runs.
    pub(super) fn start(&self) {
        if !self.has_task.load(Ordering::Relaxed)
            && let Some(start) = self.start.get()
        {
            start();
        }
    }

    /// Whether there is nothing to do before a read.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Acquire)
    }

    /// How often invalidations were kept that the server had acknowledged. If that changes during a
    /// read, the read may have missed one of them.
    pub(super) fn reassertions(&self) -> u64 {
        self.reassertions.load(Ordering::Acquire)
    }

    /// Entries with a lower fence count as none. [`UNKNOWN`] if an invalidation was dropped, and the
    /// server's time of that is not known yet.
    pub(super) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    /// Whether the floor has to be [raised](Self::raise_floor) before a read.
    pub(super) fn is_floor_due(&self) -> bool {
        self.floor() == UNKNOWN
    }

    /// Raises the floor to a time of the server that is not before now. Returns whether that time is
    /// known.
    pub(super) fn raise_floor(&self, now: impl FnOnce() -> Option<u64>) -> bool {
        let dropped = self.dropped.load(Ordering::Acquire);
        let Some(now) = now() else { return false };
        let table = self.table();
        // Another one may have been dropped after the time was read.
        if self.dropped.load(Ordering::Acquire) == dropped {
            self.floor.store(now, Ordering::Release);
        }
        self.note_quiet(&table);
        true
    }

    /// The kept invalidation of a key or a tag.
    pub(super) fn of(&self, target: &ChangeTarget) -> Option<KeptInvalidation> {
        if self.is_quiet() { None } else { self.table().of(target) }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<(ChangeTarget, KeptInvalidation)> {
        self.table().all()
    }

    /// Keeps an invalidation that has failed, together with one that is kept already.
    pub(super) fn keep(&self, target: ChangeTarget, change: Change) -> Keeping {
        if self.rules.most == 0 {
            return Keeping::Off;
        }
        let is_kept = {
            let mut table = self.table();
            let is_kept = table.keep(target, change, Instant::now(), false);
            if !is_kept {
                self.drop_one();
            }
            self.note_quiet(&table);
            is_kept
        };
        if is_kept {
            self.end_copies(target.digest());
            self.kept.fetch_add(1, Ordering::Relaxed);
            if let Some(held_back) = self.failed_log.admit() {
                tracing::warn!(
                    held_back,
                    store = %self.store,
                    "an invalidation has failed, and is repeated until it succeeds"
                );
            }
        }
        self.start();
        if is_kept { Keeping::Kept } else { Keeping::Dropped }
    }

    /// The server has executed an invalidation, and with it the one that was `kept` before.
    pub(super) fn executed(
        &self,
        target: ChangeTarget,
        change: Change,
        kept: Option<KeptInvalidation>,
    ) {
        if self.rules.most == 0 {
            return;
        }
        let mut table = self.table();
        if table.executed(target, change, kept, Instant::now(), !self.rules.window.is_zero()) {
            self.replayed.fetch_add(1, Ordering::Relaxed);
        }
        self.note_quiet(&table);
    }

    pub(super) fn stats(&self) -> ReplayStats {
        ReplayStats {
            pending: self.table().len() as u64,
            kept: self.kept.load(Ordering::Relaxed),
            replayed: self.replayed.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            reasserted: self.reasserted.load(Ordering::Relaxed),
        }
    }

    /// Notes that an invalidation does not fit. Called with the table locked.
    fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::AcqRel);
        self.floor.store(UNKNOWN, Ordering::Release);
        self.near.as_ref().inspect(|near| near.change_everything());
        if let Some(held_back) = self.dropped_log.admit() {
            tracing::warn!(
                held_back,
                store = %self.store,
                most = self.rules.most,
                "too many invalidations have failed: this process reads no entries from before, and \
                 other processes may"
            );
        }
    }

    /// Ends the near copies of a key or a tag.
    fn end_copies(&self, digest: &Digest) {
        self.near.as_ref().inspect(|near| near.change(digest));
    }

    /// Called with the table locked, after each change of it.
    fn note_quiet(&self, table: &KeptTable) {
        let is_quiet = table.len() == 0 && !self.is_floor_due();
        self.is_quiet.store(is_quiet, Ordering::Release);
    }

    fn table(&self) -> MutexGuard<'_, KeptTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptInvalidations {
    /// The server of some keys and tags may have lost what it has acknowledged: see
    /// [`ServerEvent::MayHaveLost`](bellwether_redis_client::ServerEvent::MayHaveLost).
    pub(super) fn may_have_lost(&self, since: Instant, is_affected: &dyn Fn(&Digest) -> bool) {
        let lost = {
            let mut table = self.table();
            let begin = since.checked_sub(self.rules.window).unwrap_or(since);
            let (lost, dropped) = table.reassert(begin, is_affected);
            (0..dropped).for_each(|_| self.drop_one());
            self.note_quiet(&table);
            lost
        };
        if lost.is_empty() {
            return;
        }
        // One that was dropped has ended all copies.
        lost.iter().for_each(|target| self.end_copies(target.digest()));
        self.reasserted.fetch_add(lost.len() as u64, Ordering::Relaxed);
        // After the table was changed: a read that notices this then finds them there.
        self.reassertions.fetch_add(1, Ordering::Release);
        self.watchers.tell_all();
        tracing::info!(
            store = %self.store,
            count = lost.len(),
            "the server may have lost the last invalidations: they are repeated"
        );
        self.start();
    }
}

impl fmt::Debug for KeptInvalidations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptInvalidations")
            .field("rules", &self.rules)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// The floor while the server's time is not known.
const UNKNOWN: u64 = u64::MAX;

const LOG_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
