//! What each process must have seen: its own invalidations at once, and those of others at once too,
//! unless it has a near tier. Then they may take until its copies are confirmed again.

use std::collections::HashMap;
use std::time::Duration;

use super::has_near;
use crate::answer::How;
use crate::history::checker::{Checker, Stale};
use crate::messages::{Event, What};

/// The checked reads of all processes.
#[derive(Debug)]
pub(crate) struct Readers {
    checkers: Vec<Checker>,
    silence: u64,
    pub(crate) tally: TagTally,
}

/// What happened, counted: a history in which nothing happened proves nothing.
#[derive(Debug, Default)]
pub(crate) struct TagTally {
    rounds: u64,
    pub(crate) bound: u64,
    bound_just_then: u64,
    invalidations: u64,
    failed_invalidations: u64,
    /// Those that their process has repeated later, or will repeat.
    pending_invalidations: u64,
    /// Calls that loaded, and during which an invalidation began and returned.
    overtaken_loads: u64,
    reads: HashMap<How, u64>,
    failed_reads: Vec<String>,
}

impl Readers {
    pub(crate) fn new(processes: usize, silence: Duration) -> Self {
        let checkers = (0..processes).map(|_| Checker::default()).collect();
        let silence = silence.as_micros() as u64;
        Self { checkers, silence, tally: TagTally::default() }
    }

    pub(crate) fn rounds(&self) -> u64 {
        self.tally.rounds
    }

    /// Checks a batch in which each process has played so many rounds.
    pub(crate) fn check(&mut self, rounds: u64, histories: &[Vec<Event>]) -> Result<(), Stale> {
        for process in 0..histories.len() {
            let seen = seen_by(process, histories, self.silence);
            let checked = self.checkers[process].check(&seen)?;
            self.tally.rounds += rounds;
            self.tally.bound += checked.bound;
            self.tally.bound_just_then += checked.bound_just_then;
            histories[process].iter().for_each(|event| self.tally.count(event));
        }
        self.tally.overtaken_loads += overtaken_loads(histories);
        Ok(())
    }

    /// Checks what belongs to no round.
    pub(crate) fn must_pass(&mut self, histories: &[Vec<Event>]) {
        self.check(0, histories).unwrap_or_else(|stale| panic!("{stale}"));
    }
}

/// The reads of a process, and all invalidations as they bind it.
fn seen_by(process: usize, histories: &[Vec<Event>], silence: u64) -> Vec<Event> {
    let mut seen = Vec::new();
    for (other, history) in histories.iter().enumerate() {
        let later = if other != process && has_near(process) { silence } else { 0 };
        let is_own = other == process;
        seen.extend(history.iter().filter_map(|event| {
            let (ended, what) = match event.what {
                What::Read { .. } | What::ReadFailed(_) if !is_own => return None,
                What::InvalidationKept { version } if is_own => {
                    (event.ended, What::Invalidated { version })
                }
                What::Invalidated { .. } => (event.ended + later, event.what.clone()),
                _ => (event.ended, event.what.clone()),
            };
            Some(Event { ended, what, ..*event })
        }));
    }
    seen
}

/// How many calls loaded while an invalidation began and returned. Stored, such a load may bring an
/// old value back.
fn overtaken_loads(histories: &[Vec<Event>]) -> u64 {
    let mut changes: HashMap<u64, Vec<&Event>> = HashMap::new();
    for event in histories.iter().flatten() {
        if let What::Invalidated { .. } = event.what {
            changes.entry(event.key).or_default().push(event);
        }
    }
    let is_overtaken = |load: &&Event| {
        let changes = changes.get(&load.key);
        let overtakes = |change: &&Event| load.began < change.began && change.ended < load.ended;
        changes.is_some_and(|changes| changes.iter().any(overtakes))
    };
    let is_load = |event: &&Event| matches!(event.what, What::Read { how: How::Led { .. }, .. });
    histories.iter().flatten().filter(is_load).filter(is_overtaken).count() as u64
}

impl TagTally {
    /// Asserts that there was enough of everything.
    pub(crate) fn is_rich(&self) {
        let ways = [
            How::CollapsedElsewhere,
            How::CollapsedHere,
            How::Hit,
            How::Led { stored: false },
            How::Led { stored: true },
        ];
        for how in ways {
            assert!(self.reads.contains_key(&how), "no caller was answered by {how:?}");
        }
        assert!(self.bound > self.rounds / 2 && self.bound_just_then > 0);
        // Many fail while Redis restarts, or on a busy machine. These bind the reads.
        assert!(self.invalidations > self.rounds / 10);
        assert!(self.overtaken_loads > 0);
        assert!(self.failed_reads.is_empty(), "{:?}", self.failed_reads);
    }

    fn count(&mut self, event: &Event) {
        match &event.what {
            What::Invalidated { .. } => self.invalidations += 1,
            What::InvalidationFailed => self.failed_invalidations += 1,
            What::InvalidationKept { .. } => self.pending_invalidations += 1,
            What::Read { how, .. } => *self.reads.entry(*how).or_default() += 1,
            What::ReadFailed(why) => self.failed_reads.push(why.clone()),
        }
    }
}

#[test]
fn copies_may_be_as_old_as_the_silence_and_no_older() {
    let event = |began, what| Event { key: 1, began, ended: began + 1, what };
    let read = |began| event(began, What::Read { version: 1, how: How::Hit });
    let invalidation = event(10, What::Invalidated { version: 2 });
    let is_allowed = |process: usize, began| {
        let mut histories = vec![Vec::new(); 3];
        histories[2].push(invalidation.clone());
        histories[process].push(read(began));
        Readers::new(3, Duration::from_micros(100)).check(1, &histories).is_ok()
    };
    // The first process has a near tier, and the second has none.
    assert!(is_allowed(0, 50) && !is_allowed(0, 112));
    assert!(is_allowed(1, 11) && !is_allowed(1, 50));
    assert!(!is_allowed(2, 50), "its own invalidation");
}

#[test]
fn an_invalidation_that_is_kept_binds_its_own_process_at_once_and_no_other() {
    let event = |began, what| Event { key: 1, began, ended: began + 1, what };
    let kept = event(10, What::InvalidationKept { version: 2 });
    let is_allowed = |process: usize| {
        let mut histories = vec![Vec::new(); 3];
        histories[0].push(kept.clone());
        histories[process].push(event(50, What::Read { version: 1, how: How::Hit }));
        Readers::new(3, Duration::from_micros(100)).check(1, &histories).is_ok()
    };
    assert!(!is_allowed(0) && is_allowed(1) && is_allowed(2));
}

#[test]
fn a_load_that_an_invalidation_overtakes_is_counted() {
    let load = Event {
        key: 1,
        began: 10,
        ended: 50,
        what: What::Read { version: 1, how: How::Led { stored: false } },
    };
    let change = |key, began, ended| {
        let what = What::Invalidated { version: 2 };
        Event { key, began, ended, what }
    };
    let overtaken = |change| overtaken_loads(&[vec![load.clone()], vec![change]]);
    assert_eq!(overtaken(change(1, 20, 30)), 1);
    for other in [change(1, 5, 20), change(1, 20, 60), change(2, 20, 30)] {
        assert_eq!(overtaken(other), 0);
    }
}
