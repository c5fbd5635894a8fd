//! The table of changes of a database: what writers have recorded, and followers apply later.

use std::collections::BTreeMap;

use crate::host::Millis;
use crate::promises::{ChangeOf, Incarnation, SourceVersion};

/// The rows of the table, by their subjects: a subject changes again only when its row is applied.
#[derive(Debug, Default)]
pub(crate) struct RecordedChanges(BTreeMap<u64, RecordedChange>);

#[derive(Debug)]
pub(crate) struct RecordedChange {
    pub(crate) what: ChangeOf,
    pub(crate) version: SourceVersion,
    /// When a follower takes it, at the earliest.
    due_at: Millis,
    /// The follower that has taken it. Its end leaves the row to others.
    held_by: Option<Incarnation>,
}

impl RecordedChanges {
    pub(crate) fn record(
        &mut self,
        subject: u64,
        what: ChangeOf,
        version: SourceVersion,
        due_at: Millis,
    ) {
        self.0.insert(subject, RecordedChange { what, version, due_at, held_by: None });
    }

    /// A follower takes a row that is due.
    pub(crate) fn take(&mut self, process: Incarnation, now: Millis) -> Option<ChangeOf> {
        let is_free = |row: &&mut RecordedChange| row.held_by.is_none() && row.due_at <= now;
        let row = self.0.values_mut().find(is_free)?;
        row.held_by = Some(process);
        Some(row.what)
    }

    /// A follower has applied a row.
    pub(crate) fn applied(&mut self, subject: u64) -> Option<RecordedChange> {
        self.0.remove(&subject)
    }

    /// A follower has failed to apply a row.
    pub(crate) fn failed(&mut self, subject: u64, now: Millis) {
        if let Some(row) = self.0.get_mut(&subject) {
            (row.held_by, row.due_at) = (None, now + RETRIED_AFTER);
        }
    }

    /// How many rows wait.
    pub(crate) fn pending(&self) -> usize {
        self.0.len()
    }

    /// Whether a follower has taken a row, and has not ended it.
    pub(crate) fn is_held_by(&self, process: Incarnation) -> bool {
        self.0.values().any(|row| row.held_by == Some(process))
    }

    /// A process has ended, and holds nothing any more.
    pub(crate) fn ended(&mut self, process: Incarnation) {
        let held = self.0.values_mut().filter(|row| row.held_by == Some(process));
        held.for_each(|row| row.held_by = None);
    }
}

/// After a failure, a row is tried again.
const RETRIED_AFTER: Millis = 100;
