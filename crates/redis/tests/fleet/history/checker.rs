//! Stale reads, which a history must not contain, and a proof that the checker finds them.

use std::collections::HashMap;
use std::fmt;

use crate::messages::{Event, What};

/// Checks a history, batch by batch; a batch begins when the one before is over.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    /// For each key, the newest version whose invalidation returned in an earlier batch.
    before: HashMap<u64, u64>,
}

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Checked {
    /// Reads that had to be of some version or newer.
    pub(crate) bound: u64,
    /// Those of them that began within a millisecond of the return that bound them.
    pub(crate) bound_just_then: u64,
}

/// A read that was answered with what had been invalidated before it began.
#[derive(Debug)]
pub(crate) struct Stale {
    read: Event,
    least: u64,
    history: Vec<Event>,
}

impl Checker {
    pub(crate) fn check(&mut self, history: &[Event]) -> Result<Checked, Stale> {
        let returns = self.returns(history);
        let mut checked = Checked::default();
        for event in history {
            let What::Read { version, .. } = event.what else {
                continue;
            };
            let Some(bound) = returns.get(&event.key).and_then(|all| latest(all, event.began))
            else {
                continue;
            };
            if version < bound.version {
                return Err(Stale::of(event, bound.version, history));
            }
            checked.bound += 1;
            let just_then = event.began - bound.at < A_MILLISECOND;
            checked.bound_just_then += u64::from(just_then);
        }
        self.remember(&returns);
        Ok(checked)
    }

    /// For each key, in order of time: when a return made which version the oldest allowed one.
    fn returns(&self, history: &[Event]) -> HashMap<u64, Vec<Return>> {
        let mut returns: HashMap<u64, Vec<Return>> = HashMap::new();
        for (key, version) in &self.before {
            let at = 0;
            let version = *version;
            returns.insert(*key, vec![Return { at, version }]);
        }
        for event in history {
            if let What::Invalidated { version } = event.what {
                let at = event.ended;
                returns.entry(event.key).or_default().push(Return { at, version });
            }
        }
        for returns in returns.values_mut() {
            returns.sort_by_key(|returned| returned.at);
            // What is newer than an earlier one allows no less than that.
            let mut newest = 0;
            returns.retain(|returned| {
                returned.version > newest && {
                    newest = returned.version;
                    true
                }
            });
        }
        returns
    }

    fn remember(&mut self, returns: &HashMap<u64, Vec<Return>>) {
        for (key, returns) in returns {
            let last = returns.last().expect("a key is there for a return");
            self.before.insert(*key, last.version);
        }
    }
}

/// When an invalidation had returned, and of which version the source had been when it began.
#[derive(Clone, Copy, Debug)]
struct Return {
    at: u64,
    version: u64,
}

/// The latest return before that moment. What bears the same time may have been later.
fn latest(returns: &[Return], moment: u64) -> Option<Return> {
    let before = returns.partition_point(|returned| returned.at < moment);
    returns[..before].last().copied()
}

impl Stale {
    fn of(read: &Event, least: u64, history: &[Event]) -> Self {
        let near = |event: &&Event| {
            event.key == read.key && event.began + NEAR > read.began && event.began < read.ended
        };
        let mut history: Vec<_> = history.iter().filter(near).cloned().collect();
        history.sort_by_key(|event| event.began);
        Self { read: read.clone(), least, history }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "older than {} when it began: {:?}", self.least, self.read)?;
        for Event { began, ended, what, .. } in &self.history {
            let [began, ended] = [began, ended].map(|at| *at as i64 - self.read.began as i64);
            writeln!(f, "{began:>9} to {ended:>9} us: {what:?}")?;
        }
        Ok(())
    }
}

const A_MILLISECOND: u64 = 1_000;

/// How much of what went before a stale read is shown, in us.
const NEAR: u64 = 500_000;

#[test]
fn a_read_of_what_an_earlier_return_had_removed_is_refused() {
    let history = [read(1, 10, 20, 1), invalidation(1, 30, 40, 2), read(1, 41, 50, 1)];
    let stale = Checker::default().check(&history).unwrap_err();
    assert_eq!((stale.read.began, stale.least), (41, 2));
}

#[test]
fn a_read_that_began_before_the_return_may_be_old() {
    for began in [0, 29, 30, 39, 40] {
        let history = [invalidation(1, 30, 40, 2), read(1, began, 100, 1)];
        assert!(Checker::default().check(&history).is_ok(), "{began}");
    }
}

#[test]
fn a_read_may_always_be_newer() {
    let history = [invalidation(1, 30, 40, 2), read(1, 41, 50, 3)];
    let checked = Checker::default().check(&history).unwrap();
    let [bound, bound_just_then] = [1, 1];
    assert_eq!(checked, Checked { bound, bound_just_then });
}

#[test]
fn the_newest_of_all_returns_counts_in_any_order_of_reports() {
    let returns = [(60, 3), (40, 4), (50, 2)].map(|(at, version)| invalidation(1, 30, at, version));
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let mut history: Vec<_> = order.iter().map(|at| returns[*at].clone()).collect();
        history.push(read(1, 61, 70, 3));
        assert_eq!(Checker::default().check(&history).unwrap_err().least, 4);
    }
}

#[test]
fn other_keys_and_failed_invalidations_bind_no_read() {
    let failed = Event { what: What::InvalidationFailed, ..invalidation(1, 30, 40, 2) };
    let history = [invalidation(2, 30, 40, 2), failed, read(1, 41, 50, 1)];
    assert_eq!(Checker::default().check(&history).unwrap(), Checked::default());
}

#[test]
fn what_had_returned_in_an_earlier_batch_binds_all_later_ones() {
    let mut checker = Checker::default();
    checker.check(&[invalidation(1, 30, 40, 2)]).unwrap();
    checker.check(&[read(1, 50, 60, 2)]).unwrap();
    assert!(checker.check(&[read(1, 70, 80, 1)]).is_err());
}

fn read(key: u64, began: u64, ended: u64, version: u64) -> Event {
    let how = crate::answer::How::Hit;
    let what = What::Read { version, how };
    Event { key, began, ended, what }
}

fn invalidation(key: u64, began: u64, ended: u64, version: u64) -> Event {
    let what = What::Invalidated { version };
    Event { key, began, ended, what }
}
