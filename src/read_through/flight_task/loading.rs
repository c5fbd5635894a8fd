//! One load of a flight, under its lease or without one; and how that lease ends.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::queueing::{LoadAdmission, Queueing};
use super::scope::{Carried, FlightHold, GrantedLease, Purpose, Scope, TaskEvent};
use crate::codec::Codec;
use crate::error::{CacheError, StoreError};
use crate::flight::{Generation, Leader, Phase};
use crate::loads::Loads;
use crate::locked::locked;
use crate::policy::{FailureWindow, WhenAbandoned};
use crate::read_through::audit::{self, Replacement};
use crate::read_through::core::Core;
use crate::read_through::load::{Loader, LoaderAnswer, load};
use crate::read_through::outcome::Outcome;
use crate::read_through::remembered::FailureKind;
use crate::read_through::step::{
    AnswerKind, AnswerOf, KnownOfKey, LeaseHold, LoadAnswer, Record, Remember, Share, Verdict,
    begins, verdict,
};
use crate::stats::{AuditEvent, CommitEvent, LeaseEvent, LoadReason, Statistics};
use crate::status::{BypassReason, CacheStatus};
use crate::store::{Accept, Draft, End, Failure, Lease, Renew, Settled};
use crate::trace::CallerSpan;

/// One load of a flight.
pub(super) struct FlightLoad<'a, S, Req, C> {
    pub(super) scope: &'a Scope<S, Req, C>,
    pub(super) hold: &'a FlightHold,
    pub(super) queueing: Queueing<'a>,
}

impl<S: Loader<Req>, Req, C: Codec<S::Response>> FlightLoad<'_, S, Req, C> {
    /// Loads, and completes every other waiter with `meanwhile`.
    pub(super) async fn run(
        self,
        admission: Option<LoadAdmission>,
        cause: (LoadReason, CallerSpan),
        meanwhile: Option<Outcome>,
    ) -> Option<AnswerOf<Carried>> {
        tokio::select! {
            biased;
            answer = self.load(admission, cause) => answer,
            never = complete_others(&self.scope.leader, meanwhile) => match never {},
        }
    }

    async fn load(
        &self,
        admission: Option<LoadAdmission>,
        cause: (LoadReason, CallerSpan),
    ) -> Option<AnswerOf<Carried>> {
        let Scope { core, leader, job, claim, .. } = self.scope;
        if !begins(self.hold, self.scope.can_load(), || leader.is_awaited()) {
            return None;
        }
        let until_it_has_ended = match admission {
            Some(admission) => admission,
            None => self.admission().await?,
        };
        let job = locked(job).take()?;
        let (why, known) = (cause.0, self.known());
        leader.enter(Phase::Loading);
        let began = leader.generation();
        let started = Instant::now();
        let when_abandoned = match self.hold {
            LeaseHold::Lease(_) => core.policy.when_abandoned,
            // Its answer is for the callers that have joined by now, and is not stored.
            _ => WhenAbandoned::Cancel,
        };
        let answer = tokio::select! {
            biased;
            answer = load(job, core, leader, claim.tags(), when_abandoned, cause) => answer?,
            never = holding(core, self.hold) => match never {},
        };
        // Errors may come at once, and say nothing of the time that answers take.
        use AnswerKind::{PrivateKey, PrivateOnce, TimedOut, Unconfirmed, Value};
        if matches!(answer.kind, Value | PrivateKey | PrivateOnce | TimedOut | Unconfirmed) {
            until_it_has_ended.note(started);
        }
        Some(self.judge(answer, why, known, began, started.elapsed()))
    }

    /// Queues a load that has not asked the store for a lease. `None` if no waiter is left, or if the waits of
    /// all have run out: those end with an error.
    async fn admission(&self) -> Option<LoadAdmission> {
        let Scope { core, leader, purpose, .. } = self.scope;
        if let Some(admission) = self.queueing.at_once() {
            return Some(admission);
        }
        let max_wait = match purpose {
            Purpose::Uncached => core.policy.max_wait(),
            // The waits of its callers run out.
            _ => Duration::MAX,
        };
        timeout(max_wait, self.queueing.wait()).await.unwrap_or_else(|_| {
            let most = core.loads.bound.as_ref().map_or(0, Loads::most);
            let full = CacheError::full(leader.key(), most, CacheError::LOADS);
            leader.close_with(Outcome::Failed(full));
            None
        })
    }

    /// Which failures its own is one of.
    fn kind(&self) -> FailureKind {
        match self.scope.purpose {
            Purpose::ForceRefresh | Purpose::Uncached => FailureKind::Unshared,
            Purpose::Answer | Purpose::Refresh(..) => FailureKind::Shared,
        }
    }

    /// What is known of the key before the load. Under a lease the store's count of failures holds,
    /// since it includes the loads of other processes. A failure that the store does not know counts
    /// too.
    fn known(&self) -> KnownOfKey {
        let Scope { core, leader, .. } = self.scope;
        let key = leader.key().digest();
        let earlier = core.loads.failures.get(key, self.kind(), leader.types());
        let (times, is_reported) = earlier.map_or((0, false), |it| (it.times, it.is_reported));
        let (failures, replaces) = match (self.hold, self.kind()) {
            (LeaseHold::Lease(lease), FailureKind::Shared) => {
                let own = if is_reported && lease.is_shared() { 0 } else { times };
                (lease.failures.max(own), lease.replaces())
            }
            (LeaseHold::Lease(lease), FailureKind::Unshared) => (times, lease.replaces()),
            _ => (times, false),
        };
        let windows = core.policy.failures.windows;
        let shares_failures = self.kind() == FailureKind::Shared && !windows.first.is_zero();
        KnownOfKey { failures, replaces, shares_failures }
    }

    /// Remembers what the answer says of its key, and says what is done with it.
    fn judge(
        &self,
        answer: LoaderAnswer,
        why: LoadReason,
        known: KnownOfKey,
        began: Generation,
        took: Duration,
    ) -> AnswerOf<Carried> {
        let Verdict { share, is_stored, remember } = verdict(answer.kind, known);
        let outcome = answer.outcome.clone().with(status(why));
        let has_failed = answer.draft.is_none() && answer.kind != AnswerKind::Unconfirmed;
        let fallback = self.scope.memory.fallback.as_ref().filter(|_| has_failed);
        let fallback = fallback.and_then(|(asked, _)| Some((self.scope.stale_fallback()?, *asked)));
        let record = match (remember, share) {
            (Remember::Nothing, _) => None,
            (Remember::Failure | Remember::Cooldown, _) => {
                let is_shared = remember == Remember::Cooldown;
                Some(Record::Failure(self.failed(&answer, &outcome, known.failures, is_shared)))
            }
            (Remember::Success, _) => {
                let Scope { core, leader, .. } = self.scope;
                core.note_success(leader.key(), answer.kind);
                let record = if share == Share::Joined { Record::Value } else { Record::Marker };
                answer.draft.map(|draft| record(self.timed(draft, took)))
            }
        };
        LoadAnswer { began, outcome, share, record: record.filter(|_| is_stored), fallback }
    }

    /// Remembers a failure after so many others in a row.
    fn failed(
        &self,
        answer: &LoaderAnswer,
        outcome: &Outcome,
        before: u32,
        is_shared: bool,
    ) -> Failure {
        let Scope { core, leader, .. } = self.scope;
        let Core { policy, loads, .. } = &**core;
        let FailureWindow { window, cooldown, life } = match is_shared {
            true => policy.failures.confirmed(before.saturating_sub(1), policy.load_timeout),
            false => policy.failures.unconfirmed(),
        };
        let failure = Failure::new(answer.cause, before.saturating_add(1), window)
            .with_cooldown(cooldown)
            .with_life(life)
            .with_message(&answer.message);
        let (bytes, noted) = match self.kind() {
            FailureKind::Shared => (answer.bytes, failure.clone()),
            FailureKind::Unshared => (0, failure.clone().without_window()),
        };
        let key = leader.key().digest();
        let failed = (outcome.clone(), bytes);
        loads.failures.note(key, self.kind(), leader.types(), failed, noted);
        failure
    }

    /// What the store gets, with how long the load took and for how long its lease was held.
    fn timed(&self, draft: Draft, took: Duration) -> Draft {
        let leased_for = match self.hold {
            LeaseHold::Lease(granted) => granted.at.elapsed(),
            _ => Duration::ZERO,
        };
        draft.timed(took, leased_for)
    }
}

/// The status of the opener of a load that began for this reason, before its value is stored.
fn status(why: LoadReason) -> CacheStatus {
    CacheStatus::Bypass(match why {
        LoadReason::WaitRanOut => BypassReason::WaitRanOut,
        LoadReason::Disabled => BypassReason::Disabled,
        LoadReason::Private => BypassReason::Private,
        LoadReason::StoreFailed => BypassReason::StoreFailed,
        _ => return CacheStatus::Led { stored: false },
    })
}

/// During a probe: completes every waiter but the opener with the failure, for as long as it is
/// polled.
async fn complete_others(leader: &Leader<Outcome>, failure: Option<Outcome>) -> Infallible {
    let Some(failure) = failure else {
        return pending().await;
    };
    loop {
        leader.complete(|_, opener| !opener, failure.clone());
        leader.joined(false).await;
    }
}

/// How a lease of a flight ends: by a commit, or by a release.
pub(super) struct Settling<'a, S, Req, C>(pub(super) &'a Scope<S, Req, C>);

impl<S: Loader<Req>, Req, C: Codec<S::Response>> Settling<'_, S, Req, C> {
    pub(super) async fn commit(
        &self,
        granted: GrantedLease,
        draft: Draft,
        began: Generation,
        outcome: Outcome,
    ) -> TaskEvent {
        let Scope { core, leader, claim, .. } = self.0;
        // A waiter that joins from here on may have begun after an invalidation that the commit
        // misses.
        let asked = leader.generation();
        let stored = draft.is_value();
        let replacement = self.replacement(&granted, &draft);
        let GrantedLease { lease, .. } = granted;
        let is_local = lease.outage.is_some();
        if let Some(Replacement { is_audit: true, is_same: true, .. }) = replacement {
            // The same entry stays, so that another audit of it can be decided.
            core.statistics.audit(AuditEvent::Confirmed);
            core.abandon(lease.claim).await;
            return TaskEvent::Superseded { began, outcome };
        }
        let statistics = &core.statistics;
        match self.send_commit(lease, draft).await {
            // For this process only. Later callers ask the store: another process may have invalidated the key.
            Ok(Settled::Done | Settled::TooLarge) if is_local => {
                TaskEvent::Superseded { began, outcome }
            }
            Ok(Settled::Done) => {
                statistics.commit(CommitEvent::Stored);
                replacement.inspect(|it| it.is_stored(core, claim));
                let outcome = outcome.with(CacheStatus::Led { stored });
                TaskEvent::Stored { asked, outcome }
            }
            Ok(Settled::TooLarge) => {
                let (why, key) = (["an answer is too large to be stored", ""], leader.key());
                statistics.warn(Statistics::NOW_AND_THEN, why, Some(key), Some(&"by the store"));
                TaskEvent::Stored { asked, outcome }
            }
            Ok(Settled::Superseded) => {
                statistics.commit(CommitEvent::Superseded);
                let why = "a loaded answer was refused as outdated";
                statistics.debug(why, Some(leader.key()), None);
                TaskEvent::Superseded { began, outcome }
            }
            Err(error) => {
                statistics.commit(CommitEvent::Unacknowledged);
                statistics.store_failed("a loaded answer may not be stored", &error);
                TaskEvent::CommitFailed { began, outcome }
            }
        }
    }

    /// What a commit replaces, if it is known whether that changes it.
    fn replacement(&self, granted: &GrantedLease, loaded: &Draft) -> Option<Replacement> {
        let is_compared = loaded.is_value() && self.0.purpose != Purpose::ForceRefresh;
        let stored = granted.replaced.as_ref().filter(|_| is_compared)?;
        let is_same = audit::is_same(&*self.0.core, stored, loaded)?;
        let of = Accept::Other { than: stored.fence() };
        let is_audit = self.0.purpose == Purpose::Refresh(of, true);
        Some(Replacement { is_same, is_audit, fence: granted.lease.fence, age: stored.age() })
    }

    /// Commits, and renews the lease meanwhile: a large value may queue for longer than the lease, behind others
    /// of its size.
    async fn send_commit(&self, lease: Lease, draft: Draft) -> Result<Settled, StoreError> {
        let renewed = lease.for_renewals();
        let renewing = async {
            // How long ago the last one was is not known.
            renewing(&self.0.core, &renewed, renewed.term / 10).await;
            pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            committed = self.0.core.store.settle(End::Commit(lease, draft)) => committed,
            never = renewing => match never {},
        }
    }

    /// Releases the lease: with a marker, so that waiters of other processes learn that the answer is
    /// private; or with a report of the failure, so that the whole fleet counts it.
    pub(super) async fn release(
        &self,
        granted: Option<GrantedLease>,
        record: Option<Record<Draft, Failure>>,
    ) -> TaskEvent {
        let Scope { core, leader, claim, .. } = self.0;
        let released = match (granted.map(|it| it.lease), record) {
            (Some(lease), Some(Record::Failure(failure))) => {
                let sent = core.store.settle(End::Fail(lease, failure)).await;
                let why = "a failure is remembered by this process only";
                let note = |_| core.loads.failures.note_reported(leader.key().digest());
                sent.map(note).inspect_err(|error| core.statistics.debug(why, None, Some(error)))
            }
            (Some(lease), Some(Record::Value(marker) | Record::Marker(marker))) => {
                let then = "callers of other processes may wait for a private answer";
                let marked = core.store.settle(End::Commit(lease, marker)).await.map(drop);
                marked.inspect_err(|error| core.statistics.store_failed(then, error))
            }
            (lease, _) => {
                core.abandon(lease.map_or_else(|| claim.clone(), |it| it.claim)).await;
                Ok(())
            }
        };
        released.map_or(TaskEvent::Unacknowledged, |()| TaskEvent::Released)
    }
}

/// Renews the lease of a load for as long as it is polled. Without it the load goes on: its value may still
/// be newer than anything stored.
async fn holding<C>(core: &Core<C>, hold: &FlightHold) -> Infallible {
    if let LeaseHold::Lease(GrantedLease { lease, .. }) = hold {
        renewing(core, lease, lease.term / SHARE).await;
        core.statistics.lease(LeaseEvent::Lost);
        core.statistics.debug("a lease was lost during its load", Some(lease.key()), None);
    }
    pending().await
}

/// Renews a lease to its full term until it is lost.
async fn renewing<C>(core: &Core<C>, lease: &Lease, first_after: Duration) {
    let Core { store, statistics, policy, .. } = core;
    let whole = policy.lease;
    let mut pause = first_after;
    loop {
        sleep_until(core.loads.shared_moment(pause)).await;
        match store.renew(lease, whole).await {
            Ok(Renew::Held) => {
                statistics.lease(LeaseEvent::Renewed);
                pause = whole / SHARE;
            }
            Ok(Renew::Lost) => return,
            Err(error) => statistics.store_failed("a lease could not be renewed", &error),
        }
    }
}

/// A lease is renewed when such a share of its term is over, so it survives two failed renewals.
const SHARE: u32 = 3;
