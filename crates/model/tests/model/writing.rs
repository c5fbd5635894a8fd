//! The writer of the model, and what its process does with invalidations that fail: it keeps them,
//! repeats them, and asks the store for nothing before that.

use super::acting::failures;
use super::payload::{Kind, Modelled, Version};
use super::rules::{Rules, Without};
use super::world::{Message, Reader, Required, WRITING, World, Writer};
use crate::step::{Event, LeaseHold, State};

impl World {
    /// A writer changes the source, then invalidates the key or its tag, then has that confirmed.
    pub(super) fn write(&self, rules: &Rules, next: &mut Vec<Self>) {
        let mut world = self.clone();
        match self.writer {
            Writer::Idle if self.left.writes == 0 => return,
            Writer::Idle => {
                world.left.writes -= 1;
                world.source += 1;
                world.writer = Writer::Written;
            }
            Writer::Written if self.is_order_open() => return,
            Writer::Written => {
                self.send_twice(Message::Invalidate, next);
                self.fail_to_invalidate(rules, next);
                world.invalidate(rules);
                world.writer = Writer::Invalidated(world.source);
            }
            Writer::Invalidated(version) => {
                world.require(version, rules.expires);
                world.kept = None;
                world.writer = Writer::Idle;
            }
        }
        next.push(world);
    }

    /// The invalidation or its reply is lost, and the process keeps it. It binds the requests of
    /// that process from here on.
    fn fail_to_invalidate(&self, rules: &Rules, next: &mut Vec<Self>) {
        if !rules.keeps {
            return;
        }
        for mut world in self.lose_invalidation(rules) {
            world.kept = (rules.without != Without::KeptInvalidations).then_some(world.source);
            world.required[WRITING].raise(world.source, rules.expires);
            world.writer = Writer::Idle;
            next.push(world);
        }
    }

    /// The request is lost, or its reply.
    fn lose_invalidation(&self, rules: &Rules) -> Vec<Self> {
        if self.left.failures == 0 {
            return vec![];
        }
        let mut lost = self.clone();
        lost.left.failures -= 1;
        let mut done = lost.clone();
        done.invalidate(rules);
        vec![lost, done]
    }

    /// The store executes an invalidation.
    pub(super) fn invalidate(&mut self, rules: &Rules) {
        let store = &mut self.store;
        if rules.is_tagged {
            store.bump();
        } else {
            store.entry = store.entry.filter(|_| rules.expires).and_then(|it| rules.expired(it));
            store.end(rules.expires && rules.without == Without::LeasesAtExpiries);
        }
        self.invalidated = self.source;
    }

    /// A task repeats the pending invalidation: the store executes it, and then the reply comes.
    pub(super) fn replay(&self, rules: &Rules, next: &mut Vec<Self>) {
        let mut world = self.clone();
        match (self.replayed, self.kept) {
            (None, None) => return,
            (None, Some(version)) => {
                world.invalidate(rules);
                world.replayed = Some(version);
            }
            (Some(version), kept) => {
                world.replayed = None;
                if self.left.failures > 0 {
                    let mut lost = world.clone();
                    lost.left.failures -= 1;
                    next.push(lost);
                }
                // One that was kept since stays.
                if kept == Some(version) || rules.without == Without::NumbersOfKept {
                    world.settle(rules, version);
                }
            }
        }
        next.push(world);
    }

    /// What was kept is done, so it binds the requests of all processes.
    fn settle(&mut self, rules: &Rules, version: Version) {
        self.kept = None;
        self.require(version, rules.expires);
    }

    /// What is older than this version was invalidated or has expired, for all processes.
    pub(super) fn require(&mut self, version: Version, has_expired: bool) {
        self.required.iter_mut().for_each(|it| it.raise(version, has_expired));
    }

    /// The same worlds, after the pending invalidation was repeated for an operation; and those in which
    /// that has failed.
    fn settled(&self, rules: &Rules, ignored: Without) -> (Self, Vec<Self>) {
        let mut settled = self.clone();
        let Some(version) = self.kept.filter(|_| rules.without != ignored) else {
            return (settled, vec![]);
        };
        settled.invalidate(rules);
        settled.settle(rules, version);
        (settled, self.lose_invalidation(rules))
    }

    /// A reader has the pending invalidation repeated before its lookup.
    pub(super) fn settle_lookup(
        &self,
        rules: &Rules,
        reader: usize,
        (required, opened): (Required, u8),
        next: &mut Vec<Self>,
    ) {
        let (mut settled, failed) = self.settled(rules, Without::ReplaysBeforeLookups);
        settled.readers[reader] = Reader::LookingUp { required, opened, is_settled: true };
        next.push(settled);
        for mut world in failed {
            let kind = Kind::Answer;
            world.readers[reader] = Reader::Joining { required, opened, kind, store_failed: true };
            next.push(world);
        }
    }
}

/// A flight has the pending invalidation repeated before its request. Returns whether that is the next
/// step.
pub(super) fn settle_flight(
    rules: &Rules,
    world: &World,
    at: usize,
    state: &State<Modelled>,
    next: &mut Vec<World>,
) -> bool {
    let flight = &world.flights[at];
    if !rules.keeps || flight.is_settled || usize::from(flight.process) != WRITING {
        return false;
    }
    let (events, ignored) = match state {
        State::Acquiring => {
            let events = failures(rules, world, LeaseHold::Unacknowledged);
            (events, Without::ReplaysBeforeAcquires)
        }
        State::LookingUp { .. } => {
            let can_load = flight.job;
            let gone = Event::Gone { accept: flight.memory.accept, can_load };
            (vec![gone], Without::ReplaysBeforeLookups)
        }
        State::Committing { began, outcome, .. } => {
            let failed = Event::CommitFailed { began: *began, outcome: *outcome };
            (vec![failed], Without::ReplaysBeforeCommits)
        }
        _ => return false,
    };
    let (mut settled, failed) = world.settled(rules, ignored);
    settled.flights[at].is_settled = true;
    next.push(settled);
    for world in failed {
        for event in &events {
            let mut world = world.clone();
            world.flights[at].happen(event.clone());
            next.push(world);
        }
    }
    true
}
