//! The load, and what becomes of what it gave.

use std::any::Any;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};
use tower::Service;

use super::{
    Event, FlightHold, FlightMemory, FlightTask, GrantedLease, PreparedDraft, StaleFallback,
};
use crate::codec::Codec;
use crate::error::FailureCause;
use crate::flight::{Generation, Leader, Phase};
use crate::log_throttle::warn_throttled;
use crate::policy::Policy;
use crate::read_through::core;
use crate::read_through::load::{self, FailedLoad, Fault, Keeping, LoaderAnswer};
use crate::read_through::outcome::{Origin, Outcome};
use crate::read_through::step::{Blame, Hold, LoadEnd};
use crate::status::BypassReason;
use crate::store::{Commit, Draft, Failure, Lifetimes, Marker, Renew, Store, Value};

type FlightLoadEnd = LoadEnd<Outcome, Generation, PreparedDraft, Failure>;

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Codec<S::Response>,
{
    /// Loads, and completes every other waiter with `meanwhile`.
    pub(super) async fn load(
        &self,
        hold: FlightHold,
        meanwhile: Option<Outcome>,
        memory: FlightMemory,
    ) -> Event {
        let fallback = memory.fallback.as_ref();
        let end = tokio::select! {
            biased;
            end = self.load_under(&hold, fallback) => end,
            never = complete_others(&self.leader, meanwhile.as_ref()) => match never {},
        };
        Event::LoadEnded { hold, end, memory }
    }

    async fn load_under(
        &self,
        hold: &FlightHold,
        fallback: Option<&StaleFallback>,
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
        let (began, started) = (self.leader.generation(), Instant::now());
        let when_abandoned = self.core.policy.when_abandoned;
        let answer = tokio::select! {
            biased;
            answer = load::load(job, &self.core, &self.leader, when_abandoned) => answer,
            never = renewing(&*self.core.store, hold, self.core.policy.lease) => match never {},
        };
        match answer {
            LoaderAnswer::Loaded(kept, keeping) => {
                let load = Load { hold, began, time: started.elapsed() };
                self.loaded(&load, kept, keeping)
            }
            LoaderAnswer::Failed(failed) => self.load_failed(hold, began, before, failed, fallback),
            LoaderAnswer::Abandoned => LoadEnd::Abandoned,
        }
    }

    /// How many loads in a row have failed before this one. Under a lease the store knows, since it
    /// is told of successes elsewhere too: what it was not told is all that counts here then.
    fn failures_before(&self, hold: &FlightHold) -> u32 {
        let (key, loads) = (self.leader.key().digest(), &self.core.loads);
        match hold {
            _ if self.purpose.is_forced() => loads.apart.times(&key),
            Hold::Lease(lease) => lease.failures.max(loads.failures.untold(&key)),
            _ => loads.failures.times(&key),
        }
    }

    /// A load under a lease needs none. One without has to wait if there are too many; nothing, if
    /// no waiter is there by then.
    async fn permit(&self, hold: &FlightHold) -> Option<Option<OwnedSemaphorePermit>> {
        if matches!(hold, Hold::Lease(_)) {
            return Some(None);
        }
        if self.leader.is_empty() {
            // What it loads cannot be kept.
            return None;
        }
        let permits = Arc::clone(&self.core.loads.permits);
        if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
            return Some(Some(permit));
        }
        self.leader.enter(Phase::Queueing);
        tokio::select! {
            permit = permits.acquire_owned() => permit.ok().map(Some),
            () = self.leader.abandoned() => None,
        }
    }

    fn loaded(
        &self,
        load: &Load<'_>,
        kept: Arc<dyn Any + Send + Sync>,
        keeping: Keeping,
    ) -> FlightLoadEnd {
        let (key, loads) = (self.leader.key().digest(), &self.core.loads);
        loads.failures.forget(&key);
        loads.apart.forget(&key);
        match &keeping {
            Keeping::PrivateKey => self.core.note_private(self.leader.key()),
            Keeping::PrivateOnce => {}
            _ => loads.private_keys.note_shared(&key),
        }
        let outcome = Outcome::Value(Arc::clone(&kept), origin(load.hold));
        let marker_ttl = self.core.policy.freshness.marker_ttl;
        let marker = |marker| load.prepare(Draft::marker(marker_ttl, marker), false);
        let began = load.began;
        match keeping {
            Keeping::PrivateKey => LoadEnd::Private { outcome, marker: marker(Marker::PrivateKey) },
            Keeping::PrivateOnce => {
                let marker = (!load.replaces()).then(|| marker(Marker::PrivateOnce));
                LoadEnd::Own { outcome, marker }
            }
            Keeping::Uncacheable => {
                LoadEnd::Value { began, outcome, draft: marker(Marker::Uncacheable) }
            }
            Keeping::Share => {
                let draft = Draft::new(core::nothing(), 0, Lifetimes::fresh_for(Duration::ZERO));
                LoadEnd::Value { began, outcome, draft: load.prepare(draft, false) }
            }
            Keeping::Keep(bytes, beside, windows) => {
                let value = Value::of(bytes, kept, beside);
                let draft = Draft::new(value, self.core.codec.id(), windows);
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
        fallback: Option<&StaleFallback>,
    ) -> FlightLoadEnd {
        let failure = failed.remembered(before, &self.core.policy);
        let is_confirmed = failed.is_confirmed(before);
        let FailedLoad { mut outcome, bytes, cause, fault, .. } = failed;
        if let Outcome::Value(_, from) = &mut outcome {
            *from = origin(hold);
        }
        // A forced refresh may be repeated at will and in ways of its own, so its failure must not
        // hold up other callers.
        let is_forced = self.purpose.is_forced();
        let (key, loads) = (self.leader.key().digest(), &self.core.loads);
        match is_forced {
            true => loads.apart.note(key, outcome.clone(), 0, &failure.clone().without_window()),
            false => loads.failures.note(key, outcome.clone(), bytes, &failure),
        }
        let blame = match cause {
            _ if is_confirmed => Blame::Source,
            FailureCause::TimedOut => Blame::Limit,
            FailureCause::Error | FailureCause::Panicked => Blame::Request,
        };
        let fallback = fallback.filter(|_| fault != Fault::Answer);
        let stale = self.instead(fallback).zip(fallback.map(|fallback| fallback.asked));
        let is_remembered = !is_forced && !self.core.policy.failures.windows.first.is_zero();
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
    ) -> Event {
        // A waiter that joins from here on may have begun after an invalidation that this commit,
        // being under way, does not know of.
        let asked = self.leader.generation();
        let PreparedDraft { draft, is_kept: stored } = prepared;
        match self.core.store.commit(granted.lease, draft).await {
            Ok(Commit::Stored) => {
                if let Outcome::Value(_, origin) = &mut outcome {
                    *origin = Origin::Loaded { stored };
                }
                Event::Stored { asked, outcome, memory }
            }
            Ok(Commit::Superseded) => Event::Superseded { began, outcome, memory },
            Err(error) => {
                warn_throttled!(%error, "loaded, and perhaps not kept");
                Event::CommitFailed { began, outcome }
            }
        }
    }

    /// Gives the lease up and tells other processes, whose callers wait for this answer, that it is
    /// not for them.
    pub(super) async fn mark(&self, granted: GrantedLease, marker: PreparedDraft) -> Event {
        match self.core.store.commit(granted.lease, marker.draft).await {
            Ok(_) => Event::Released,
            Err(error) => {
                warn_throttled!(%error, "callers elsewhere may wait for what is not for them");
                Event::Unacknowledged
            }
        }
    }

    /// Gives the lease up with word of the failure, so that it counts in the whole fleet.
    pub(super) async fn report(&self, granted: GrantedLease, failure: Failure) -> Event {
        match self.core.store.fail(granted.lease, failure).await {
            Ok(()) => {
                self.core.loads.failures.note_told(&self.leader.key().digest());
                Event::Released
            }
            Err(error) => {
                tracing::debug!(%error, "a failure is remembered by this process only");
                Event::Unacknowledged
            }
        }
    }

    pub(super) async fn release(&self, granted: Option<GrantedLease>) -> Event {
        let claim =
            granted.map_or_else(|| self.claim.clone(), |granted| granted.lease.into_claim());
        if let Err(error) = self.core.store.abandon(claim).await {
            tracing::debug!(%error, "the lease lapses by itself");
        }
        Event::Released
    }
}

/// A load that has ended.
struct Load<'a> {
    hold: &'a FlightHold,
    began: Generation,
    time: Duration,
}

impl Load<'_> {
    fn prepare(&self, draft: Draft, is_kept: bool) -> PreparedDraft {
        let leased_for = match self.hold {
            Hold::Lease(granted) => granted.at.elapsed(),
            _ => Duration::ZERO,
        };
        PreparedDraft { draft: draft.timed(self.time, leased_for), is_kept }
    }

    fn replaces(&self) -> bool {
        matches!(self.hold, Hold::Lease(GrantedLease { replaces: true, .. }))
    }
}

/// Where a value of ours is from, before it is stored.
fn origin(hold: &FlightHold) -> Origin {
    match hold {
        Hold::Lease(_) => Origin::Loaded { stored: false },
        Hold::Nothing => Origin::Around(BypassReason::NotKept),
        Hold::StoreDown | Hold::Unacknowledged => Origin::Around(BypassReason::StoreFailed),
    }
}

/// During a probe: completes every waiter with the failure but the one whose request is the probe.
async fn complete_others(leader: &Leader<Outcome>, failure: Option<&Outcome>) -> Infallible {
    let Some(failure) = failure else {
        return pending().await;
    };
    loop {
        leader.complete_others(failure);
        leader.joined().await;
    }
}

/// Renews a lease to its whole term for as long as it is polled.
async fn renewing(store: &dyn Store, hold: &FlightHold, whole: Duration) -> Infallible {
    let Hold::Lease(GrantedLease { lease, .. }) = hold else {
        return pending().await;
    };
    let mut term = lease.term();
    loop {
        sleep(Policy::renewal(term)).await;
        match store.renew(lease, whole).await {
            Ok(Renew::Held) => term = whole,
            // The load goes on: what it gives may still be newer than anything else.
            Ok(Renew::Lost) => return pending().await,
            Err(error) => warn_throttled!(%error, "a lease could not be renewed"),
        }
    }
}
