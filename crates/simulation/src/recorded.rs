//! The table of changes of a database: what writers have recorded, and followers apply later.

use std::collections::BTreeMap;

use crate::host::Millis;
use crate::promises::{ChangeOf, Incarnation, SourceVersion};

/// The table, and what its followers know.
#[derive(Debug, Default)]
pub(crate) struct RecordedChanges {
    /// The rows that wait, by their subjects: a subject changes again only when its row is applied.
    pending: BTreeMap<u64, RecordedChange>,
    /// Of each subject, the last row that was applied.
    applied: BTreeMap<u64, AppliedChange>,
    followers: BTreeMap<Incarnation, FollowerLook>,
}

#[derive(Debug)]
pub(crate) struct RecordedChange {
    pub(crate) what: ChangeOf,
    pub(crate) version: SourceVersion,
    /// When a follower takes it, at the earliest.
    due_at: Millis,
    /// The follower that has taken it. Its end leaves the row to others.
    held_by: Option<Incarnation>,
}

/// A row that was applied. It stays in the table for [`RETAIN`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppliedChange {
    pub(crate) what: ChangeOf,
    pub(crate) version: SourceVersion,
    /// The process that has applied it.
    pub(crate) by: Incarnation,
    at: Millis,
}

/// How a follower sees its store.
#[derive(Debug, Default)]
struct FollowerLook {
    /// How often the store had connected before all rows that stay were applied to it again. None at the start.
    opened: Option<u64>,
    /// When it looks again. None while it does.
    next_at: Option<Millis>,
}

impl RecordedChanges {
    pub(crate) fn record(
        &mut self,
        subject: u64,
        what: ChangeOf,
        version: SourceVersion,
        due_at: Millis,
    ) {
        self.pending.insert(subject, RecordedChange { what, version, due_at, held_by: None });
    }

    /// A follower takes a row that is due.
    pub(crate) fn take(&mut self, process: Incarnation, now: Millis) -> Option<ChangeOf> {
        let is_free = |row: &&mut RecordedChange| row.held_by.is_none() && row.due_at <= now;
        let row = self.pending.values_mut().find(is_free)?;
        row.held_by = Some(process);
        Some(row.what)
    }

    /// A follower has applied a row, which stays.
    pub(crate) fn applied(
        &mut self,
        subject: u64,
        by: Incarnation,
        at: Millis,
    ) -> Option<RecordedChange> {
        let row = self.pending.remove(&subject)?;
        let RecordedChange { what, version, .. } = row;
        self.applied.insert(subject, AppliedChange { what, version, by, at });
        Some(row)
    }

    /// A follower has failed to apply a row.
    pub(crate) fn failed(&mut self, subject: u64, now: Millis) {
        if let Some(row) = self.pending.get_mut(&subject) {
            (row.held_by, row.due_at) = (None, now + RETRIED_AFTER);
        }
    }

    /// How many rows wait.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The rows that were applied and are not yet deleted, the first ones first.
    pub(crate) fn retained(&self, now: Millis) -> Vec<AppliedChange> {
        let rows = self.applied.values().filter(|row| row.at + RETAIN > now);
        let mut rows: Vec<_> = rows.copied().collect();
        rows.sort_by_key(|row| row.at);
        rows
    }

    /// Whether a follower now looks at its store: once in a while, if there are rows.
    pub(crate) fn looks(&mut self, process: Incarnation, now: Millis) -> bool {
        if self.pending.is_empty() && self.applied.is_empty() {
            return false;
        }
        let first = || FollowerLook { opened: None, next_at: Some(now) };
        let look = self.followers.entry(process).or_insert_with(first);
        look.next_at.take_if(|next_at| *next_at <= now).is_some()
    }

    /// Whether the store of a follower has connected since rows were applied to it again.
    pub(crate) fn may_have_lost(&self, process: Incarnation, opened: u64) -> bool {
        self.followers.get(&process).is_none_or(|look| look.opened != Some(opened))
    }

    /// A follower has looked, and applied again what it had to. None if that has failed.
    pub(crate) fn looked(&mut self, process: Incarnation, opened: Option<u64>, now: Millis) {
        if let Some(look) = self.followers.get_mut(&process) {
            look.opened = opened.or(look.opened);
            look.next_at = Some(now + LOOKS_AFTER);
        }
    }

    /// Whether a follower does something.
    pub(crate) fn is_held_by(&self, process: Incarnation) -> bool {
        self.pending.values().any(|row| row.held_by == Some(process))
            || self.followers.get(&process).is_some_and(|look| look.next_at.is_none())
    }

    /// A process has ended, and holds nothing any more.
    pub(crate) fn ended(&mut self, process: Incarnation) {
        let held = self.pending.values_mut().filter(|row| row.held_by == Some(process));
        held.for_each(|row| row.held_by = None);
        self.followers.remove(&process);
    }
}

/// After a failure, a row is tried again.
const RETRIED_AFTER: Millis = 100;

/// How long rows stay after they were applied, and how often a follower looks at its store: by default.
const RETAIN: Millis = 60_000;
const LOOKS_AFTER: Millis = 1_000;
