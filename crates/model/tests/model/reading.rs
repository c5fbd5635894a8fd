//! The readers of the model: each looks up, joins or opens a flight, and is answered.

use super::acting::failures;
use super::payload::{Doing, Kind, ModelFlight, Wanted};
use super::rules::{Rules, Serves, Without};
use super::stored::Age;
use super::storing;
use super::world::{PROCESS, Reader, Required, Violated, WRITING, World};
use crate::step::{Event, LeaseHold};

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
                let kind = Kind::Forced;
                let joining = Reader::Joining { required, opened, kind, store_failed: false };
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
            Reader::Joining { required, opened, kind, store_failed } => {
                self.join(rules, reader, (required, opened), kind, store_failed, next)?;
            }
            Reader::Waiting { .. } => self.leave(rules, reader, next)?,
            Reader::Over => {}
        }
        Ok(())
    }

    fn go(&self, reader: usize, to: Reader, next: &mut Vec<Self>) {
        let mut world = self.clone();
        world.readers[reader] = to;
        next.push(world);
    }

    fn flight_of(&self, process: u8, kind: Kind) -> Option<usize> {
        let is_it = |at: &ModelFlight| at.process == process && at.kind == kind;
        self.flights.iter().position(is_it)
    }

    /// Looks up alone if there is no flight, or if the flight lets callers look up. Otherwise joins
    /// it.
    fn look_up(
        &self,
        rules: &Rules,
        reader: usize,
        (required, opened): (Required, u8),
        is_settled: bool,
        next: &mut Vec<Self>,
    ) -> Result<(), Violated> {
        let kind = Kind::Answer;
        let join = |store_failed| Reader::Joining { required, opened, kind, store_failed };
        let process = PROCESS[reader];
        let flight = self.flight_of(process, kind).map(|at| &self.flights[at]);
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
        if required.forbids(version, age != Age::Stale) {
            return Err(Violated("an entry is older than an invalidation"));
        }
        match age {
            Age::Fresh => self.serve(reader, None, next),
            Age::Due => self.serve(reader, Some(Wanted::Other(fence)), next),
            Age::Stale if rules.stale == Serves::WhileRevalidating => {
                self.serve(reader, Some(Wanted::Fresh), next);
            }
            Age::Stale => self.go(reader, join(false), next),
        }
        Ok(())
    }

    /// A reader is answered by an entry. One that is due for a refresh gets it in the background.
    fn serve(&self, reader: usize, refresh: Option<Wanted>, next: &mut Vec<Self>) {
        let (process, kind) = (PROCESS[reader], Kind::Answer);
        let mut world = self.clone();
        world.readers[reader] = Reader::Over;
        if let (Some(wanted), None) = (refresh, self.flight_of(process, kind)) {
            let flight = world.open(process, kind, wanted);
            (flight.callers_look_up, flight.is_in_background) = (true, true);
        }
        next.push(world);
    }

    fn join(
        &self,
        rules: &Rules,
        reader: usize,
        (required, opened): (Required, u8),
        kind: Kind,
        store_failed: bool,
        next: &mut Vec<Self>,
    ) -> Result<(), Violated> {
        let mut world = self.clone();
        if let Some(at) = self.flight_of(PROCESS[reader], kind) {
            let flight = self.flights[at].id;
            // It may have asked before that flight was opened.
            let is_before = flight > opened || rules.without == Without::OrderOfLookups;
            let joined = if is_before { 0 } else { self.flights[at].generations };
            world.readers[reader] = Reader::Waiting { required, flight, joined, opener: false };
            next.push(world);
            return Ok(());
        }
        let wanted = if kind == Kind::Forced { Wanted::Nothing } else { Wanted::Fresh };
        let flight = world.open(PROCESS[reader], kind, wanted).id;
        world.readers[reader] = Reader::Waiting { required, flight, joined: 0, opener: true };
        let begins = match kind {
            Kind::Uncached => vec![Event::WaitRanOut],
            _ if store_failed => failures(rules, &world, LeaseHold::NotAsked),
            _ => {
                next.push(world);
                return Ok(());
            }
        };
        for event in begins {
            let mut begun = world.clone();
            let at = begun.flights.len() - 1;
            begun.flights[at].generations = 0;
            begun.flights[at].doing = Doing::Happened(event);
            next.push(begun);
        }
        Ok(())
    }

    /// A caller leaves. The opener of a flight may take its request back, as for an uncached load.
    /// A caller with a stale fallback may take that.
    pub(super) fn leave(
        &self,
        rules: &Rules,
        reader: usize,
        next: &mut Vec<Self>,
    ) -> Result<(), Violated> {
        let Reader::Waiting { required, flight: id, joined, opener } = self.readers[reader] else {
            return Ok(());
        };
        if self.left.leaves == 0 {
            return Ok(());
        }
        let mut left = self.clone();
        left.left.leaves -= 1;
        left.readers[reader] = Reader::Over;
        let Some(flight) = left.flights.iter().find(|at| at.id == id) else { return Ok(()) };
        if let Some((asked, version)) = flight.fallback
            && joined < asked
            && required.forbids(version, false)
        {
            return Err(Violated("a stale fallback is older than an invalidation"));
        }
        let (kind, has_request) = (flight.kind, !opener || flight.job);
        let mut took = left.clone();
        let of_it = took.flights.iter_mut().filter(|at| opener && at.id == id);
        of_it.for_each(|flight| flight.job = false);
        if opener && has_request {
            next.push(took.clone());
        }
        // Its wait has run out, and it loads without a lease.
        if rules.hurries && has_request && kind != Kind::Uncached {
            let (opened, kind) = (u8::MAX, Kind::Uncached);
            took.readers[reader] = Reader::Joining { required, opened, kind, store_failed: false };
            next.push(took);
        }
        next.push(left);
        Ok(())
    }
}
