//! The flights of the model: the actions on their waiters, and how their states begin.

use super::mutants::Mutant;
use super::payload::{Doing, Given, Kind, ModelFlight, Modelled, Wanted};
use super::world::{Reader, Violated, World};
use crate::step::{Event, LeaseHold, Memory, State, WaiterAction, begins};

impl World {
    /// The task of a flight is dropped, as when its runtime shuts down.
    pub(super) fn kill(&self, at: usize, next: &mut Vec<Self>) {
        if self.left.kills > 0 {
            let mut killed = self.clone();
            killed.left.kills -= 1;
            let flight = killed.flights.remove(at);
            killed.send_away(&flight, |opener| opener);
            next.push(killed);
        }
    }

    /// A flight closes: the remaining waiters ask again, or load individually.
    pub(super) fn close(&mut self, at: usize) -> Result<(), Violated> {
        let flight = self.flights.remove(at);
        if self.store.is_leased_to(flight.id) && !flight.is_release_lost {
            return Err(Violated("a flight is closed while it has the lease"));
        }
        if self.has_waiter(flight.id, |_, opener| opener) && !flight.is_releasing_at_close {
            return Err(Violated("the opener of a flight is sent away without an answer"));
        }
        self.send_away(&flight, |_| flight.is_releasing_at_close);
        Ok(())
    }

    fn send_away(&mut self, from: &ModelFlight, is_over: impl Fn(bool) -> bool) {
        for reader in &mut self.readers {
            if let Reader::Waiting { required, flight, opener, .. } = *reader
                && flight == from.id
            {
                let kind = from.kind;
                // No caller looks up for an uncached load.
                let opened = if kind == Kind::Uncached { u8::MAX } else { self.opened };
                let again = Reader::Joining { required, opened, kind, store_failed: false };
                *reader = if is_over(opener) { Reader::Over } else { again };
            }
        }
    }

    /// Whether a flight has a waiter that `of` picks, by its generation and whether it opened the
    /// flight.
    pub(super) fn has_waiter(&self, id: u8, of: impl Fn(u8, bool) -> bool) -> bool {
        self.readers.iter().any(|reader| match *reader {
            Reader::Waiting { flight, joined, opener, .. } => flight == id && of(joined, opener),
            _ => false,
        })
    }

    /// An action on the waiters of a flight.
    pub(super) fn act(
        &mut self,
        at: usize,
        action: WaiterAction<Modelled>,
    ) -> Result<(), Violated> {
        let id = self.flights[at].id;
        match action {
            WaiterAction::Complete(to, given) => {
                self.complete(id, |joined, opener| to.is_for(&joined, opener), given)
            }
            WaiterAction::SetFallback(asked, stale) => {
                let Given::Value { version, .. } = stale else {
                    return Err(Violated("a stale fallback is no value"));
                };
                let flight = &mut self.flights[at];
                flight.fallback = Some((asked, version));
                flight.callers_look_up = true;
                self.send_to_the_store(id, asked);
                Ok(())
            }
            WaiterAction::Detach(asked) => {
                let flight = &mut self.flights[at];
                flight.callers_look_up = true;
                flight.is_in_background = true;
                self.send_to_the_store(id, asked);
                Ok(())
            }
            WaiterAction::Release => {
                let flight = self.flights[at].clone();
                self.send_away(&flight, |_| true);
                Ok(())
            }
            WaiterAction::ReleaseAtClose => {
                self.flights[at].is_releasing_at_close = true;
                Ok(())
            }
        }
    }

    fn send_to_the_store(&mut self, id: u8, asked: u8) {
        for reader in &mut self.readers {
            if let Reader::Waiting { required, flight, joined, .. } = *reader
                && flight == id
                && joined >= asked
            {
                let opened = self.opened;
                *reader = Reader::LookingUp { required, opened, is_settled: false };
            }
        }
    }

    /// Completes some waiters. Fails if one must not get that outcome.
    pub(super) fn complete(
        &mut self,
        id: u8,
        to: impl Fn(u8, bool) -> bool,
        given: Given,
    ) -> Result<(), Violated> {
        let witnesses = self.witnesses;
        for reader in &mut self.readers {
            let Reader::Waiting { required, flight, joined, opener } = *reader else { continue };
            if flight != id || !to(joined, opener) {
                continue;
            }
            match given {
                Given::Value { version, is_fresh, .. } if required.forbids(version, is_fresh) => {
                    return Err(Violated("a value is older than an invalidation"));
                }
                Given::Value { is_private: true, .. } if !opener => {
                    return Err(Violated("a private answer is given to another caller"));
                }
                Given::Failure { took_too_long: None } if witnesses < 2 && !opener => {
                    return Err(Violated("a caller is given the failure of another request"));
                }
                Given::Failure { took_too_long: Some(began) } if joined >= began => {
                    return Err(Violated("a caller is given a limit that it has not waited for"));
                }
                _ => *reader = Reader::Over,
            }
        }
        Ok(())
    }

    /// A flight begins a state. A request to the store begins a generation.
    pub(super) fn enter(
        &mut self,
        at: usize,
        state: State<Modelled>,
        mutant: Mutant,
    ) -> Result<(), Violated> {
        let flight = &self.flights[at];
        let event = match &state {
            State::Closed => return self.close(at),
            State::LookingUp { late } if !self.has_waiter(flight.id, |it, _| it >= *late) => {
                Event::NoneRemain
            }
            State::Loading { hold, .. } => {
                let is_awaited =
                    || mutant == Mutant::LoadsForWaiters || self.has_waiter(flight.id, |_, _| true);
                match begins(hold, flight.job, is_awaited) {
                    true => return self.begin_load(at, state),
                    false => Event::NotLoaded { hold: *hold },
                }
            }
            State::Acquiring | State::LookingUp { .. } | State::Committing { .. } => {
                self.flights[at].generations += 1;
                self.flights[at].doing = Doing::Acting(state);
                return Ok(());
            }
            _ => {
                self.flights[at].doing = Doing::Acting(state);
                return Ok(());
            }
        };
        self.flights[at].doing = Doing::Happened(event);
        Ok(())
    }

    fn begin_load(&mut self, at: usize, state: State<Modelled>) -> Result<(), Violated> {
        let id = self.flights[at].id;
        let leads = |other: &ModelFlight| {
            let loads = matches!(
                other.doing,
                Doing::Acting(State::Loading { hold: LeaseHold::Lease(_), .. })
            );
            loads && other.id != id && self.store.is_leased_to(other.id)
        };
        if matches!(state, State::Loading { hold: LeaseHold::Nothing, .. })
            && !self.is_uncacheable
            && self.flights.iter().any(leads)
        {
            return Err(Violated("a key is loaded twice though its leader lives"));
        }
        let is_leased = matches!(state, State::Loading { hold: LeaseHold::Lease(_), .. });
        if !is_leased && !self.has_waiter(id, |_, _| true) {
            return Err(Violated("a load without a lease is for no caller"));
        }
        let flight = &mut self.flights[at];
        flight.job = false;
        flight.generations += 1;
        flight.read = None;
        flight.doing = Doing::Acting(state);
        Ok(())
    }

    /// Opens a flight.
    pub(super) fn open(&mut self, process: u8, kind: Kind, wanted: Wanted) -> &mut ModelFlight {
        self.opened += 1;
        let memory = Memory { accept: wanted, waited: false, fallback: None };
        self.flights.push(ModelFlight {
            id: self.opened,
            process,
            kind,
            memory,
            generations: 1,
            job: true,
            callers_look_up: false,
            is_in_background: false,
            is_releasing_at_close: false,
            is_release_lost: false,
            fallback: None,
            read: None,
            seen: None,
            is_settled: false,
            doing: Doing::Acting(State::Acquiring),
        });
        let last = self.flights.len() - 1;
        &mut self.flights[last]
    }
}
