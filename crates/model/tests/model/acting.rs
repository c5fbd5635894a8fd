//! What can happen in each state of a flight: the replies of the store and of the loader.

use super::payload::{
    Drafted, Given, Grant, Kind, ModelFallback, ModelFlight, Modelled, OtherLease, Wanted,
};
use super::rules::{Rules, Serves, Without};
use super::stored::{Age, StoredEntry, ToldValue};
use super::storing::{self, Asked, Committed};
use super::world::{Message, Violated, World};
use crate::step::{
    AnswerKind, Event, KnownFailure, KnownOfKey, LeaseHold, LoadAnswer, Meanwhile, Memory, Record,
    Share, State, Verdict, verdict,
};

/// Adds every world that can follow when a flight performs its state.
pub(super) fn act(
    rules: &Rules,
    world: &World,
    at: usize,
    state: &State<Modelled>,
    next: &mut Vec<World>,
) -> Result<(), Violated> {
    let mut to = Successors { rules, world, at, next };
    to.send_twice(state);
    match state.clone() {
        State::Acquiring => to.acquire(),
        State::LookingUp { .. } => to.look_up(),
        State::Waiting { asked, other, .. } => to.wait(asked, other),
        State::Loading { hold, meanwhile } => to.load(hold, meanwhile)?,
        State::Committing { lease, draft, began, outcome } => {
            let asked = world.flights[at].generations;
            let failed = Event::CommitFailed { began, outcome };
            to.lose(&failed);
            let mut done = world.clone();
            let ModelFlight { id, seen, .. } = world.flights[at];
            let committed = storing::commit(rules, &mut done, (id, seen), lease, draft)?;
            if let Committed::Begun { epoch } = committed {
                done.flights[at].seen = Some(epoch);
            }
            to.fail_after(&done, &failed);
            match committed {
                Committed::Begun { .. } => to.next.push(done),
                Committed::Stored => to.happen(done, Event::Stored { asked, outcome }),
                Committed::Superseded => {
                    to.happen(done, Event::Superseded { began, outcome });
                }
            }
        }
        State::Releasing { lease: Some(lease), record: Some(Record::Failure(before)) } => {
            to.report(lease, before)?;
        }
        State::Releasing {
            lease: Some(lease),
            record: Some(Record::Value(marker) | Record::Marker(marker)),
        } => to.mark(lease, marker)?,
        State::Releasing { .. } => to.release(),
        State::CoolingDown { failure, until, hold } => {
            to.cool_down(Event::JoinedCooldown { failure, until, hold }, hold);
        }
        State::Closed => {}
    }
    Ok(())
}

/// Collects the worlds that can follow.
struct Successors<'a> {
    rules: &'a Rules,
    world: &'a World,
    at: usize,
    next: &'a mut Vec<World>,
}

impl Successors<'_> {
    fn flight(&self) -> &ModelFlight {
        &self.world.flights[self.at]
    }

    fn happen(&mut self, mut world: World, event: Event<Modelled>) {
        world.flights[self.at].happen(event);
        self.next.push(world);
    }

    /// Releases the lease with a marker.
    fn mark(&mut self, lease: Grant, marker: Drafted) -> Result<(), Violated> {
        let mut done = self.world.clone();
        let ModelFlight { id, seen, .. } = self.world.flights[self.at];
        storing::store(self.rules, &mut done, (id, seen), lease, marker)?;
        self.give_up(done);
        Ok(())
    }

    /// A request is lost before the store has executed it.
    fn lose(&mut self, event: &Event<Modelled>) {
        let world = self.world.clone();
        self.fail_after(&world, event);
    }

    /// A reply is lost.
    fn fail_after(&mut self, done: &World, event: &Event<Modelled>) {
        if done.left.failures > 0 {
            let mut failed = done.clone();
            failed.left.failures -= 1;
            self.happen(failed, event.clone());
        }
    }

    fn give_up(&mut self, done: World) {
        self.lose(&Event::Unacknowledged);
        self.fail_after(&done, &Event::Unacknowledged);
        self.happen(done, Event::Released);
    }

    /// The request of a state is sent twice, and the second copy is under way until the network
    /// delivers it.
    fn send_twice(&mut self, state: &State<Modelled>) {
        let ModelFlight { id, process, seen, memory, .. } = *self.flight();
        let is_asking = !self.rules.is_tagged || seen.is_some();
        let message = match *state {
            State::Acquiring if is_asking => {
                Message::Acquire { id, process, accept: memory.accept, seen }
            }
            State::Committing { lease, draft, .. } if is_asking => {
                Message::Commit { id, lease, draft, seen }
            }
            State::Releasing { lease: Some(lease), record: Some(Record::Failure(before)) } => {
                Message::Report { id, lease, before }
            }
            State::Releasing {
                lease: Some(lease),
                record: Some(Record::Value(draft) | Record::Marker(draft)),
            } => Message::Commit { id, lease, draft, seen },
            State::Releasing { .. } => Message::Release { id },
            _ => return,
        };
        self.world.send_twice(message, self.next);
    }

    fn report(&mut self, lease: Grant, before: u8) -> Result<(), Violated> {
        let mut done = self.world.clone();
        storing::report(self.rules, &mut done.store, self.flight().id, lease, before)?;
        self.give_up(done);
        Ok(())
    }

    fn release(&mut self) {
        let mut done = self.world.clone();
        storing::give_up(&mut done.store, self.flight().id);
        if self.world.left.failures > 0 {
            let mut lost = self.world.clone();
            lost.left.failures -= 1;
            lost.flights[self.at].is_release_lost = true;
            self.happen(lost, Event::Released);
        }
        self.happen(done, Event::Released);
    }

    fn acquire(&mut self) {
        if self.world.left.queues > 0 {
            self.queue();
        }
        if self.rules.without == Without::AnswersBeforeMessages {
            self.be_told(self.world, self.flight().generations, |_| true);
        }
        let mut done = self.world.clone();
        if self.rules.is_tagged && self.flight().seen.is_none() {
            done.flights[self.at].seen = Some(storing::touch(self.rules, &mut done.store));
            self.next.push(done.clone());
        } else {
            for event in self.ask(&mut done) {
                self.happen(done.clone(), event);
            }
        }
        if self.world.left.failures == 0 {
            return;
        }
        for event in failures(self.rules, self.world, LeaseHold::Unacknowledged) {
            self.lose(&event);
            self.fail_after(&done, &event);
        }
        // A store that is known to be down gets no request.
        for event in failures(self.rules, self.world, LeaseHold::NotAsked) {
            self.lose(&event);
        }
    }

    /// As many loads are under way as may be. The flight looks for what its callers may have meanwhile,
    /// and queues.
    fn queue(&mut self) {
        let ModelFlight { memory, generations: asked, kind, .. } = *self.flight();
        let found = storing::looked_up(self.rules, &self.world.store);
        let mut done = self.world.clone();
        done.left.queues -= 1;
        let is_fresh = |entry: &StoredEntry| entry.age != Age::Stale;
        match found {
            Some(entry) if is_fresh(&entry) && entry.answers(memory.accept) => {
                if let Drafted::Value(_) = entry.draft {
                    let events = self.found(asked, entry);
                    events.into_iter().for_each(|event| self.happen(done.clone(), event));
                    return;
                }
            }
            _ => {}
        }
        let value =
            |entry: StoredEntry| Some(ModelFallback { version: entry.draft.version()?, asked });
        let fallback = found.filter(|entry| !is_fresh(entry)).and_then(value);
        let fallback = fallback.filter(|_| kind != Kind::Forced);
        let meanwhile = self.meanwhile(found, fallback);
        done.flights[self.at].memory.fallback = fallback;
        // Callers that come while it queues read the store themselves.
        done.flights[self.at].callers_look_up = true;
        self.happen(done.clone(), Event::Queued { asked, meanwhile });
        if self.is_abandoned() {
            self.happen(done, Event::Abandoned);
        }
    }

    /// The store executes the request for the entry or the lease.
    fn ask(&self, done: &mut World) -> Vec<Event<Modelled>> {
        let flight = self.flight();
        let memory = flight.memory;
        let asked = flight.generations;
        let found = storing::acquired(self.rules, &self.world.store, flight.seen);
        let value =
            |entry: StoredEntry| Some(ModelFallback { version: entry.draft.version()?, asked });
        let fallback = found.and_then(value).filter(|_| flight.kind != Kind::Forced);
        let meanwhile = self.meanwhile(found, fallback);
        let usable = fallback.filter(|_| self.rules.stale != Serves::Never);
        let store = &mut done.store;
        let ended =
            match storing::ask(self.rules, store, flight.asker(), memory.accept, flight.seen) {
                Asked::Found(entry) => return self.found(asked, entry),
                Asked::HeldUp => match usable {
                    Some(ModelFallback { version, .. }) => {
                        done.flights[self.at].memory.fallback = fallback;
                        Event::InCooldownStale { asked, stale: Given::stale(version), until: () }
                    }
                    None => {
                        let until = (flight.kind != Kind::Forced).then_some(());
                        Event::InCooldown { failure: Given::FAILURE, until }
                    }
                },
                Asked::Busy { fence } => {
                    let another = found.map_or(Wanted::Fresh, |entry| Wanted::Other(entry.fence));
                    let wants_any = memory.accept == Wanted::Nothing;
                    let accept = if wants_any { another } else { memory.accept };
                    done.flights[self.at].memory = Memory { accept, fallback, ..memory };
                    let other = OtherLease { fence, epoch: flight.seen.unwrap_or_default() };
                    Event::Busy { asked, other, meanwhile }
                }
                Asked::Granted { fence, before, is_probe } => {
                    let replaces = before > 0 || fallback.is_some();
                    let epoch = flight.seen.unwrap_or_default();
                    let lease = Grant { fence, before, replaces, epoch };
                    let probe = is_probe.then_some(Given::FAILURE);
                    let meanwhile = match (probe, usable) {
                        (Some(_), Some(stale)) => Meanwhile::Give(Given::stale(stale.version)),
                        _ => meanwhile,
                    };
                    done.flights[self.at].memory.fallback = fallback;
                    Event::Granted { asked, lease, probe, meanwhile }
                }
            };
        vec![ended]
    }

    fn meanwhile(
        &self,
        found: Option<StoredEntry>,
        fallback: Option<ModelFallback>,
    ) -> Meanwhile<Given> {
        let is_stale = found.is_some_and(|entry| entry.age == Age::Stale);
        match (fallback.filter(|_| is_stale), self.rules.stale) {
            (Some(ModelFallback { version, .. }), Serves::WhileRevalidating) => {
                Meanwhile::Give(Given::stale(version))
            }
            (Some(ModelFallback { version, .. }), Serves::IfError) => {
                Meanwhile::Fallback(Given::stale(version))
            }
            _ => Meanwhile::Nothing,
        }
    }

    fn found(&self, asked: u8, entry: StoredEntry) -> Vec<Event<Modelled>> {
        let accept = Wanted::Other(entry.fence);
        vec![match entry.draft {
            Drafted::Value(version) => {
                let due = (entry.age == Age::Due && self.flight().job).then_some(accept);
                Event::Found { asked, outcome: Given::value(version), due }
            }
            Drafted::PrivateKey => Event::PrivateKey { accept },
            Drafted::PrivateOnce => Event::PrivateOnce { accept },
            Drafted::Uncacheable => {
                let event = |known| Event::Uncacheable { accept, known };
                return known(self.world).into_iter().map(event).collect();
            }
            Drafted::Unreadable | Drafted::Nothing => Event::Unreadable { accept },
        }]
    }

    fn look_up(&mut self) {
        let flight = self.flight();
        let memory = flight.memory;
        let can_load = flight.job;
        let gone = |accept| Event::Gone { accept, can_load };
        let found = storing::looked_up(self.rules, &self.world.store);
        let event = match found.filter(|entry| entry.age != Age::Stale) {
            Some(StoredEntry { draft: Drafted::Value(version), fence, age, .. }) => {
                let due = (age == Age::Due && can_load).then_some(Wanted::Other(fence));
                let asked = flight.generations;
                let outcome = Given::value(version);
                Event::Found { asked, outcome, due }
            }
            Some(entry) if !memory.waited => gone(Wanted::Other(entry.fence)),
            _ => gone(memory.accept),
        };
        self.lose(&gone(memory.accept));
        self.happen(self.world.clone(), event);
    }

    /// Waits for the end of another lease, or for a message with the value that was stored under it.
    /// A copy of its own request may have taken the lease meanwhile.
    fn wait(&mut self, asked: u8, other: OtherLease) {
        let mut waited = self.world.clone();
        waited.flights[self.at].memory.waited = true;
        let without = self.rules.without;
        let admits = |message: &ToldValue| {
            let is_named = message.fence == other.fence || without == Without::FencesOfMessages;
            is_named && (message.epoch == other.epoch || without == Without::EpochsOfMessages)
        };
        self.be_told(&waited, asked, admits);
        let store = &self.world.store;
        if store.lease.is_none() || store.is_leased_to(self.flight().id) {
            self.happen(waited, Event::Waited);
        } else if self.world.left.pauses > 0 {
            // Without a message, an earlier request would change nothing.
            waited.left.pauses -= 1;
            self.happen(waited, Event::Waited);
        }
        if self.is_abandoned() {
            self.happen(self.world.clone(), Event::Abandoned);
        }
    }

    /// A message with a value arrives, and answers the waiters of the generation `asked`. It stays,
    /// for other flights of the process.
    fn be_told(&mut self, world: &World, asked: u8, admits: impl Fn(&ToldValue) -> bool) {
        let process = self.flight().process;
        let told = self.world.told.iter().filter(|it| it.process == process && admits(it));
        for ToldValue { version, .. } in told.copied().collect::<Vec<_>>() {
            let outcome = Given::value(version);
            self.happen(world.clone(), Event::Told { asked, outcome });
        }
    }

    fn is_abandoned(&self) -> bool {
        let flight = self.flight();
        !flight.is_in_background && !self.world.has_waiter(flight.id, |_, _| true)
    }

    fn cool_down(&mut self, joined: Event<Modelled>, hold: LeaseHold<Grant>) {
        if self.world.has_waiter(self.flight().id, |_, opener| !opener) {
            self.happen(self.world.clone(), joined);
        }
        self.happen(self.world.clone(), Event::CooldownEnded { hold });
    }

    /// The loader reads the source, and then it ends; or it fails.
    fn load(&mut self, hold: LeaseHold<Grant>, meanwhile: Option<Given>) -> Result<(), Violated> {
        if let Some(failure) = meanwhile {
            let mut served = self.world.clone();
            served.complete(self.flight().id, |_, opener| !opener, failure)?;
            self.next.push(served);
        }
        let is_cancelled = self.rules.cancels || self.flight().kind == Kind::Uncached;
        if is_cancelled && self.is_abandoned() {
            self.happen(self.world.clone(), Event::NotLoaded { hold });
        }
        let Some(version) = self.flight().read else {
            let mut read = self.world.clone();
            read.flights[self.at].read = Some(self.world.source);
            self.next.push(read);
            for known in self.known(hold) {
                self.fail_load(hold, known);
            }
            return Ok(());
        };
        let known = self.known(hold)[0];
        let began = self.flight().generations;
        for answer in self.rules.answers {
            let said = match answer {
                Drafted::PrivateKey => AnswerKind::PrivateKey,
                Drafted::PrivateOnce => AnswerKind::PrivateOnce,
                _ => AnswerKind::Value,
            };
            let draft = match *answer {
                Drafted::Value(_) => Drafted::Value(version),
                draft => draft,
            };
            let Verdict { share, is_stored, .. } = verdict(said, known);
            let record = match share {
                Share::Joined => Record::Value(draft),
                _ => Record::Marker(draft),
            };
            let record = is_stored.then_some(record);
            let is_private = said != AnswerKind::Value;
            let outcome = Given::Value { version, is_private, is_fresh: true };
            let answer = LoadAnswer { began, outcome, share, record, fallback: None };
            self.happen(self.world.clone(), Event::LoadEnded { hold, answer });
        }
        Ok(())
    }

    /// What may be known of the key when a load ends. For an uncached load the process counts, and may
    /// know of a failure that the store does not know.
    fn known(&self, hold: LeaseHold<Grant>) -> Vec<KnownOfKey> {
        let kind = self.flight().kind;
        let (before, replaces) = match hold {
            LeaseHold::Lease(Grant { before, replaces, .. }) => (before, replaces),
            _ => (0, false),
        };
        let counted = kind == Kind::Uncached && self.world.witnesses > 0;
        let counts = [before, 1].into_iter().take(1 + usize::from(counted));
        let known = |before: u8| {
            let is_confirmed = before > 0 || self.rules.without == Without::SecondWitnesses;
            let shares_failures = kind == Kind::Answer;
            KnownOfKey { failures: u32::from(is_confirmed), replaces, shares_failures }
        };
        counts.map(known).collect()
    }

    /// A load that fails, because of its request or of the source, as far as this flight can tell.
    fn fail_load(&mut self, hold: LeaseHold<Grant>, known: KnownOfKey) {
        if self.world.left.failed_loads == 0 {
            return;
        }
        let before = if let LeaseHold::Lease(Grant { before, .. }) = hold { before } else { 0 };
        let began = self.flight().generations;
        let ends: &[_] = match known.failures {
            0 => &[AnswerKind::Failed, AnswerKind::TimedOut],
            _ => &[AnswerKind::Failed],
        };
        let stale = self.flight().memory.fallback.filter(|_| self.rules.stale != Serves::Never);
        for said in ends {
            let Verdict { share, is_stored, .. } = verdict(*said, known);
            let record = is_stored.then_some(Record::Failure(before));
            let took_too_long = (*said == AnswerKind::TimedOut).then_some(began);
            let outcome = Given::Failure { took_too_long };
            let mut failed = self.world.clone();
            failed.left.failed_loads -= 1;
            failed.witnesses = (failed.witnesses + 1).min(2);
            // The stale window of the fallback may be over by now.
            let fallbacks = [None, stale.map(|stale| (Given::stale(stale.version), stale.asked))];
            for fallback in &fallbacks[..1 + usize::from(stale.is_some())] {
                let fallback = *fallback;
                let answer = LoadAnswer { began, outcome, share, record, fallback };
                self.happen(failed.clone(), Event::LoadEnded { hold, answer });
            }
        }
    }
}

/// What a process may know of earlier failures.
fn known(world: &World) -> Vec<KnownFailure<Given, ()>> {
    let mut known = vec![KnownFailure::Nothing];
    if world.witnesses > 1 {
        known.extend([
            KnownFailure::Probe(Given::FAILURE),
            KnownFailure::Cooldown(Given::FAILURE, ()),
        ]);
    }
    known
}

/// The events of a store that does not answer.
pub(super) fn failures(
    rules: &Rules,
    world: &World,
    hold: LeaseHold<Grant>,
) -> Vec<Event<Modelled>> {
    let error = Given::StoreFailed;
    let may_load = rules.may_load;
    let event = |known| Event::StoreFailed { error, known, hold, may_load };
    known(world).into_iter().map(event).collect()
}
