//! The load, and how its lease ends: commit, marker, report or release.

use std::any::Any;
use std::convert::Infallible;
use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};
use tower::Service;

use super::{
    AskedFallback, FlightHold, FlightMemory, FlightTask, GrantedLease, PreparedDraft, TaskEvent,
};
use crate::codec::Codec;
use crate::error::{BoxError, FailureCause};
use crate::flight::{Generation, Leader, Phase};
use crate::lifetimes::Lifetimes;
use crate::policy::{Policy, WhenAbandoned};
use crate::read_through::core::{self, Core};
use crate::read_through::load::{self, AnswerStorage, FailedLoad, FailureScope};
use crate::read_through::load::{LoadCause, LoaderAnswer};
use crate::read_through::outcome::{Outcome, ValueOrigin};
use crate::read_through::step::{Blame, LeaseHold, LoadEnd};
use crate::stats::LeaseEvent;
use crate::status::BypassReason;
use crate::store::{Claim, Commit, Draft, Failure, Marker, Renew, Value};
use crate::tag::Tags;
use crate::trace::CallerSpan;

type FlightLoadEnd = LoadEnd<Outcome, Generation, PreparedDraft, Failure>;

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    C: Codec<S::Response>,
{
    /// Loads, and completes every other waiter with `meanwhile`.
    pub(super) async fn load(
        &mut self,
        hold: FlightHold,
        meanwhile: Option<Outcome>,
        memory: FlightMemory,
    ) -> TaskEvent {
        let fallback = memory.fallback.as_ref();
        let why = self.load_reason(&hold);
        let trigger = match self.background {
            Some(_) => mem::take(&mut self.opener),
            None => CallerSpan::default(),
        };
        let cause = LoadCause { why, trigger };
        let end = tokio::select! {
            biased;
            end = self.load_under(&hold, cause, fallback) => end,
            never = complete_others(&self.leader, meanwhile.as_ref()) => match never {},
        };
        TaskEvent::LoadEnded { hold, end, memory }
    }

    async fn load_under(
        &self,
        hold: &FlightHold,
        cause: LoadCause,
        fallback: Option<&AskedFallback>,
    ) -> FlightLoadEnd {
        if !self.job.is_there() {
            return LoadEnd::NoRequest;
        }
        let Some(_permit) = self.permit(hold).await else {
            return LoadEnd::Abandoned;
        };
        let Some(job) = self.job.take() else {
            return LoadEnd::NoRequest;
        };
        let before = self.failures_before(hold);
        self.leader.enter(Phase::Loading);
        let began = self.leader.generation();
        let started = Instant::now();
        let when_abandoned = match hold {
            LeaseHold::Lease(_) => self.core.policy.when_abandoned,
            // Its answer is for the callers that have joined by now, and is not stored.
            _ => WhenAbandoned::Cancel,
        };
        let answer = tokio::select! {
            biased;
            answer = load::load(job, &self.core, &self.leader, when_abandoned, cause) => answer,
            never = renewing(&self.core, hold) => match never {},
        };
        match answer {
            LoaderAnswer::Loaded(kept, decision, tags) => {
                let decision = self.unless_too_many(decision, &tags);
                let load = EndedLoad { hold, began, time: started.elapsed(), tags };
                self.loaded(&load, kept, decision)
            }
            LoaderAnswer::Failed(failed) => self.load_failed(hold, began, before, failed, fallback),
            LoaderAnswer::Abandoned => LoadEnd::Abandoned,
        }
    }

    /// How many loads in a row have failed before this one. Under a lease the store's count holds,
    /// since it includes the loads of other processes. A failure that the store does not know
    /// counts too.
    fn failures_before(&self, hold: &FlightHold) -> u32 {
        let key = self.leader.key().digest();
        let loads = &self.core.loads;
        match hold {
            _ if self.purpose.is_forced() => loads.unshared_failures.times(&key),
            LeaseHold::Lease(lease) => lease.failures.max(loads.failures.unreported(&key)),
            _ => loads.failures.times(&key),
        }
    }

    /// A permit for a load without a lease, which may have to wait for one. A load under a lease
    /// needs none: `Some(None)`. `None` if no waiter is left.
    async fn permit(&self, hold: &FlightHold) -> Option<Option<OwnedSemaphorePermit>> {
        if matches!(hold, LeaseHold::Lease(_)) {
            return Some(None);
        }
        if self.leader.is_empty() {
            // The answer would not be stored.
            return None;
        }
        let permits = &self.core.loads.uncached_permits;
        if let Some(permit) = permits.try_acquire() {
            return Some(Some(permit));
        }
        self.leader.enter(Phase::Queueing);
        tokio::select! {
            permit = permits.acquire() => permit.map(Some),
            () = self.leader.abandoned() => None,
        }
    }

    /// An answer cannot be stored if it has too many tags with those of its request.
    fn unless_too_many(&self, decision: AnswerStorage, tags: &Tags) -> AnswerStorage {
        match (self.claim.tags().union(tags), &decision) {
            (Err(many), AnswerStorage::Store(..)) => {
                load::warn_too_many_tags(&self.core, self.leader.key(), many);
                AnswerStorage::Uncacheable
            }
            _ => decision,
        }
    }

    fn loaded(
        &self,
        load: &EndedLoad<'_>,
        kept: Arc<dyn Any + Send + Sync>,
        decision: AnswerStorage,
    ) -> FlightLoadEnd {
        let key = self.leader.key().digest();
        let loads = &self.core.loads;
        loads.failures.forget(&key);
        loads.unshared_failures.forget(&key);
        match &decision {
            AnswerStorage::PrivateKey => self.core.note_private(self.leader.key()),
            AnswerStorage::PrivateOnce => {}
            _ => loads.private_keys.note_shared(&key),
        }
        let outcome = Outcome::Value(Arc::clone(&kept), value_origin(load.hold));
        let marker_ttl = self.core.policy.freshness.marker_ttl;
        let marker = |marker| load.prepare(Draft::marker(marker_ttl, marker), false);
        let began = load.began;
        match decision {
            AnswerStorage::PrivateKey => {
                LoadEnd::PrivateKey { outcome, marker: marker(Marker::PrivateKey) }
            }
            AnswerStorage::PrivateOnce => {
                let marker = (!load.replaces()).then(|| marker(Marker::PrivateOnce));
                LoadEnd::PrivateOnce { outcome, marker }
            }
            AnswerStorage::Uncacheable => {
                LoadEnd::Value { began, outcome, draft: marker(Marker::Uncacheable) }
            }
            AnswerStorage::Share => {
                let draft =
                    Draft::new(core::empty_value(), 0, Lifetimes::fresh_for(Duration::ZERO));
                LoadEnd::Value { began, outcome, draft: load.prepare(draft, false) }
            }
            AnswerStorage::StoreNotFound(found, lifetimes) => {
                LoadEnd::Value { began, outcome, draft: load.prepare(found.draft(lifetimes), true) }
            }
            AnswerStorage::Store(bytes, extra_bytes, lifetimes) => {
                let value = Value::of(bytes, kept, extra_bytes);
                let draft = Draft::new(value, self.core.codec.id(), lifetimes);
                LoadEnd::Value { began, outcome, draft: load.prepare(draft, true) }
            }
        }
    }

    fn load_failed(
        &self,
        hold: &FlightHold,
        began: Generation,
        before: u32,
        failed: FailedLoad,
        fallback: Option<&AskedFallback>,
    ) -> FlightLoadEnd {
        let failure = failed.remembered(before, &self.core.policy);
        let is_confirmed = failed.is_confirmed(before);
        let counts = failed.counts();
        let FailedLoad { mut outcome, bytes, cause, scope, .. } = failed;
        if let Outcome::Value(_, from) = &mut outcome {
            *from = value_origin(hold);
        }
        // A forced refresh bypasses the stored entry and can be repeated at will, so its failure
        // must not put the key into cooldown.
        let is_forced = self.purpose.is_forced();
        let key = self.leader.key().digest();
        let loads = &self.core.loads;
        match is_forced {
            _ if !counts => {}
            true => loads.unshared_failures.note(
                key,
                outcome.clone(),
                0,
                &failure.clone().without_window(),
            ),
            false => loads.failures.note(key, outcome.clone(), bytes, &failure),
        }
        let blame = match cause {
            _ if is_confirmed => Blame::Source,
            FailureCause::TimedOut => Blame::Limit,
            FailureCause::Error | FailureCause::Panicked => Blame::Request,
        };
        let fallback = fallback.filter(|_| scope != FailureScope::Answer);
        let stale = self.stale_fallback(fallback).zip(fallback.map(|(asked, _)| *asked));
        let is_remembered =
            counts && !is_forced && !self.core.policy.failures.windows.first.is_zero();
        let report = is_remembered.then_some(failure);
        LoadEnd::Failed { began, outcome, blame, fallback: stale, report }
    }

    pub(super) async fn commit(
        &self,
        granted: GrantedLease,
        prepared: PreparedDraft,
        began: Generation,
        mut outcome: Outcome,
        memory: FlightMemory,
    ) -> TaskEvent {
        // A waiter that joins from here on may have begun after an invalidation that the commit
        // misses.
        let asked = self.leader.generation();
        let PreparedDraft { draft, is_kept: stored } = prepared;
        match self.core.store.commit(granted.lease, draft).await {
            Ok(Commit::Stored) => {
                if let Outcome::Value(_, origin) = &mut outcome {
                    *origin = ValueOrigin::Loaded { stored };
                }
                TaskEvent::Stored { asked, outcome, memory }
            }
            Ok(Commit::Superseded) => TaskEvent::Superseded { began, outcome, memory },
            Err(error) => {
                self.core.statistics.store_failed("a loaded answer may not be stored", &error);
                TaskEvent::CommitFailed { began, outcome }
            }
        }
    }

    /// Releases the lease with a marker: waiters in other processes learn that the answer is
    /// private.
    pub(super) async fn mark(&self, granted: GrantedLease, marker: PreparedDraft) -> TaskEvent {
        match self.core.store.commit(granted.lease, marker.draft).await {
            Ok(_) => TaskEvent::Released,
            Err(error) => {
                self.core.statistics.store_failed(
                    "callers of other processes may wait for a private answer",
                    &error,
                );
                TaskEvent::Unacknowledged
            }
        }
    }

    /// Releases the lease with a report of the failure, so that the whole fleet counts it.
    pub(super) async fn report(&self, granted: GrantedLease, failure: Failure) -> TaskEvent {
        match self.core.store.fail(granted.lease, failure).await {
            Ok(()) => {
                self.core.loads.failures.note_reported(&self.leader.key().digest());
                TaskEvent::Released
            }
            Err(error) => {
                tracing::debug!(target: "bellwether::load", cache = &**self.core.statistics.name(), %error, "a failure is remembered by this process only");
                TaskEvent::Unacknowledged
            }
        }
    }

    pub(super) async fn release(&self, granted: Option<GrantedLease>) -> TaskEvent {
        let claim =
            granted.map_or_else(|| self.claim.clone(), |granted| granted.lease.into_claim());
        self.abandon(claim).await;
        TaskEvent::Released
    }

    pub(super) async fn abandon(&self, claim: Claim) {
        if let Err(error) = self.core.store.abandon(claim).await {
            tracing::debug!(target: "bellwether::load", cache = &**self.core.statistics.name(), %error, "a lease is not released: it ends when it lapses");
        }
    }
}

/// A load that has ended.
struct EndedLoad<'a> {
    hold: &'a FlightHold,
    began: Generation,
    time: Duration,
    /// The tags that are known only now.
    tags: Tags,
}

impl EndedLoad<'_> {
    fn prepare(&self, draft: Draft, is_kept: bool) -> PreparedDraft {
        let leased_for = match self.hold {
            LeaseHold::Lease(granted) => granted.at.elapsed(),
            _ => Duration::ZERO,
        };
        let draft = draft.timed(self.time, leased_for).tagged(self.tags.clone());
        PreparedDraft { draft, is_kept }
    }

    fn replaces(&self) -> bool {
        matches!(self.hold, LeaseHold::Lease(GrantedLease { replaces: true, .. }))
    }
}

/// The origin of a value that this flight loaded, before it is stored.
fn value_origin(hold: &FlightHold) -> ValueOrigin {
    match hold {
        LeaseHold::Lease(_) => ValueOrigin::Loaded { stored: false },
        LeaseHold::Nothing => ValueOrigin::Uncached(BypassReason::NotKept),
        LeaseHold::StoreDown | LeaseHold::Unacknowledged => {
            ValueOrigin::Uncached(BypassReason::StoreFailed)
        }
    }
}

/// During a probe: completes every waiter but the opener with the failure, for as long as it is
/// polled.
async fn complete_others(leader: &Leader<Outcome>, failure: Option<&Outcome>) -> Infallible {
    let Some(failure) = failure else {
        return pending().await;
    };
    loop {
        leader.complete_others(failure);
        leader.joined(false).await;
    }
}

/// Renews a lease to its full term for as long as it is polled.
async fn renewing<C>(core: &Core<C>, hold: &FlightHold) -> Infallible {
    let LeaseHold::Lease(GrantedLease { lease, .. }) = hold else {
        return pending().await;
    };
    let Core { store, statistics, policy, .. } = core;
    let whole = policy.lease;
    let mut term = lease.term();
    loop {
        sleep(Policy::renewal(term)).await;
        match store.renew(lease, whole).await {
            Ok(Renew::Held) => {
                statistics.lease(LeaseEvent::Renewed);
                term = whole;
            }
            // The load goes on: its value may still be newer than anything stored.
            Ok(Renew::Lost) => {
                statistics.lease_lost(lease.key());
                return pending().await;
            }
            Err(error) => statistics.store_failed("a lease could not be renewed", &error),
        }
    }
}
