//! How a lease of a flight ends: by a commit, or by a release. Until then, it is renewed.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::sleep_until;

use super::scope::{GrantedLease, Purpose, Scope, TaskEvent};
use crate::codec::Codec;
use crate::error::StoreError;
use crate::flight::Generation;
use crate::read_through::audit::{self, Replacement};
use crate::read_through::core::Core;
use crate::read_through::load::Loader;
use crate::read_through::outcome::Outcome;
use crate::read_through::step::Record;
use crate::stats::{AuditEvent, CommitEvent, LeaseEvent, Statistics};
use crate::status::CacheStatus;
use crate::store::{Accept, Draft, End, Failure, Lease, Renew, Settled};

/// What a flight does at the end of its lease.
pub(super) struct Settling<'a, S, Req, C> {
    pub(super) scope: &'a Scope<S, Req, C>,
}

impl<S: Loader<Req>, Req, C: Codec<S::Response>> Settling<'_, S, Req, C> {
    pub(super) async fn commit(
        &self,
        granted: GrantedLease,
        draft: Draft,
        began: Generation,
        outcome: Outcome,
    ) -> TaskEvent {
        let Scope { core, leader, claim, .. } = self.scope;
        // A waiter that joins from here on may have begun after an invalidation that the commit
        // misses.
        let asked = leader.generation();
        let stored = draft.is_value();
        let replacement = self.replacement(&granted, &draft);
        let GrantedLease { lease, .. } = granted;
        let is_shared = lease.outage.is_none();
        if let Some(Replacement { is_audit: true, is_same: true, .. }) = replacement {
            // The same entry stays, so that another audit of it can be decided.
            core.statistics.audit(AuditEvent::Confirmed);
            core.abandon(lease.claim).await;
            return TaskEvent::Superseded { began, outcome };
        }
        let statistics = &core.statistics;
        match self.send_commit(lease, draft).await {
            Ok(Settled::Done) if is_shared => {
                statistics.commit(CommitEvent::Stored);
                replacement.inspect(|it| it.is_stored(core, claim));
                let outcome = outcome.with(CacheStatus::Led { stored });
                TaskEvent::Stored { asked, outcome }
            }
            // For this process only.
            Ok(Settled::Done) => TaskEvent::Stored { asked, outcome },
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
        let is_compared = loaded.is_value() && self.scope.purpose != Purpose::ForceRefresh;
        let stored = granted.replaced.as_ref().filter(|_| is_compared)?;
        let is_same = audit::is_same(&*self.scope.core, stored, loaded)?;
        let of = Accept::Other { than: stored.fence() };
        let is_audit = self.scope.purpose == Purpose::Refresh(of, true);
        Some(Replacement { is_same, is_audit, fence: granted.lease.fence, age: stored.age() })
    }

    /// Commits, and renews the lease meanwhile: a large value may queue for longer than the lease, behind others
    /// of its size.
    async fn send_commit(&self, lease: Lease, draft: Draft) -> Result<Settled, StoreError> {
        let renewed = lease.for_renewals();
        let renewing = async {
            // How long ago the last one was is not known.
            renewing(&self.scope.core, &renewed, renewed.term / 10).await;
            pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            committed = self.scope.core.store.settle(End::Commit(lease, draft)) => committed,
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
        let Scope { core, leader, claim, .. } = self.scope;
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

/// Renews a lease to its full term until it is lost.
pub(super) async fn renewing<C>(core: &Core<C>, lease: &Lease, first_after: Duration) {
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
pub(super) const SHARE: u32 = 3;
