//! What the store is asked before a load, and what its answers mean.

use std::time::Duration;

use tokio::time::Instant;
use tower::Service;

use super::{
    Event, FlightHold, FlightMemory, FlightTask, GrantedLease, LONGEST_REST, StaleFallback,
};
use crate::codec::Codec;
use crate::error::{CacheError, FailureCause, StoreError, StoreErrorKind};
use crate::flight::{Generation, Phase};
use crate::jitter::jitter;
use crate::log_throttle::warn_throttled;
use crate::policy::WhenStoreFails;
use crate::read_through::core;
use crate::read_through::failure_cache::RememberedFailure;
use crate::read_through::outcome::{Origin, Outcome};
use crate::read_through::step::{Hold, Known, Meanwhile, Memory};
use crate::status::{CacheStatus, StaleReason};
use crate::store::{Accept, Acquire, Entry, Failure, Lease, Marker};

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Codec<S::Response>,
{
    pub(super) async fn acquire(&mut self, memory: FlightMemory) -> Event {
        self.leader.enter(Phase::Asking);
        let asked = self.leader.generation();
        let (claim, term) = (self.claim.clone(), self.core.policy.first_term());
        match self.core.store.acquire(claim, term, memory.accept).await {
            Ok(Acquire::Found(entry)) => self.found(asked, &entry, memory),
            Ok(Acquire::Busy { remaining, stale }) => self.busy(asked, remaining, stale, memory),
            Ok(Acquire::Failed { failure, remaining, stale }) => {
                self.failing(asked, &failure, remaining, stale, memory)
            }
            Ok(Acquire::Lead { lease, stale, failures, probe }) => {
                self.led(asked, lease, stale, failures, probe.as_ref(), memory)
            }
            Err(error) => {
                warn_throttled!(%error, "loading without a lease");
                let hold = match error.kind() {
                    // It was not asked.
                    StoreErrorKind::Down => Hold::StoreDown,
                    _ => Hold::Unacknowledged,
                };
                self.store_failed(memory, &error, hold)
            }
        }
    }

    pub(super) async fn look_up(&mut self, late: Generation, memory: FlightMemory) -> Event {
        if !self.leader.has_joined_since(late) {
            return Event::NoneRemain;
        }
        self.leader.enter(Phase::Asking);
        let asked = self.leader.generation();
        match self.core.store.lookup(self.leader.key().clone()).await {
            Ok(Some(entry)) if entry.is_fresh() => self.found_later(asked, &entry, memory),
            Ok(_) => self.gone(memory.accept, memory),
            Err(error) => {
                warn_throttled!(%error, "the waiters that remain look for themselves");
                self.gone(memory.accept, memory)
            }
        }
    }

    fn found_later(&self, asked: Generation, entry: &Entry, memory: FlightMemory) -> Event {
        let other = Accept::Other { than: entry.fence() };
        match entry.as_marker() {
            // The next question finds it, too: it is what was waited for.
            Some(_) if memory.waited => self.gone(memory.accept, memory),
            Some(_) => self.gone(other, memory),
            None => match self.value_of(entry, memory.waited) {
                Some(outcome) => Event::Found { asked, outcome, due: self.due(entry), memory },
                None => self.gone(other, memory),
            },
        }
    }

    fn gone(&self, accept: Accept, memory: FlightMemory) -> Event {
        Event::Gone { accept, can_load: self.job.is_there(), memory }
    }

    fn found(&self, asked: Generation, entry: &Entry, memory: FlightMemory) -> Event {
        // Another process has to replace it, or we do. What it is replaced by is good enough.
        let accept = Accept::Other { than: entry.fence() };
        match entry.as_marker() {
            Some(Marker::PrivateKey) => Event::Private { accept, memory },
            Some(Marker::PrivateOnce) => Event::Own { accept, memory },
            Some(Marker::Uncacheable) => Event::Unkept { accept, known: self.known(), memory },
            None => match self.value_of(entry, memory.waited) {
                Some(outcome) => Event::Found { asked, outcome, due: self.due(entry), memory },
                None => Event::Unreadable { accept, memory },
            },
        }
    }

    /// An entry as what was kept, or as what another process has loaded meanwhile.
    fn value_of(&self, entry: &Entry, waited: bool) -> Option<Outcome> {
        self.outcome_of(entry, (!waited).then(|| core::hit(entry)))
    }

    /// Whether it is time to replace what is still fresh, and there is something to load with.
    fn due(&self, entry: &Entry) -> Option<Accept> {
        let freshness = &self.core.policy.freshness;
        let left =
            entry.fresh_for().filter(|_| freshness.early.is_some() && self.job.is_there())?;
        let is_due = freshness.is_due_early(entry.load_time(), left, jitter());
        is_due.then(|| Accept::Other { than: entry.fence() })
    }

    fn busy(
        &self,
        asked: Generation,
        left: Duration,
        stale: Option<Entry>,
        memory: FlightMemory,
    ) -> Event {
        let accept = match (memory.accept, &stale) {
            // The load that runs gives something newer than what is there.
            (Accept::Nothing, Some(entry)) => Accept::Other { than: entry.fence() },
            (Accept::Nothing, None) => Accept::Fresh,
            (accept, _) => accept,
        };
        let fallback = self.fallback(asked, stale);
        let meanwhile = self.meanwhile(fallback.as_ref());
        let memory = Memory { accept, fallback, ..memory };
        Event::Busy { asked, left, meanwhile, memory }
    }

    fn led(
        &self,
        asked: Generation,
        lease: Lease,
        stale: Option<Entry>,
        failures: u32,
        probe: Option<&Failure>,
        memory: FlightMemory,
    ) -> Event {
        let is_value = |entry: &Entry| entry.as_marker().is_none();
        let replaces = failures > 0 || stale.as_ref().is_some_and(is_value);
        let lease = GrantedLease { lease, at: Instant::now(), failures, replaces };
        let fallback = self.fallback(asked, stale);
        let probe = probe.map(|failure| self.failure_of(failure, failure.cooldown()));
        let meanwhile = match self.meanwhile(fallback.as_ref()) {
            // No caller waits for a probe if there is a stale answer, not even the one whose
            // request it is.
            Meanwhile::Nothing | Meanwhile::Offer(..) if probe.is_some() => {
                self.instead(fallback.as_ref()).map_or(Meanwhile::Nothing, Meanwhile::Give)
            }
            meanwhile => meanwhile,
        };
        let memory = Memory { fallback, ..memory };
        Event::Led { asked, lease, probe, meanwhile, memory }
    }

    /// A load failed a moment ago, here or in another process.
    fn failing(
        &self,
        asked: Generation,
        failure: &Failure,
        left: Duration,
        stale: Option<Entry>,
        memory: FlightMemory,
    ) -> Event {
        let until = Instant::now() + left.min(LONGEST_REST);
        let fallback = self.fallback(asked, stale);
        if let Some(stale) = self.instead(fallback.as_ref()) {
            let memory = Memory { fallback, ..memory };
            return Event::Spared { asked, stale, until, memory };
        }
        // A caller that joins a forced refresh later causes a load.
        let until = (!self.purpose.is_forced()).then_some(until);
        Event::Failing { failure: self.failure_of(failure, left), until }
    }

    /// The store has failed. It may be known all the same that the load would.
    pub(super) fn store_failed(
        &self,
        memory: FlightMemory,
        error: &StoreError,
        hold: FlightHold,
    ) -> Event {
        let error = Outcome::Failed(CacheError::store(self.leader.key(), error));
        let may_load = self.core.policy.when_store_fails == WhenStoreFails::Load;
        Event::StoreFailed { error, known: self.known(), hold, may_load, memory }
    }

    /// What this process knows by itself of the loads of this key.
    fn known(&self) -> Known<Outcome, Instant> {
        let key = self.leader.key();
        let remembered = self.core.loads.failures.of(&key.digest());
        let remembered = remembered.filter(|_| !self.purpose.is_forced());
        let Some(RememberedFailure { outcome, left }) = remembered else {
            return Known::Nothing;
        };
        let in_words =
            || Outcome::Failed(CacheError::load_failed(key, FailureCause::Error, "", left));
        let failure = outcome.unwrap_or_else(in_words);
        match left.is_zero() {
            true => Known::Probe(failure),
            false => Known::Cooldown(failure, Instant::now() + left.min(LONGEST_REST)),
        }
    }

    /// The error itself if it was this process's, or else what the store has of it.
    fn failure_of(&self, failure: &Failure, left: Duration) -> Outcome {
        let key = self.leader.key();
        self.core.loads.failures.outcome(&key.digest()).unwrap_or_else(|| {
            let message = failure.message();
            Outcome::Failed(CacheError::load_failed(key, failure.cause(), message, left))
        })
    }

    /// What the waiters that asked are given at once if a stale answer will do, and are offered if
    /// it will do only once they have waited in vain.
    fn meanwhile(&self, fallback: Option<&StaleFallback>) -> Meanwhile<Outcome, Duration> {
        let Some(StaleFallback { entry, .. }) = fallback else { return Meanwhile::Nothing };
        let Some(stale_for) = entry.stale_for() else { return Meanwhile::Nothing };
        let status = Some(core::stale(entry, StaleReason::Revalidating));
        match self.outcome_of(entry, status) {
            Some(stale) if entry.serves_while_revalidating() => Meanwhile::Give(stale),
            Some(stale) if entry.serves_if_error() => {
                Meanwhile::Offer(stale, entry.lifetimes().if_error().saturating_sub(stale_for))
            }
            _ => Meanwhile::Nothing,
        }
    }

    fn fallback(&self, asked: Generation, entry: Option<Entry>) -> Option<StaleFallback> {
        let entry = entry.filter(|_| !self.purpose.is_forced())?;
        Some(StaleFallback { entry, asked, found_at: Instant::now() })
    }

    /// What may be given out by now instead of a failure.
    pub(super) fn instead(&self, fallback: Option<&StaleFallback>) -> Option<Outcome> {
        let StaleFallback { entry, found_at, .. } = fallback?;
        let since = found_at.elapsed();
        let stale_for = match (entry.stale_for(), entry.fresh_for()) {
            (Some(stale_for), _) => stale_for + since,
            (None, Some(fresh_for)) if fresh_for <= since => since - fresh_for,
            _ => return self.outcome_of(entry, Some(core::hit(entry))),
        };
        let status = CacheStatus::Stale { why: StaleReason::LoadFailed, stale_for };
        // In either window: while it is replaced it is given out, though that fails.
        let will_do = stale_for < entry.lifetimes().given_out();
        will_do.then(|| self.outcome_of(entry, Some(status))).flatten()
    }

    /// What an entry holds: as what was kept, or as what another process has loaded meanwhile.
    fn outcome_of(&self, entry: &Entry, status: Option<CacheStatus>) -> Option<Outcome> {
        let kept = self.core.read::<S::Response>(entry)?;
        Some(Outcome::Value(kept, status.map_or(Origin::Elsewhere, Origin::Kept)))
    }
}
