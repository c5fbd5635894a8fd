//! The source of truth: the version of each row, how often it was loaded, and what happened to it last.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use crate::clock::now;
use crate::kinds::group_of_id;
use crate::row::Versions;
use crate::tally::Tally;

/// How much of the history of each row is remembered.
const REMEMBERED: usize = 64;

/// One thing that happened to a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Happened {
    pub(crate) at: u64,
    pub(crate) worker: u32,
    pub(crate) what: &'static str,
    pub(crate) version: u64,
}

#[derive(Debug, Default)]
struct Record {
    version: u64,
    /// Since the last change.
    loads: u64,
    history: VecDeque<Happened>,
}

/// All rows, and all groups.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    rows: HashMap<u64, Record>,
    groups: HashMap<u64, u64>,
    pub(crate) tally: Tally,
}

impl Record {
    fn note(&mut self, worker: u32, what: &'static str, version: u64) {
        if self.history.len() == REMEMBERED {
            self.history.pop_front();
        }
        self.history.push_back(Happened { at: now(), worker, what, version });
    }
}

impl Rows {
    pub(crate) fn load_begins(&mut self, worker: u32, keys: &[u64]) {
        for key in keys {
            let record = self.rows.entry(*key).or_default();
            record.loads += 1;
            let version = record.version;
            record.note(worker, "load begins", version);
        }
        self.tally.count("loads", keys.len() as u64);
    }

    /// What a load reads at this moment.
    pub(crate) fn read(&mut self, worker: u32, keys: &[u64]) -> Vec<Versions> {
        let groups = &self.groups;
        let read = keys.iter().map(|key| {
            let record = self.rows.entry(*key).or_default();
            let row = record.version;
            record.note(worker, "load reads", row);
            let group = group_of_id(*key).and_then(|group| groups.get(&group));
            Versions { row, group: group.copied().unwrap_or(0) }
        });
        read.collect()
    }

    pub(crate) fn change(&mut self, worker: u32, keys: &[u64]) -> Vec<Versions> {
        let groups = &self.groups;
        let tally = &mut self.tally;
        let changed = keys.iter().map(|key| {
            let record = self.rows.entry(*key).or_default();
            record.version += 1;
            tally.measure("loads between two changes of a row", std::mem::take(&mut record.loads));
            let row = record.version;
            record.note(worker, "change", row);
            let group = group_of_id(*key).and_then(|group| groups.get(&group));
            Versions { row, group: group.copied().unwrap_or(0) }
        });
        let changed = changed.collect();
        self.tally.count("changes of rows", keys.len() as u64);
        changed
    }

    pub(crate) fn change_group(&mut self, group: u64) -> Vec<Versions> {
        let version = self.groups.entry(group).or_default();
        *version += 1;
        self.tally.count("changes of groups", 1);
        vec![Versions { row: 0, group: *version }]
    }

    /// How often a row was loaded since its last change, and forgets it.
    pub(crate) fn take_loads(&mut self, key: u64) -> u64 {
        self.rows.remove(&key).map_or(0, |record| record.loads)
    }

    pub(crate) fn history(&self, key: u64) -> Vec<Happened> {
        self.rows
            .get(&key)
            .map(|record| record.history.iter().cloned().collect())
            .unwrap_or_default()
    }
}
