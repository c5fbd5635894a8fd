//! The readers of the model: each looks up, joins or opens a flight, and is answered.

use super::acting::failures;
use super::payload::{Doing, ModelFlight, Version, Wanted};
use super::rules::{Rules, Serves, Without};
use super::storing;
use super::world::{Age, PROCESS, Reader, Violated, WRITING, World};
use crate::read_through::step::{LeaseHold, Memory};

impl World {
    /// What a reader does next.
    pub(super) fn read(
        &self,
        rules: &Rules,
        reader: usize,
        next: &mut Vec<Self>,
    ) -> Result<(), Violated> {
        match self.readers[reader] {
            Reader::Idle { forced: true } => {
                let required = self.required[usize::from(PROCESS[reader])];
                let opened = u8::MAX;
                let joining =
                    Reader::Joining { required, opened, forced: true, store_failed: false };
                self.go(reader, joining, next);
            }
            Reader::Idle { forced: false } => {
                let required = self.required[usize::from(PROCESS[reader])];
                let opened = self.opened;
                self.go(reader, Reader::LookingUp { required, opened, is_settled: false }, next);
            }
            Reader::LookingUp { required, opened, is_settled } => {
                self.look_up(rules, reader, (required, opened), is_settled, next)?;
            }
            Reader::Joining { required, opened, forced, store_failed } => {
                self.join(rules, reader, (required, opened), forced, store_failed, next)?;
            }
            Reader::Waiting { .. } => self.leave(reader, next)?,
            Reader::Over => {}
        }
        Ok(())
    }

    fn go(&self, reader: usize, to: Reader, next: &mut Vec<Self>) {
        let mut world = self.clone();
        world.readers[reader] = to;
        next.push(world);
    }

    fn flight_of(&self, process: u8, forced: bool) -> Option<usize> {
        let is_it = |at: &ModelFlight| at.process == process && at.is_forced == forced;
        self.flights.iter().position(is_it)
    }

    /// Looks up alone if there is no flight, or if the flight lets callers look up. Otherwise joins
    /// it.
    fn look_up(
        &self,
        rules: &Rules,
        reader: usize,
        (required, opened): (Version, u8),
        is_settled: bool,
        next: &mut Vec<Self>,
    ) -> Result<(), Violated> {
        let join = |store_failed| Reader::Joining { required, opened, forced: false, store_failed };
        let process = PROCESS[reader];
        let flight = self.flight_of(process, false).map(|at| &self.flights[at]);
        if !is_settled && flight.is_some_and(|flight| !flight.callers_look_up) {
            self.go(reader, join(false), next);
            return Ok(());
        } else if !is_settled && rules.keeps && usize::from(process) == WRITING {
            self.settle_lookup(rules, reader, (required, opened), next);
            return Ok(());
        }
        if self.left.failures > 0 {
            let mut failed = self.clone();
            failed.left.failures -= 1;
            failed.go(reader, join(true), next);
        }
        let entry = storing::looked_up(rules, &self.store);
        let value = entry.and_then(|entry| Some((entry.draft.version()?, entry.age, entry.fence)));
        let Some((version, age, fence)) = value else {
            self.go(reader, join(false), next);
            return Ok(());
        };
        if version < required {
            return Err(Violated("an entry is older than an invalidation"));
        }
        let refresh = match age {
            Age::Fresh => None,
            Age::Due => Some(Wanted::Other(fence)),
            Age::Stale if rules.stale == Serves::WhileRevalidating => Some(Wanted::Fresh),
            Age::Stale => {
                self.go(reader, join(false), next);
                return Ok(());
            }
        };
        let mut world = self.clone();
        world.readers[reader] = Reader::Over;
        if let (Some(wanted), None) = (refresh, flight) {
            let flight = world.open(process, false, wanted);
            flight.callers_look_up = true;
            flight.is_in_background = true;
        }
        next.push(world);
        Ok(())
    }

    fn join(
        &self,
        rules: &Rules,
        reader: usize,
        (required, opened): (Version, u8),
        forced: bool,
        store_failed: bool,
        next: &mut Vec<Self>,
    ) -> Result<(), Violated> {
        let mut world = self.clone();
        if let Some(at) = self.flight_of(PROCESS[reader], forced) {
            let flight = self.flights[at].id;
            // It may have asked before that flight was opened.
            let is_before = flight > opened || rules.without == Without::OrderOfLookups;
            let joined = if is_before { 0 } else { self.flights[at].generations };
            world.readers[reader] = Reader::Waiting { required, flight, joined, opener: false };
            next.push(world);
            return Ok(());
        }
        let wanted = if forced { Wanted::Nothing } else { Wanted::Fresh };
        let flight = world.open(PROCESS[reader], forced, wanted).id;
        world.readers[reader] = Reader::Waiting { required, flight, joined: 0, opener: true };
        if !store_failed {
            next.push(world);
            return Ok(());
        }
        let memory = Memory { accept: wanted, waited: false, fallback: None };
        for event in failures(rules, &world, LeaseHold::StoreDown, memory) {
            let mut failed = world.clone();
            let at = failed.flights.len() - 1;
            failed.flights[at].generations = 0;
            failed.flights[at].doing = Doing::Happened(event);
            next.push(failed);
        }
        Ok(())
    }
}
