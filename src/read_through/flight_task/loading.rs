//! One load of a flight: under its lease, or without one.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::queueing::{LoadAdmission, Queueing};
use super::scope::{Carried, FlightHold, GrantedLease, Purpose, Scope};
use super::settling::{SHARE, renewing};
use crate::codec::Codec;
use crate::error::CacheError;
use crate::flight::{Generation, Leader, Phase};
use crate::loads::Loads;
use crate::locked::locked;
use crate::policy::{FailureWindow, WhenAbandoned};
use crate::read_through::core::Core;
use crate::read_through::load::{Loader, LoaderAnswer, load};
use crate::read_through::outcome::Outcome;
use crate::read_through::remembered::FailureKind;
use crate::read_through::step::{
    AnswerKind, AnswerOf, KnownOfKey, LeaseHold, LoadAnswer, Record, Remember, Share, Verdict,
    begins, verdict,
};
use crate::stats::{LeaseEvent, LoadReason};
use crate::status::{BypassReason, CacheStatus};
use crate::store::{Draft, Failure};
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
