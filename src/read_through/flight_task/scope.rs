//! The requests to the store, and the events that its answers are; and what the protocol carries in a
//! running flight.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::codec::Codec;
use crate::error::{CacheError, FailureCause, StoreError, StoreErrorKind};
use crate::flight::{Generation, Leader, Phase};
use crate::locked::locked;
use crate::policy::WhenStoreFails;
use crate::read_through::audit;
use crate::read_through::core::{self, Core};
use crate::read_through::load::{LentJob, Loader};
use crate::read_through::not_found::NotFound;
use crate::read_through::outcome::{Outcome, StaleFallback};
use crate::read_through::remembered::{FailureKind, RememberedFailure};
use crate::read_through::step::{
    self, AnswerOf, KnownFailure, LeaseHold, Meanwhile, Memory, Payload, Record,
};
use crate::stats::{AuditEvent, LeaseEvent, LoadReason};
use crate::status::{CacheStatus, LoadLocation, StaleReason};
use crate::store::{Accept, Acquire, Claim, Draft, Entry, Failure, Lease, Marker, OtherLease};
use crate::trace::LoadTrace;

pub(super) struct Carried;

impl Payload for Carried {
    type Outcome = Outcome;
    type Generation = Generation;
    type Accept = Accept;
    type Lease = GrantedLease;
    type Draft = Draft;
    type Failure = Failure;
    type Fallback = AskedFallback;
    type Other = (OtherLease, Duration);
    type Moment = Instant;
}

pub(super) type TaskState = step::State<Carried>;
pub(super) type TaskEvent = step::Event<Carried>;
pub(super) type FlightMemory = Memory<Accept, AskedFallback>;
pub(super) type FlightHold = LeaseHold<GrantedLease>;

/// A lease, and what the store said when it granted it.
pub(super) struct GrantedLease {
    pub(super) lease: Lease,
    /// When it was granted.
    pub(super) at: Instant,
    /// How many loads in a row had failed before.
    pub(super) failures: u32,
    /// The store has a value that a marker would replace, or a failure that a marker would end.
    pub(super) replaces: bool,
    /// The value that the store has.
    pub(super) replaced: Option<Entry>,
}

/// A stale fallback, and the generation of the request that found it. Later waiters must not get it.
pub(super) type AskedFallback = (Generation, StaleFallback);

/// What a flight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To answer its waiters.
    Answer,
    /// To replace the stored entry and answer its waiters with the new one: a forced refresh.
    ForceRefresh,
    /// To replace an entry in the background: no caller waits for it. If set, to compare the two, too.
    Refresh(Accept, bool),
    /// To answer callers whose wait for another load ran out. The answer is not stored: without a
    /// lease, an invalidation during the load cannot be detected.
    Uncached,
}

impl GrantedLease {
    /// Whether the store has granted it, and not the process to itself.
    pub(super) fn is_shared(&self) -> bool {
        self.lease.outage.is_none()
    }
}

impl Purpose {
    pub(super) fn memory(self) -> FlightMemory {
        let accept = match self {
            Self::Answer | Self::Uncached => Accept::Fresh,
            Self::ForceRefresh => Accept::Nothing,
            Self::Refresh(accept, _) => accept,
        };
        Memory { accept, waited: false, fallback: None }
    }

    /// Why it loads, if it is for no caller.
    pub(super) fn background(self) -> Option<LoadReason> {
        match self {
            Self::Answer | Self::ForceRefresh | Self::Uncached => None,
            Self::Refresh(_, true) => Some(LoadReason::Audit),
            Self::Refresh(Accept::Fresh, false) => Some(LoadReason::Revalidation),
            Self::Refresh(_, false) => Some(LoadReason::Early),
        }
    }
}

/// A flight, as far as its requests and its load need it.
pub(super) struct Scope<S, Req, C> {
    pub(super) core: Arc<Core<C>>,
    pub(super) leader: Leader<Outcome>,
    pub(super) job: LentJob<S, Req>,
    pub(super) claim: Claim,
    pub(super) purpose: Purpose,
}

impl<S: Loader<Req>, Req, C: Codec<S::Response>> Scope<S, Req, C> {
    pub(super) async fn acquire(&self, memory: &mut FlightMemory) -> TaskEvent {
        if !self.core.policy.serves_stored() {
            return self.load_anyway(memory).await;
        }
        self.leader.enter(Phase::Asking);
        let asked = self.leader.generation();
        let claim = self.claim.clone();
        let term = self.core.policy.first_term();
        match self.core.store.acquire(claim, term, memory.accept).await {
            Ok(Acquire::Found(entry)) => self.found(asked, &entry, memory.waited),
            Ok(Acquire::Busy { other, remaining, stale, trace }) => {
                trace.inspect(|trace| self.leader.wait_for_load(LoadTrace::Remote(trace.clone())));
                self.busy(asked, other, remaining, stale, memory)
            }
            Ok(Acquire::Failed { failure, remaining, stale }) => {
                self.failing(asked, &failure, remaining, stale, memory)
            }
            Ok(Acquire::Lead { lease, stale, failures, probe }) => {
                match self.decline(asked, &lease, stale.as_ref(), memory).await {
                    Some(declined) => declined,
                    None => self.led(asked, lease, stale, failures, probe.as_ref(), memory),
                }
            }
            Err(error) => {
                self.core.statistics.store_failed("loading without a lease", &error);
                let hold = match error.kind() {
                    StoreErrorKind::Down => LeaseHold::NotAsked,
                    _ => LeaseHold::Unacknowledged,
                };
                self.store_failed(&error, hold)
            }
        }
    }

    /// The cache is off, or in shadow mode: the flight loads, whatever is stored.
    async fn load_anyway(&self, memory: &mut FlightMemory) -> TaskEvent {
        // As after a wait for an answer that was not stored.
        (memory.waited, memory.fallback) = (true, None);
        let unstored =
            TaskEvent::Uncacheable { accept: memory.accept, known: KnownFailure::Nothing };
        let Core { store, statistics, policy, .. } = &*self.core;
        if !policy.enabled {
            return unstored;
        }
        self.leader.enter(Phase::Asking);
        let asked = self.leader.generation();
        let (claim, term) = (self.claim.clone(), self.core.policy.first_term());
        match store.acquire(claim, term, memory.accept).await {
            Ok(Acquire::Lead { lease, .. }) if lease.outage.is_none() => {
                statistics.audit(AuditEvent::WouldMiss);
                self.led(asked, lease, None, 0, None, memory)
            }
            Ok(Acquire::Found(entry)) if entry.as_marker().is_none() => {
                statistics.audit(AuditEvent::WouldHit);
                memory.fallback = Some((asked, StaleFallback::found(entry)));
                unstored
            }
            Ok(Acquire::Lead { lease, .. }) => {
                self.core.abandon(lease.claim).await;
                unstored
            }
            Ok(_) => unstored,
            Err(error) => {
                statistics.store_failed("loading without a lease", &error);
                unstored
            }
        }
    }

    /// Compares what is loaded with what a cache in shadow mode has found stored.
    pub(super) fn compare_shadow(&self, memory: &FlightMemory, answer: &AnswerOf<Carried>) {
        if let (Some((_, found)), Some(Record::Value(loaded))) = (&memory.fallback, &answer.record)
            && !self.core.policy.serves_stored()
            && loaded.is_value()
        {
            audit::shadowed(&self.core, &self.claim, &found.entry, loaded);
        }
    }

    /// Looks for what the callers may have while the flight queues for a permit: a value that another
    /// process has stored, or a stale answer.
    pub(super) async fn look_before_the_queue(&self, memory: &mut FlightMemory) -> TaskEvent {
        self.leader.enter(Phase::Asking);
        let asked = self.leader.generation();
        let tags = self.claim.tags().clone();
        match self.core.store.lookup(self.leader.key().clone(), tags).await {
            Ok(Some(entry)) if entry.is_fresh() => {
                let is_plain = memory.accept.admits(&entry) && entry.as_marker().is_none();
                match is_plain.then(|| self.value_of(&entry, memory.waited)).flatten() {
                    Some(outcome) => TaskEvent::Found { asked, outcome, due: self.due(&entry) },
                    None => TaskEvent::Queued { asked, meanwhile: Meanwhile::Nothing },
                }
            }
            Ok(stale) => {
                memory.fallback = self.fallback(asked, stale);
                let meanwhile = self.meanwhile(memory.fallback.as_ref());
                TaskEvent::Queued { asked, meanwhile }
            }
            Err(error) => {
                self.core.statistics.store_failed("loading without a lease", &error);
                self.store_failed(&error, LeaseHold::NotAsked)
            }
        }
    }

    pub(super) async fn look_up(&self, late: Generation, memory: &FlightMemory) -> TaskEvent {
        if !self.leader.has_joined_since(late) {
            return TaskEvent::NoneRemain;
        }
        if !self.core.policy.serves_stored() {
            return self.gone(memory.accept);
        }
        self.leader.enter(Phase::Asking);
        let asked = self.leader.generation();
        let tags = self.claim.tags().clone();
        let found = self.core.store.lookup(self.leader.key().clone(), tags).await;
        if let Err(error) = &found {
            self.core.statistics.store_failed("the remaining waiters ask it themselves", error);
        }
        let Some(entry) = found.ok().flatten().filter(Entry::is_fresh) else {
            return self.gone(memory.accept);
        };
        match self.value_of(&entry, memory.waited) {
            Some(outcome) => TaskEvent::Found { asked, outcome, due: self.due(&entry) },
            // The next request may find the same marker: it is what the flight waited for.
            None if memory.waited && entry.as_marker().is_some() => self.gone(memory.accept),
            None => self.gone(Accept::Other { than: entry.fence() }),
        }
    }

    /// Whether there is a request to load with.
    pub(super) fn can_load(&self) -> bool {
        locked(&self.job).is_some()
    }

    fn gone(&self, accept: Accept) -> TaskEvent {
        TaskEvent::Gone { accept, can_load: self.can_load() }
    }

    fn found(&self, asked: Generation, entry: &Entry, waited: bool) -> TaskEvent {
        // If it is not usable, any entry that replaces it is accepted.
        let accept = Accept::Other { than: entry.fence() };
        match entry.as_marker() {
            Some(Marker::PrivateKey) => TaskEvent::PrivateKey { accept },
            Some(Marker::PrivateOnce) => TaskEvent::PrivateOnce { accept },
            Some(Marker::Uncacheable) => TaskEvent::Uncacheable { accept, known: self.known() },
            None => match self.value_of(entry, waited) {
                Some(outcome) => {
                    self.note_lag(entry, waited);
                    TaskEvent::Found { asked, outcome, due: self.due(entry) }
                }
                None => TaskEvent::Unreadable { accept },
            },
        }
    }

    /// A message has the entry that another process has stored. If it is no plain value, the flight asks
    /// the store.
    pub(super) fn told(&self, asked: Generation, entry: &Entry, accept: Accept) -> TaskEvent {
        let is_plain = accept.admits(entry) && entry.as_marker().is_none();
        match is_plain.then(|| self.value_of(entry, true)).flatten() {
            Some(outcome) => {
                self.note_lag(entry, true);
                TaskEvent::Told { asked, outcome }
            }
            None => TaskEvent::Waited,
        }
    }

    /// Counts how long ago the load ended that this flight has waited for.
    fn note_lag(&self, entry: &Entry, waited: bool) {
        if let (true, Some(left)) = (waited, entry.remaining()) {
            self.core.statistics.noticed(entry.lifetimes().life().saturating_sub(left));
        }
    }

    /// The value of an entry, if it has one. After a wait it counts as loaded by another process
    /// meanwhile.
    fn value_of(&self, entry: &Entry, waited: bool) -> Option<Outcome> {
        let (place, waited_for) = (LoadLocation::Remote, Duration::ZERO);
        let loaded = CacheStatus::Collapsed { place, waited: waited_for };
        self.outcome_of(entry, if waited { loaded } else { core::hit(entry) })
    }

    /// Set if an early refresh of a fresh entry is due and there is a request to load with.
    fn due(&self, entry: &Entry) -> Option<Accept> {
        self.core.due_early(entry).filter(|_| self.can_load())
    }

    fn busy(
        &self,
        asked: Generation,
        other: OtherLease,
        left: Duration,
        stale: Option<Entry>,
        memory: &mut FlightMemory,
    ) -> TaskEvent {
        memory.accept = match (memory.accept, &stale) {
            // The load of the other process replaces the entry that is there.
            (Accept::Nothing, Some(entry)) => Accept::Other { than: entry.fence() },
            (Accept::Nothing, None) => Accept::Fresh,
            (accept, _) => accept,
        };
        self.core.statistics.lease(LeaseEvent::Busy);
        memory.fallback = self.fallback(asked, stale);
        let meanwhile = self.meanwhile(memory.fallback.as_ref());
        TaskEvent::Busy { asked, other: (other, left), meanwhile }
    }

    /// What the flight goes on with if this process has granted the lease to itself and must not load.
    async fn decline(
        &self,
        asked: Generation,
        lease: &Lease,
        stale: Option<&Entry>,
        memory: &mut FlightMemory,
    ) -> Option<TaskEvent> {
        let error = lease.outage.as_ref()?;
        self.core.statistics.store_failed("loading for this process only", error);
        let known = self.known();
        let is_cooling_down = matches!(known, KnownFailure::Cooldown(..));
        if self.core.policy.when_store_fails == WhenStoreFails::Load && !is_cooling_down {
            return None;
        }
        self.core.abandon(lease.claim.clone()).await;
        memory.fallback = self.fallback(asked, stale.cloned());
        Some(match (known, self.stale_fallback(memory.fallback.as_ref())) {
            (KnownFailure::Cooldown(_, until), Some(stale)) => {
                TaskEvent::InCooldownStale { asked, stale, until }
            }
            _ => self.store_failed(error, LeaseHold::NotAsked),
        })
    }

    fn led(
        &self,
        asked: Generation,
        lease: Lease,
        stale: Option<Entry>,
        failures: u32,
        probe: Option<&Failure>,
        memory: &mut FlightMemory,
    ) -> TaskEvent {
        if lease.outage.is_none() {
            self.core.statistics.lease(LeaseEvent::Granted);
        }
        let is_value = |entry: &Entry| entry.as_marker().is_none();
        let replaced = stale.clone().filter(is_value);
        let replaces = failures > 0 || replaced.is_some();
        let lease = GrantedLease { lease, at: Instant::now(), failures, replaces, replaced };
        memory.fallback = self.fallback(asked, stale);
        let fallback = memory.fallback.as_ref();
        let probe = probe.map(|failure| self.failure_of(failure, failure.cooldown));
        let meanwhile = match self.meanwhile(fallback) {
            // With a stale answer, no caller waits for a probe, not even its opener.
            Meanwhile::Nothing | Meanwhile::Fallback(..) if probe.is_some() => {
                self.stale_fallback(fallback).map_or(Meanwhile::Nothing, Meanwhile::Give)
            }
            meanwhile => meanwhile,
        };
        TaskEvent::Granted { asked, lease, probe, meanwhile }
    }

    /// A load failed a moment ago, in this process or in another one.
    fn failing(
        &self,
        asked: Generation,
        failure: &Failure,
        left: Duration,
        stale: Option<Entry>,
        memory: &mut FlightMemory,
    ) -> TaskEvent {
        let until = Instant::now() + left.min(LONGEST_COOLDOWN);
        memory.fallback = self.fallback(asked, stale);
        if let Some(stale) = self.stale_fallback(memory.fallback.as_ref()) {
            return TaskEvent::InCooldownStale { asked, stale, until };
        }
        // A forced refresh shares the failure with no later caller: that one loads.
        let until = (self.purpose != Purpose::ForceRefresh).then_some(until);
        TaskEvent::InCooldown { failure: self.failure_of(failure, left), until }
    }

    /// The store has failed. This process may still know that the key is in cooldown.
    pub(super) fn store_failed(&self, error: &StoreError, hold: FlightHold) -> TaskEvent {
        let error = Outcome::Failed(CacheError::store(self.leader.key(), error));
        let may_load = self.core.policy.when_store_fails == WhenStoreFails::Load;
        TaskEvent::StoreFailed { error, known: self.known(), hold, may_load }
    }

    /// What this process knows of earlier failures of this key.
    fn known(&self) -> KnownFailure<Outcome, Instant> {
        let key = self.leader.key();
        let remembered = self.remembered().filter(|_| self.purpose != Purpose::ForceRefresh);
        let Some(RememberedFailure { outcome, cooldown: Some(left), .. }) = remembered else {
            return KnownFailure::Nothing;
        };
        let without_error =
            || Outcome::Failed(CacheError::load_failed(key, FailureCause::Error, "", left));
        let failure = outcome.unwrap_or_else(without_error);
        match left.is_zero() {
            true => KnownFailure::Probe(failure),
            false => KnownFailure::Cooldown(failure, Instant::now() + left.min(LONGEST_COOLDOWN)),
        }
    }

    /// The error itself if the load ran in this process, or else the text that the store has.
    fn failure_of(&self, failure: &Failure, left: Duration) -> Outcome {
        self.remembered().and_then(|it| it.outcome).unwrap_or_else(|| {
            let (key, message) = (self.leader.key(), &*failure.message);
            Outcome::Failed(CacheError::load_failed(key, failure.cause, message, left))
        })
    }

    fn remembered(&self) -> Option<RememberedFailure> {
        let key = self.leader.key().digest();
        self.core.loads.failures.get(key, FailureKind::Shared, self.leader.types())
    }

    /// The stale answer of the store: for the waiters at once if it serves while revalidating, and
    /// for waits that run out if it serves only on errors.
    fn meanwhile(&self, fallback: Option<&AskedFallback>) -> Meanwhile<Outcome> {
        let Some((_, fallback)) = fallback else { return Meanwhile::Nothing };
        let entry = &fallback.entry;
        match self.outcome_of(entry, core::stale(entry, StaleReason::Revalidating)) {
            Some(stale) if entry.serves_while_revalidating() => Meanwhile::Give(stale),
            Some(_) if entry.serves_if_error() => {
                Meanwhile::Fallback(Outcome::Stale(fallback.clone()))
            }
            _ => Meanwhile::Nothing,
        }
    }

    fn fallback(&self, asked: Generation, entry: Option<Entry>) -> Option<AskedFallback> {
        let entry = entry.filter(|_| self.purpose != Purpose::ForceRefresh)?;
        Some((asked, StaleFallback::found(entry)))
    }

    /// The outcome of a stale fallback that may still be served instead of a failure.
    pub(super) fn stale_fallback(&self, fallback: Option<&AskedFallback>) -> Option<Outcome> {
        let (_, fallback) = fallback.filter(|_| self.core.policy.serves_stored())?;
        let (entry, status) = fallback.clone().serve(StaleReason::LoadFailed, Instant::now())?;
        self.outcome_of(&entry, status)
    }

    /// The value of an entry with a status.
    fn outcome_of(&self, entry: &Entry, status: CacheStatus) -> Option<Outcome> {
        let kept: Arc<dyn Any + Send + Sync> = match NotFound::of(entry) {
            Some(not_found) => Arc::new(not_found),
            None => self.core.read::<S::Response>(entry)?,
        };
        Some(Outcome::Value(kept, status))
    }
}

/// After this time at most, a flight in a cooldown asks the store again, in case it missed a
/// change.
const LONGEST_COOLDOWN: Duration = Duration::from_secs(1);
