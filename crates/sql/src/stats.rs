//! `FollowerStats`: what a follower has done.

use std::sync::Mutex;
use std::time::Duration;

use bellwether::adapter::locked;
use bellwether::stats::{Histogram, HistogramStats};

/// The state of a [`Follower`](super::Follower), and what it has done since it was started.
///
/// # Metrics
/// For `bellwether::metrics`, with names that begin with `bellwether_`. The value of the label `table` is the
/// schema. Keys and tags are never labels.
///
/// | metric | type | labels | what it is |
/// |---|---|---|---|
/// | `changes_pending` | gauge | `table` | rows that wait, of all followers, counted up to 10,000 |
/// | `changes_oldest_seconds` | gauge | `table` | how long the oldest of them has waited, in whole seconds |
/// | `changes_applied_total` | counter | `table` | rows that this follower has applied |
/// | `changes_reapplied_total` | counter | `table` | rows that it has applied again |
/// | `changes_dead_total` | counter | `table` | rows that can never be applied: their column `failure` says why |
/// | `changes_errors_total` | counter | `table`, `of` | rounds that have failed: at the `database` or a `store` |
/// | `changes_lag_seconds` | histogram | `table` | from a row's commit until it was applied; from its insertion, if the server does not `track_commit_timestamp` |
///
/// # Spans
/// `changes.apply` (level debug, fields `table` and `rows`) is the time in which the stores take a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FollowerStats {
    /// Rows that wait to be applied, by any follower, counted up to 10,000. It is read with each
    /// [poll](super::Follower::poll).
    pub pending: u64,
    /// How long the oldest of them has waited.
    pub oldest: Duration,
    /// Rows that this follower has applied to all stores.
    pub applied: u64,
    /// Rows that it has applied again, since a store may have lost them.
    pub reapplied: u64,
    /// Rows that can never be applied. Their column `failure` says why.
    pub dead: u64,
    /// Rounds that the database has failed.
    pub database_errors: u64,
    /// Rounds in which a store has failed.
    pub store_errors: u64,
    /// From the commit of each row until it was applied to all stores.
    pub lags: HistogramStats,
}

bellwether::metric_table! { FollowerStats, "table":
    Gauge "bellwether.changes.pending" "{row}" "Recorded changes that wait to be applied."
        = |it, to| to.one(it.pending);
    Gauge "bellwether.changes.oldest" "s" "How long the oldest recorded change has waited."
        = |it, to| to.one(it.oldest.as_secs());
    Counter "bellwether.changes.applied" "{row}" "Recorded changes that were applied."
        = |it, to| to.one(it.applied);
    Counter "bellwether.changes.reapplied" "{row}" "Recorded changes that were applied again."
        = |it, to| to.one(it.reapplied);
    Counter "bellwether.changes.dead" "{row}" "Recorded changes that can never be applied."
        = |it, to| to.one(it.dead);
    Counter "bellwether.changes.errors" "{round}" "Rounds of a follower that have failed."
        = |it, to| to.each("of", [("database", it.database_errors), ("store", it.store_errors)]);
    Histogram "bellwether.changes.lag" "s" "From the commit of a change until it was applied."
        = |it, to| to.one(it.lags);
}

/// Where a follower counts.
#[derive(Debug, Default)]
pub(crate) struct FollowerCounters {
    /// All but `lags`. Held to change or copy it, never across an `.await`.
    counted: Mutex<FollowerStats>,
    lags: Histogram,
}

impl FollowerCounters {
    /// Counts what happens.
    pub(crate) fn note(&self, event: impl FnOnce(&mut FollowerStats)) {
        // A panic cannot leave it half changed: these are numbers.
        event(&mut locked(&self.counted));
    }

    /// A row was applied this long after its commit.
    pub(crate) fn applied(&self, lag: Duration) {
        self.lags.note(lag);
        self.note(|stats| stats.applied += 1);
    }

    pub(crate) fn read(&self) -> FollowerStats {
        let mut stats = FollowerStats::default();
        self.note(|counted| stats = *counted);
        FollowerStats { lags: self.lags.read(), ..stats }
    }
}
