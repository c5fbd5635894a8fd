//! Another writer of the model: it changes the source and puts the new value into the store.
//! [`after_put`] decides what it does after each attempt.
//!
//! A put takes its place in the order of invalidations when its lease is granted. One that the store
//! executes before may be of a later change of the source: that race of the writers is documented, and
//! left out here.

use super::payload::{Drafted, Grant, Version, Wanted};
use super::putter::{Put, Putter};
use super::rules::{Rules, Without};
use super::storing::{self, Asked, Committed};
use super::world::{Message, Violated, World};
use crate::step::{AfterPut, PutAttempt, after_put};

/// The process of the other writer.
const PUTTING: u8 = 1;

impl World {
    /// Whether an invalidation would be of a later change of the source than a put that has no lease
    /// yet.
    pub(super) fn is_order_open(&self) -> bool {
        match self.putter {
            Putter::Asking { put, .. } | Putter::Clearing { put, retries: true, .. } => {
                put.version < self.source
            }
            _ => false,
        }
    }

    /// What the other writer does next.
    pub(super) fn put(&self, rules: &Rules, next: &mut Vec<Self>) -> Result<(), Violated> {
        match self.putter {
            Putter::Idle if self.left.puts == 0 => {}
            Putter::Idle => {
                let mut world = self.clone();
                world.left.puts -= 1;
                world.source += 1;
                world.attempt(world.source, true);
                next.push(world);
            }
            Putter::Asking { put, seen } => self.ask_to_put(rules, put, seen, next),
            Putter::Committing { put, lease, seen } => {
                self.commit_put(rules, put, lease, seen, next)?;
            }
            Putter::Clearing { put, retries, has_failed } => {
                self.send_twice(Message::Clear { version: put.version }, next);
                self.lose_put(next, |world| world.putter = Putter::Idle);
                let mut done = self.clone();
                if rules.without != Without::ClearingOfPuts {
                    done.clear(put.version);
                }
                done.lose_put(next, |world| world.putter = Putter::Idle);
                match retries {
                    true => done.attempt(put.version, false),
                    false => done.end_put(put.version, !has_failed),
                }
                next.push(done);
            }
        }
        Ok(())
    }

    fn attempt(&mut self, version: Version, is_first: bool) {
        self.opened += 1;
        let put = Put { version, id: self.opened, is_first };
        self.putter = Putter::Asking { put, seen: None };
    }

    fn attempted(&mut self, put: Put, attempt: Option<PutAttempt>) {
        let next = after_put(attempt, put.is_first);
        let (retries, has_failed) = (next == AfterPut::ClearAndRetry, attempt.is_none());
        match next {
            AfterPut::End => self.end_put(put.version, true),
            AfterPut::Clear | AfterPut::ClearAndRetry => {
                self.putter = Putter::Clearing { put, retries, has_failed };
            }
        }
    }

    /// A put that succeeds leaves nothing older.
    fn end_put(&mut self, version: Version, has_succeeded: bool) {
        self.putter = Putter::Idle;
        if has_succeeded {
            self.require(version, false);
        }
    }

    /// The store executes the invalidation of a put.
    pub(super) fn clear(&mut self, version: Version) {
        self.store.entry = None;
        self.store.end(false);
        self.invalidated = self.invalidated.max(version);
    }

    fn ask_to_put(&self, rules: &Rules, put: Put, seen: Option<u8>, next: &mut Vec<Self>) {
        let fails = |world: &mut Self| world.attempted(put, None);
        self.lose_put(next, fails);
        let mut done = self.clone();
        if rules.is_tagged && seen.is_none() && rules.without != Without::EpochsOfPuts {
            let seen = Some(storing::touch(rules, &mut done.store));
            done.putter = Putter::Asking { put, seen };
            next.push(done);
            return;
        }
        let accept = Wanted::Nothing;
        self.send_twice(Message::Acquire { id: put.id, process: PUTTING, accept, seen }, next);
        match storing::ask(rules, &mut done.store, (put.id, PUTTING), accept, seen) {
            Asked::Granted { fence, before, .. } => {
                let epoch = seen.or(self.store.epoch).unwrap_or_default();
                let lease = Grant { fence, before, replaces: false, epoch };
                done.putter = Putter::Committing { put, lease, seen: None };
            }
            Asked::Busy { .. } | Asked::Found(_) | Asked::HeldUp => {
                done.attempted(put, Some(PutAttempt::Busy));
            }
        }
        done.lose_put(next, fails);
        next.push(done);
    }

    fn commit_put(
        &self,
        rules: &Rules,
        put: Put,
        mut lease: Grant,
        seen: Option<u8>,
        next: &mut Vec<Self>,
    ) -> Result<(), Violated> {
        let draft = Drafted::Value(put.version);
        let fails = |world: &mut Self| world.attempted(put, None);
        if !rules.is_tagged || seen.is_some() {
            self.send_twice(Message::Commit { id: put.id, lease, draft, seen }, next);
        }
        self.lose_put(next, fails);
        let mut done = self.clone();
        match rules.without {
            Without::FencesOfPuts => {
                done.store.fence += 1;
                lease.fence = done.store.fence;
            }
            // Of a tag that was forgotten, it is not known whether it has changed.
            Without::EpochsOfPuts if seen.is_none() && self.store.epoch.is_none() => {
                lease.epoch = storing::touch(rules, &mut done.store);
            }
            _ => {}
        }
        match storing::commit(rules, &mut done, (put.id, seen), lease, draft)? {
            Committed::Begun { epoch } => {
                done.putter = Putter::Committing { put, lease, seen: Some(epoch) };
            }
            Committed::Stored => {
                // What loads before have read is outdated, also when the entry that replaces it is gone.
                if rules.without != Without::WatermarksOfPuts {
                    done.store.watermark = lease.fence;
                }
                done.attempted(put, Some(PutAttempt::Stored));
            }
            Committed::Superseded => done.attempted(put, Some(PutAttempt::Refused)),
        }
        done.lose_put(next, fails);
        next.push(done);
        Ok(())
    }

    /// A request of a put is lost, or the reply to one that was executed.
    fn lose_put(&self, next: &mut Vec<Self>, fails: impl Fn(&mut Self)) {
        if self.left.failures > 0 {
            let mut lost = self.clone();
            lost.left.failures -= 1;
            fails(&mut lost);
            next.push(lost);
        }
    }
}
