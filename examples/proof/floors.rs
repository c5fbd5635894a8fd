//! The floors of all rows: which version a read must not be older than, in a file that all processes share.
//!
//! # Why no violation is missed, and none is invented
//! 1. A process writes a floor **after** its invalidation has returned `Ok`. A reader reads the floors
//!    **before** it calls the cache. So a floor that it finds is that of an invalidation that returned before
//!    the read began: a read of an older version is a violation, by whatever clock.
//! 2. Conversely, what has written its floor binds each read that begins later. An invalidation that has
//!    returned and has not yet written (some microseconds) is one of which no other process can know.
//! 3. Reads and writes of the file go through the page cache of one machine. A record that is read while it
//!    is written may be torn. Its check word shows that, and it is read again.
//! 4. Each process has slots of its own in each record, so no two write the same place, and the floor is the
//!    largest of all slots. Within a process, a lock orders the writers.
//!
//! A head holds the newest floor of a slot. A ring behind it holds the floors before, with the times at which
//! their invalidations had returned: for how long a copy has been outdated is the time since the first return
//! that outdated it. Only reads that are older than a head look there. If a ring no longer holds that return,
//! the reader says so, and the run counts as undecided.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock::now;
use crate::kinds::{CHANGING, GROUPS, Kind, ROWS, RowKey};
use crate::locked::locked;
use crate::row::mixed;

const HEAD: usize = 24;
const RING: usize = 16;
/// Each process has two stores, the changes that it has recorded, and those that are not applied yet.
const MEMBERS: usize = 4;
/// The largest record: two sorts of floors, of all members of eight processes.
const LARGEST: usize = 2 * MEMBERS * MOST_WORKERS * HEAD;
pub(crate) const MOST_WORKERS: usize = 8;

/// What is invalidated: a row, or all rows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub(crate) struct Subject(usize);

/// Whether an older value may still be served as stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Sort {
    /// Never: it was invalidated.
    Hard,
    /// Until its stale windows end: it was expired.
    Soft,
}

/// An invalidation that has returned.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Return {
    /// Everything older than this version is outdated.
    pub(crate) version: u64,
    pub(crate) at: u64,
    /// The store of a process over which it was made. Behind all those, each process has one for what it has recorded
    /// in the database, and any process has applied; and behind these, one from the commit of each record on.
    pub(crate) member: usize,
    pub(crate) sort: Sort,
}

/// The floor of one subject: its version, and when its invalidation had returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Floor {
    pub(crate) version: u64,
    pub(crate) at: u64,
}

/// The floors of a subject, as one store must keep them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    /// Of invalidations over the same store.
    pub(crate) own: [Floor; 2],
    /// Of those by others.
    pub(crate) others: [Floor; 2],
    /// Of invalidations by other stores alone, without recorded changes.
    pub(crate) other_stores: Floor,
    /// Of changes that are recorded, and that a follower will apply. They bind no read.
    pub(crate) committed: Floor,
}

/// Where a store writes its floors of a subject.
type Slot = (Subject, Sort, usize);

/// The file, as one process knows it.
#[derive(Debug)]
pub(crate) struct Floors {
    file: File,
    workers: usize,
    /// What this process has written: for each slot, its count and its newest version. Held to write.
    written: Mutex<HashMap<Slot, (usize, u64)>>,
    /// By store of this process, subject and sort: invalidations that failed and are kept.
    pending: [Vec<AtomicU64>; 2],
}

impl Subject {
    pub(crate) fn row(key: RowKey) -> Option<Self> {
        (key.kind != Kind::Burst)
            .then(|| Self(key.kind.index() * ROWS as usize + key.number as usize))
    }

    pub(crate) fn group(kind: Kind, group: u64) -> Self {
        let groups = CHANGING.len() * ROWS as usize;
        Self(groups + kind.index() * GROUPS as usize + group as usize)
    }

    pub(crate) fn is_group(self) -> bool {
        self.0 >= CHANGING.len() * ROWS as usize
    }

    fn count() -> usize {
        CHANGING.len() * (ROWS + GROUPS) as usize
    }
}

impl Bounds {
    /// The newest floor that a read must not be below.
    pub(crate) fn newest(&self, sort: Sort) -> Floor {
        let hard = self.own[0].max(self.others[0]);
        match sort {
            Sort::Hard => hard,
            Sort::Soft => hard.max(self.own[1]).max(self.others[1]),
        }
    }
}

impl Floors {
    /// Makes the file.
    pub(crate) fn create(path: &Path, workers: usize) -> io::Result<()> {
        let members = MEMBERS * workers;
        let bytes = Subject::count() * 2 * members * (HEAD + RING * HEAD);
        File::create(path)?.set_len(bytes as u64)
    }

    pub(crate) fn open(path: &Path, workers: usize) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let pending =
            [(); 2].map(|()| (0..2 * Subject::count()).map(|_| AtomicU64::new(0)).collect());
        Ok(Self { file, workers, written: Mutex::default(), pending })
    }

    /// The floors that a read through a store must keep if it begins now. `member % 2` is the store within
    /// this process.
    pub(crate) fn bounds(&self, subject: Subject, member: usize) -> Bounds {
        let mut bytes = [0; LARGEST];
        let record = &mut bytes[..2 * self.members() * HEAD];
        loop {
            self.file
                .read_exact_at(record, self.record(subject) as u64)
                .expect("the file of floors");
            let heads = record.chunks_exact(HEAD).map(entry);
            let mut bounds = Bounds::default();
            let mut torn = false;
            for (slot, head) in heads.enumerate() {
                let Some(floor) = head else {
                    torn = true;
                    break;
                };
                let (sort, by) = (slot / self.members(), slot % self.members());
                let bound = match by {
                    _ if by == member => &mut bounds.own[sort],
                    _ if by < self.binding() => &mut bounds.others[sort],
                    _ => &mut bounds.committed,
                };
                *bound = floor.max(*bound);
                if by != member && by < self.recorded() && sort == Sort::Hard as usize {
                    bounds.other_stores = floor.max(bounds.other_stores);
                }
            }
            if !torn {
                for sort in [0, 1] {
                    let version = self.pending(subject, sort, member).load(Ordering::Acquire);
                    bounds.own[sort] = bounds.own[sort].max(Floor { version, at: 0 });
                }
                return bounds;
            }
        }
    }

    /// An invalidation has returned `Ok`: all reads that begin from now on are bound by it.
    pub(crate) fn publish(&self, subject: Subject, sort: Sort, member: usize, version: u64) {
        let at = now();
        let mut written = locked(&self.written);
        let slot = written
            .entry((subject, sort, member))
            .or_insert_with(|| self.continued(subject, sort, member));
        let (count, newest) = slot;
        // An older one that returns later outdates nothing more.
        if version <= *newest {
            return;
        }
        let entry = entry_of(Floor { version, at });
        let ring = self.ring(subject, sort, member) + *count % RING * HEAD;
        (*count, *newest) = (*count + 1, version);
        self.file.write_all_at(&entry, ring as u64).expect("the file of floors");
        let head = self.record(subject) + (sort as usize * self.members() + member) * HEAD;
        self.file.write_all_at(&entry, head as u64).expect("the file of floors");
    }

    /// An invalidation has failed and is kept: this store serves nothing older from now on.
    pub(crate) fn keep(&self, subject: Subject, sort: Sort, member: usize, version: u64) {
        self.pending(subject, sort as usize, member).fetch_max(version, Ordering::AcqRel);
    }

    /// All returns that outdated a version before a moment, the first one first. The second is whether there
    /// may have been earlier ones.
    pub(crate) fn outdated_by(
        &self,
        subject: Subject,
        version: u64,
        before: u64,
    ) -> (Vec<Return>, bool) {
        self.returns(subject, version, before, 0..self.binding())
    }

    /// All invalidations through a store, or all recorded changes that were committed before a moment, that a version
    /// is older than.
    pub(crate) fn timed(
        &self,
        subject: Subject,
        version: u64,
        before: u64,
        is_recorded: bool,
    ) -> Vec<Return> {
        let members = if is_recorded { self.binding()..self.members() } else { 0..self.recorded() };
        let mut returns = self.returns(subject, version, before, members).0;
        returns.retain(|it| it.sort == Sort::Hard);
        returns
    }

    fn returns(
        &self,
        subject: Subject,
        version: u64,
        before: u64,
        members: Range<usize>,
    ) -> (Vec<Return>, bool) {
        let mut returns = Vec::new();
        let mut is_cut = false;
        for sort in [Sort::Hard, Sort::Soft] {
            for member in members.clone() {
                let all = self.history(subject, sort, member);
                is_cut |= all.len() == RING && all[0].version > version;
                let newer = all.into_iter().filter(|it| it.version > version && it.at <= before);
                returns.extend(newer.map(|Floor { version, at }| Return {
                    version,
                    at,
                    member,
                    sort,
                }));
            }
        }
        returns.sort_by_key(|it| it.at);
        (returns, is_cut)
    }

    /// What a process before this one has written to a slot.
    fn continued(&self, subject: Subject, sort: Sort, member: usize) -> (usize, u64) {
        let (mut at, mut best) = (0, Floor::default());
        for (index, floor) in self.slots(subject, sort, member).into_iter().enumerate() {
            if floor > best {
                (at, best) = (index + 1, floor);
            }
        }
        (at, best.version)
    }

    /// The floors of a slot, the oldest first.
    fn history(&self, subject: Subject, sort: Sort, member: usize) -> Vec<Floor> {
        let mut all = self.slots(subject, sort, member);
        all.retain(|floor| floor.version > 0);
        all.sort();
        all
    }

    fn slots(&self, subject: Subject, sort: Sort, member: usize) -> Vec<Floor> {
        let mut bytes = [0; RING * HEAD];
        loop {
            let ring = self.ring(subject, sort, member);
            self.file.read_exact_at(&mut bytes, ring as u64).expect("the file of floors");
            let all: Option<Vec<_>> = bytes.chunks_exact(HEAD).map(entry).collect();
            if let Some(all) = all {
                return all;
            }
        }
    }

    fn pending(&self, subject: Subject, sort: usize, member: usize) -> &AtomicU64 {
        &self.pending[member % 2][2 * subject.0 + sort]
    }

    fn members(&self) -> usize {
        MEMBERS * self.workers
    }

    /// The first member for recorded changes that are applied.
    fn recorded(&self) -> usize {
        2 * self.workers
    }

    /// How many members' floors bind reads. The others have committed what is not applied yet.
    fn binding(&self) -> usize {
        3 * self.workers
    }

    fn record(&self, subject: Subject) -> usize {
        subject.0 * 2 * self.members() * HEAD
    }

    fn ring(&self, subject: Subject, sort: Sort, member: usize) -> usize {
        let slot = (2 * subject.0 + sort as usize) * self.members() + member;
        Subject::count() * 2 * self.members() * HEAD + slot * RING * HEAD
    }
}

/// A floor as bytes, with a check word.
fn entry_of(Floor { version, at }: Floor) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    let words = [version, at, mixed(version, at)];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The floor in these bytes; none if it is being written.
fn entry(bytes: &[u8]) -> Option<Floor> {
    let word = |at: usize| {
        let bytes = bytes.get(8 * at..8 * at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (version, at, check) = (word(0)?, word(1)?, word(2)?);
    match version {
        0 if at == 0 && check == 0 => Some(Floor::default()),
        _ => (check == mixed(version, at)).then_some(Floor { version, at }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject::row(RowKey { kind: Kind::Soft, number: 7 }).unwrap()
    }

    fn file() -> (tempfile::TempDir, Floors) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("floors");
        Floors::create(&path, 4).unwrap();
        let floors = Floors::open(&path, 4).unwrap();
        (dir, floors)
    }

    #[test]
    fn a_floor_binds_its_own_store_and_the_others_apart() {
        let (dir, floors) = file();
        floors.publish(subject(), Sort::Hard, 3, 5);
        floors.publish(subject(), Sort::Soft, 2, 9);
        let other = Floors::open(&dir.path().join("floors"), 4).unwrap();
        let bounds = other.bounds(subject(), 3);
        assert_eq!((bounds.own[0].version, bounds.others[0].version), (5, 0));
        assert_eq!((bounds.own[1].version, bounds.others[1].version), (0, 9));
        assert_eq!(bounds.newest(Sort::Hard).version, 5);
        assert_eq!(bounds.newest(Sort::Soft).version, 9);
    }

    #[test]
    fn the_first_return_that_outdated_a_version_is_found() {
        let (_dir, floors) = file();
        for version in [2, 4, 3, 6] {
            floors.publish(subject(), Sort::Hard, 0, version);
        }
        let (returns, is_cut) = floors.outdated_by(subject(), 3, u64::MAX);
        let versions: Vec<_> = returns.iter().map(|it| it.version).collect();
        assert_eq!((versions, is_cut), (vec![4, 6], false));
    }

    #[test]
    fn a_ring_that_has_lost_the_first_return_says_so() {
        let (dir, floors) = file();
        for version in 1..=20 {
            floors.publish(subject(), Sort::Hard, 0, version);
        }
        assert!(floors.outdated_by(subject(), 3, u64::MAX).1);
        assert!(!floors.outdated_by(subject(), 5, u64::MAX).1);
        // A process that takes the slot over goes on behind it.
        let next = Floors::open(&dir.path().join("floors"), 4).unwrap();
        next.publish(subject(), Sort::Hard, 0, 21);
        let (returns, _) = next.outdated_by(subject(), 19, u64::MAX);
        assert_eq!(returns.iter().map(|it| it.version).collect::<Vec<_>>(), [20, 21]);
    }
}
