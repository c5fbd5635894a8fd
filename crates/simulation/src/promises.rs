//! What the cache promises: what may be answered, how many loads run at once, how long a caller waits.

use std::collections::BTreeMap;

use crate::host::Millis;

/// A process, and how often it was started.
pub(crate) type Incarnation = (usize, u32);

/// The number of a change of the source.
pub(crate) type SourceVersion = u64;

/// A change of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeOf {
    Key(u64),
    Tag(u64),
}

/// A key or a tag of the source.
#[derive(Debug, Default)]
pub(crate) struct Subject {
    /// What the source has.
    pub(crate) version: SourceVersion,
    /// Whether a caller changes it now. The changes of a key are ordered.
    pub(crate) is_changing: bool,
    /// When its last change was begun.
    pub(crate) began_at: Millis,
    /// When its last change has ended.
    pub(crate) ended_at: Millis,
    /// When its last change was begun or has ended, by a number of the history.
    pub(crate) changed_at: u64,
    /// Loads under way, and when they have begun, by numbers of the history.
    loads: BTreeMap<u64, u64>,
    /// Until when a change may be executed that was dropped or has failed.
    pub(crate) repeated_until: Millis,
    last_load_end: Millis,
    floors: Vec<Floor>,
}

/// The least version that may be answered.
#[derive(Clone, Debug)]
struct Floor {
    least: Required,
    by: Incarnation,
    /// When the call has returned, and whether with `Ok`. If not, it is for its own process.
    at: Millis,
    is_for_all: bool,
}

/// The least versions of an answer: if it is stale, and if it is fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Required {
    pub(crate) stale: SourceVersion,
    pub(crate) fresh: SourceVersion,
}

/// A loss of what the server had stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataLoss {
    pub(crate) at: Millis,
    /// What was stored then is back. None if the server is empty.
    pub(crate) snapshot_of: Option<Millis>,
    /// Until when a server is in use that is the primary no more. What it is told is lost, too.
    pub(crate) until: Millis,
    /// A process may not have noticed an earlier loss of what it was told until then, because its server is
    /// the primary again.
    pub(crate) unnoticed_until: Millis,
}

impl DataLoss {
    /// Whether a change may be lost of this time.
    pub(crate) fn befalls(&self, began_at: Millis, ended_at: Millis) -> bool {
        began_at <= self.until && self.snapshot_of.is_some_and(|it| it <= ended_at)
    }
}

impl Required {
    /// What both require.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { stale: self.stale.min(other.stale), fresh: self.fresh.min(other.fresh) }
    }

    fn and(self, other: Self) -> Self {
        Self { stale: self.stale.max(other.stale), fresh: self.fresh.max(other.fresh) }
    }

    /// Whether an answer fulfils it.
    pub(crate) fn permits(&self, version: SourceVersion, is_stale: bool) -> bool {
        version >= if is_stale { self.stale } else { self.fresh }
    }
}

impl Subject {
    /// What is required of a request of a process that starts at this time. `near` is how old copies may be.
    pub(crate) fn required(
        &self,
        process: Incarnation,
        now: Millis,
        near: Option<Millis>,
    ) -> Required {
        let holds = |floor: &&Floor| {
            let is_known = near.is_none_or(|near| floor.at + near < now);
            floor.at <= now && (floor.by == process || floor.is_for_all && is_known)
        };
        self.floors.iter().filter(holds).fold(Required::default(), |all, it| all.and(it.least))
    }

    /// A call has returned `Ok`, or has failed and is repeated.
    pub(crate) fn changed(
        &mut self,
        version: SourceVersion,
        is_expiry: bool,
        by: Incarnation,
        at: Millis,
        is_ok: bool,
    ) {
        let least = Required { stale: if is_expiry { 0 } else { version }, fresh: version };
        let floor = Floor { least, by, at, is_for_all: is_ok };
        // What is old enough is the same for all.
        let is_same = |it: &Floor| it.by == by && it.is_for_all == is_ok && it.at + OLD < at;
        let older = self.floors.iter().filter(|it| is_same(it));
        let older = older.max_by_key(|it| it.at).map(|it| it.at);
        if let Some(older_at) = older {
            let mut merged = Floor { least: Required::default(), at: older_at, ..floor };
            self.floors.retain(|it| {
                let is_same = is_same(it);
                if is_same {
                    merged.least = merged.least.and(it.least);
                }
                !is_same
            });
            self.floors.push(merged);
        }
        self.floors.push(floor);
    }

    /// The server has lost something. What it has lost is promised no more, except to the processes that
    /// assert it again.
    pub(crate) fn lost(&mut self, loss: DataLoss, is_tag: bool) {
        // A load that was under way may be stored now, because its watermark is lost.
        let had_load = !self.loads.is_empty() || self.last_load_end + LATEST_COMMIT > loss.at;
        for floor in &mut self.floors {
            floor.is_for_all &= match loss.snapshot_of {
                Some(snapshot) => floor.at < snapshot,
                None => is_tag || !had_load,
            };
        }
        self.floors.retain(|it| {
            it.is_for_all || it.at + REASSERTED > loss.until && it.at > loss.unnoticed_until
        });
    }

    /// A process has ended, and what it had kept is lost.
    pub(crate) fn ended(&mut self, process: Incarnation) {
        self.floors.retain(|it| it.is_for_all || it.by != process);
    }

    /// A load begins, at a number of the history.
    pub(crate) fn load_begins(&mut self, load: u64, now: u64) {
        self.loads.insert(load, now);
    }

    /// Whether a load has begun since a number of the history and is under way.
    pub(crate) fn is_loading_since(&self, number: u64) -> bool {
        self.loads.values().any(|began_at| *began_at > number)
    }

    pub(crate) fn load_ends(&mut self, load: u64, now: Millis) {
        self.loads.remove(&load);
        self.last_load_end = now;
    }
}

/// After this time, changes of one process are not told apart. It is longer than a near copy lasts.
const OLD: Millis = 3_000;

/// How long after a load its commit is executed at the latest.
const LATEST_COMMIT: Millis = 5_000;

/// The changes of this time before a loss are asserted again. It is less than what is promised, because a
/// process may have noticed late.
const REASSERTED: Millis = 5_000;
