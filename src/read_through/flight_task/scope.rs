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
use crate::read_through::outcome::{NotFound, Outcome, StaleFallback};
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

    /// Whether the store has a value that a marker would replace, or a failure that a marker would end.
    pub(super) fn replaces(&self) -> bool {
        self.failures > 0 || self.replaced.is_some()
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
    pub(super) memory: FlightMemory,
}

impl<S: Loader<Req>, Req, C: Codec<S::Response>> Scope<S, Req, C> {
    pub(super) async fn acquire(&mut self) -> TaskEvent {
        if !self.core.policy.serves_stored() {
            return self.load_anyway().await;
        }
        self.leader.enter(Phase::Asking);
        let asked = self.leader.generation();
        let claim = self.claim.clone();
        let term = self.core.policy.first_term();
        match self.core.store.acquire(claim, term, self.memory.accept).await {
            Ok(Acquire::Found(entry)) => self.found(asked, &entry),
            Ok(Acquire::Busy { other, remaining, stale, trace }) => {
                trace.inspect(|trace| self.leader.wait_for_load(LoadTrace::Remote(trace.clone())));
                self.busy(asked, other, remaining, stale)
            }
            Ok(Acquire::Failed { failure, remaining, stale }) => {
                self.failing(asked, &failure, remaining, stale)
            }
            Ok(Acquire::Lead { lease, stale, failures, probe }) => {
                match self.decline(asked, &lease, stale.as_ref()).await {
                    Some(declined) => declined,
                    None => self.led(asked, lease, stale, failures, probe.as_ref()),
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
    async fn load_anyway(&mut self) -> TaskEvent {
        // As after a wait for an answer that was not stored.
        (self.memory.waited, self.memory.fallback) = (true, None);
        let accept = self.memory.accept;
        let unstored = TaskEvent::Uncacheable { accept, known: KnownFailure::Nothing };
        let Core { store, statistics, policy, .. } = &*self.core;
        if !policy.enabled {
            return unstored;
        }
        self.leader.enter(Phase::Asking);
        let asked = self.leader.generation();
        let (claim, term) = (self.claim.clone(), self.core.policy.first_term());
        match store.acquire(claim, term, accept).await {
            Ok(Acquire::Lead { lease, .. }) if lease.outage.is_none() => {
                statistics.audit(AuditEvent::WouldMiss);
                self.led(asked, lease, None, 0, None)
            }
            Ok(Acquire::Found(entry)) if entry.as_marker().is_none() => {
                statistics.audit(AuditEvent::WouldHit);
                self.memory.fallback = Some((asked, StaleFallback::found(entry)));
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
    pub(super) fn compare_shadow(&self, answer: &AnswerOf<Carried>) {
        if let (Some((_, found)), Some(Record::Value(loaded))) =
            (&self.memory.fallback, &answer.record)
            && !self.core.policy.serves_stored()
            && loaded.is_value()
        {
            audit::shadowed(&self.core, &self.claim, &found.entry, loaded);
        }
    }

    /// Looks for what the callers may have while the flight queues for a permit: a value that another
    /// process has stored, or a stale answer.
    pub(super) async fn look_before_the_queue(&mut self) -> TaskEvent {
        self.leader.enter(Phase::Asking);
        let asked = self.leader.generation();
        let tags = self.claim.tags().clone();
        match self.core.store.lookup(self.leader.key().clone(), tags).await {
            Ok(Some(entry)) if entry.is_fresh() => match self.plain_value_of(&entry) {
                Some(outcome) => TaskEvent::Found { asked, outcome, due: self.due(&entry) },
                None => TaskEvent::Queued { asked, meanwhile: Meanwhile::Nothing },
            },
            Ok(stale) => {
                self.note_fallback(asked, stale);
                TaskEvent::Queued { asked, meanwhile: self.meanwhile() }
            }
            Err(error) => {
                self.core.statistics.store_failed("loading without a lease", &error);
                self.store_failed(&error, LeaseHold::NotAsked)
            }
        }
    }

    pub(super) async fn look_up(&self, late: Generation) -> TaskEvent {
        if !self.leader.has_joined_since(late) {
            return TaskEvent::NoneRemain;
        }
        if !self.core.policy.serves_stored() {
            return self.gone(self.memory.accept);
        }
        self.leader.enter(Phase::Asking);
        let asked = self.leader.generation();
        let tags = self.claim.tags().clone();
        let found = self.core.store.lookup(self.leader.key().clone(), tags).await;
        if let Err(error) = &found {
            self.core.statistics.store_failed("the remaining waiters ask it themselves", error);
        }
        let Some(entry) = found.ok().flatten().filter(Entry::is_fresh) else {
            return self.gone(self.memory.accept);
        };
        match self.value_of(&entry) {
            Some(outcome) => TaskEvent::Found { asked, outcome, due: self.due(&entry) },
            // The next request may find the same marker: it is what the flight waited for.
            None if self.memory.waited && entry.as_marker().is_some() => {
                self.gone(self.memory.accept)
            }
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

    fn found(&self, asked: Generation, entry: &Entry) -> TaskEvent {
        // If it is not usable, any entry that replaces it is accepted.
        let accept = Accept::Other { than: entry.fence() };
        match entry.as_marker() {
            Some(Marker::PrivateKey) => TaskEvent::PrivateKey { accept },
            Some(Marker::PrivateOnce) => TaskEvent::PrivateOnce { accept },
            Some(Marker::Uncacheable) => TaskEvent::Uncacheable { accept, known: self.known() },
            None => match self.value_of(entry) {
                Some(outcome) => {
                    self.note_lag(entry);
                    TaskEvent::Found { asked, outcome, due: self.due(entry) }
                }
                None => TaskEvent::Unreadable { accept },
            },
        }
    }

    /// A message has the entry that another process has stored. If it is no plain value, the flight asks
    /// the store.
    pub(super) fn told(&self, asked: Generation, entry: &Entry) -> TaskEvent {
        match self.plain_value_of(entry) {
            Some(outcome) => {
                self.note_lag(entry);
                TaskEvent::Told { asked, outcome }
            }
            None => TaskEvent::Waited,
        }
    }

    /// Counts how long ago the load ended that this flight has waited for.
    fn note_lag(&self, entry: &Entry) {
        if let (true, Some(left)) = (self.memory.waited, entry.remaining()) {
            self.core.statistics.noticed(entry.lifetimes().life().saturating_sub(left));
        }
    }

    /// The value of an entry, if it has one. After a wait it counts as loaded by another process
    /// meanwhile.
    fn value_of(&self, entry: &Entry) -> Option<Outcome> {
        let (place, waited) = (LoadLocation::Remote, Duration::ZERO);
        let loaded = CacheStatus::Collapsed { place, waited };
        self.outcome_of(entry, if self.memory.waited { loaded } else { core::hit(entry) })
    }

    /// The same of an entry that answers the flight and is no marker.
    fn plain_value_of(&self, entry: &Entry) -> Option<Outcome> {
        let is_plain = self.memory.accept.admits(entry) && entry.as_marker().is_none();
        is_plain.then(|| self.value_of(entry)).flatten()
    }

    /// Set if an early refresh of a fresh entry is due and there is a request to load with.
    fn due(&self, entry: &Entry) -> Option<Accept> {
        self.core.due_early(entry).filter(|_| self.can_load())
    }

    fn busy(
        &mut self,
        asked: Generation,
        other: OtherLease,
        left: Duration,
        stale: Option<Entry>,
    ) -> TaskEvent {
        self.memory.accept = match (self.memory.accept, &stale) {
            // The load of the other process replaces the entry that is there.
            (Accept::Nothing, Some(entry)) => Accept::Other { than: entry.fence() },
            (Accept::Nothing, None) => Accept::Fresh,
            (accept, _) => accept,
        };
        self.core.statistics.lease(LeaseEvent::Busy);
        self.note_fallback(asked, stale);
        TaskEvent::Busy { asked, other: (other, left), meanwhile: self.meanwhile() }
    }

    /// What the flight goes on with if this process has granted the lease to itself and must not load.
    async fn decline(
        &mut self,
        asked: Generation,
        lease: &Lease,
        stale: Option<&Entry>,
    ) -> Option<TaskEvent> {
        let error = lease.outage.as_ref()?;
        self.core.statistics.store_failed("loading for this process only", error);
        let known = self.known();
        let is_cooling_down = matches!(known, KnownFailure::Cooldown(..));
        if self.core.policy.when_store_fails == WhenStoreFails::Load && !is_cooling_down {
            return None;
        }
        self.core.abandon(lease.claim.clone()).await;
        self.note_fallback(asked, stale.cloned());
        Some(match (known, self.stale_fallback()) {
            (KnownFailure::Cooldown(_, until), Some(stale)) => {
                TaskEvent::InCooldownStale { asked, stale, until }
            }
            _ => self.store_failed(error, LeaseHold::NotAsked),
        })
    }

    fn led(
        &mut self,
        asked: Generation,
        lease: Lease,
        stale: Option<Entry>,
        failures: u32,
        probe: Option<&Failure>,
    ) -> TaskEvent {
        if lease.outage.is_none() {
            self.core.statistics.lease(LeaseEvent::Granted);
        }
        let is_value = |entry: &Entry| entry.as_marker().is_none();
        let replaced = stale.clone().filter(is_value);
        let lease = GrantedLease { lease, at: Instant::now(), failures, replaced };
        self.note_fallback(asked, stale);
        let probe = probe.map(|failure| self.failure_of(failure, failure.cooldown));
        let meanwhile = match self.meanwhile() {
            // With a stale answer, no caller waits for a probe, not even its opener.
            Meanwhile::Nothing | Meanwhile::Fallback(..) if probe.is_some() => {
                self.stale_fallback().map_or(Meanwhile::Nothing, Meanwhile::Give)
            }
            meanwhile => meanwhile,
        };
        TaskEvent::Granted { asked, lease, probe, meanwhile }
    }

    /// A load failed a moment ago, in this process or in another one.
    fn failing(
        &mut self,
        asked: Generation,
        failure: &Failure,
        left: Duration,
        stale: Option<Entry>,
    ) -> TaskEvent {
        let until = Instant::now() + left.min(LONGEST_COOLDOWN);
        self.note_fallback(asked, stale);
        if let Some(stale) = self.stale_fallback() {
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
    fn meanwhile(&self) -> Meanwhile<Outcome> {
        let Some((_, fallback)) = &self.memory.fallback else { return Meanwhile::Nothing };
        let entry = &fallback.entry;
        match self.outcome_of(entry, core::stale(entry, StaleReason::Revalidating)) {
            Some(stale) if entry.serves_while_revalidating() => Meanwhile::Give(stale),
            Some(_) if entry.serves_if_error() => {
                Meanwhile::Fallback(Outcome::Stale(fallback.clone()))
            }
            _ => Meanwhile::Nothing,
        }
    }

    fn note_fallback(&mut self, asked: Generation, entry: Option<Entry>) {
        let entry = entry.filter(|_| self.purpose != Purpose::ForceRefresh);
        self.memory.fallback = entry.map(|entry| (asked, StaleFallback::found(entry)));
    }

    /// The outcome of the stale fallback, if it may still be served instead of a failure.
    pub(super) fn stale_fallback(&self) -> Option<Outcome> {
        let fallback = self.memory.fallback.as_ref();
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
