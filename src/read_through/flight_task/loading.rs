//! The load, and what becomes of what it gave.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};
use tower::Service;

use super::FlightTask;
use crate::capture::Capture;
use crate::error::Cause;
use crate::flight::{Leader, Phase};
use crate::log_throttle::warn_throttled;
use crate::policy::Policy;
use crate::read_through::core::{self, Landing, Origin};
use crate::read_through::load::{self, Failed, Fault, Keeping, Outcome};
use crate::read_through::step::{Blame, Committed, Event};
use crate::status::Bypass;
use crate::store::{Commit, Draft, Lease, Marker, Renew, Store, Value, Windows};

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Capture<S::Response>,
{
    pub(super) async fn load(&mut self) -> Event {
        let leave = tokio::select! {
            biased;
            leave = self.leave_to_load() => leave,
            never = serving_others(&self.leader, self.probing.as_ref()) => match never {},
        };
        let Some(_leave) = leave else {
            return Event::Deserted;
        };
        let Some(job) = self.job.take() else {
            return Event::NoJob;
        };
        self.failures = self.failures_before();
        self.leader.enter(Phase::Loading);
        self.loading = self.leader.line();
        let began = Instant::now();
        let when_abandoned = self.core.policy.when_abandoned;
        let outcome = tokio::select! {
            biased;
            outcome = load::load(job, &self.core, &self.leader, when_abandoned) => outcome,
            never = renewing(&*self.core.store, self.lease.as_ref(), self.core.policy.lease) => {
                match never {}
            }
            never = serving_others(&self.leader, self.probing.as_ref()) => match never {},
        };
        self.load_time = began.elapsed();
        match outcome {
            Outcome::Loaded(kept, keeping) => self.loaded(kept, keeping),
            Outcome::Failed(failed) => self.load_failed(failed),
            Outcome::Deserted => Event::Deserted,
        }
    }

    /// How many loads in a row have failed before this one. Under a lease the store knows, since it
    /// is told of successes elsewhere too: what it was not told is all that counts here then.
    fn failures_before(&self) -> u32 {
        let (key, loads) = (self.leader.key().digest(), &self.core.loads);
        match self.lease {
            _ if self.anew => loads.apart.times(&key),
            Some(_) => self.failures.max(loads.recall.untold(&key)),
            None => loads.recall.times(&key),
        }
    }

    /// A load under a lease needs none. One without has to wait if there are too many; nothing, if
    /// nobody waits for it by then.
    async fn leave_to_load(&self) -> Option<Option<OwnedSemaphorePermit>> {
        if self.lease.is_some() {
            return Some(None);
        }
        if self.leader.is_empty() {
            // What it loads cannot be kept.
            return None;
        }
        let around = Arc::clone(&self.core.loads.around);
        if let Ok(leave) = Arc::clone(&around).try_acquire_owned() {
            return Some(Some(leave));
        }
        self.leader.enter(Phase::Queueing);
        tokio::select! {
            leave = around.acquire_owned() => leave.ok().map(Some),
            () = self.leader.deserted() => None,
        }
    }

    fn loaded(&mut self, kept: Arc<dyn std::any::Any + Send + Sync>, keeping: Keeping) -> Event {
        let (key, loads) = (self.leader.key().digest(), &self.core.loads);
        loads.recall.forget(&key);
        loads.apart.forget(&key);
        match &keeping {
            Keeping::Private => self.core.note_private(self.leader.key()),
            Keeping::Own => {}
            _ => loads.private_keys.note_shared(&key),
        }
        if let Keeping::Keep(bytes, beside, _) = &keeping {
            self.value = Some(Value::of(bytes.clone(), Arc::clone(&kept), *beside));
        }
        self.answer = Some(Landing::Value(kept, self.origin(false)));
        self.keeping = keeping;
        match self.keeping {
            Keeping::Private => Event::LoadedPrivate,
            Keeping::Own => Event::LoadedOwn,
            _ => Event::Loaded,
        }
    }

    fn load_failed(&mut self, failed: Failed) -> Event {
        let failure = failed.remembered(self.failures, &self.core.policy);
        let is_confirmed = failed.is_confirmed(self.failures);
        let Failed { mut landing, bytes, cause, fault, .. } = failed;
        if let Landing::Value(_, origin) = &mut landing {
            *origin = self.origin(false);
        }
        // A forced load may be repeated at will and in ways of its own, so its failure must not
        // hold up other callers.
        let (key, loads) = (self.leader.key().digest(), &self.core.loads);
        match self.anew {
            true => loads.apart.note(key, landing.clone(), 0, &failure.clone().without_window()),
            false => loads.recall.note(key, landing.clone(), bytes, &failure),
        }
        self.failed = Some(failure);
        if fault != Fault::Answer
            && let Some((stand_in, asked)) = self.stand_in()
        {
            // Whoever came later may have more than this, and asks for it.
            self.leader.land(asked, &stand_in);
            return Event::LoadFailed(Blame::Spared);
        }
        self.answer = Some(landing);
        Event::LoadFailed(match cause {
            _ if is_confirmed => Blame::Source,
            Cause::TimedOut => Blame::Limit,
            Cause::Error | Cause::Panicked => Blame::Request,
        })
    }

    /// Where a value of ours is from.
    fn origin(&self, stored: bool) -> Origin {
        match self.lease {
            _ if self.store_failed => Origin::Around(Bypass::StoreFailed),
            None if !stored => Origin::Around(Bypass::NotKept),
            _ => Origin::Loaded { stored },
        }
    }

    pub(super) async fn commit(&mut self) -> Event {
        let Some(lease) = self.lease.take() else {
            return Event::Committed(Committed::Failed);
        };
        // Whoever joins from here on may have begun after an invalidation that this commit, being
        // under way, does not know of.
        self.asked = self.leader.line();
        let stored = matches!(self.keeping, Keeping::Keep(..));
        let draft = self.draft();
        match self.core.store.commit(lease, draft).await {
            Ok(Commit::Stored) => {
                self.mark(Origin::Loaded { stored });
                Event::Committed(Committed::Stored)
            }
            Ok(Commit::Superseded) => Event::Committed(Committed::Superseded),
            Err(error) => {
                warn_throttled!(%error, "loaded, and perhaps not kept");
                self.unheard = true;
                Event::Committed(Committed::Failed)
            }
        }
    }

    fn draft(&mut self) -> Draft {
        let marker_ttl = self.core.policy.freshness.marker_ttl;
        let draft = match &self.keeping {
            Keeping::Private => Draft::marker(marker_ttl, Marker::Private),
            Keeping::Unkept => Draft::marker(marker_ttl, Marker::Unkept),
            Keeping::Own => Draft::marker(marker_ttl, Marker::Own),
            Keeping::Share => Draft::new(core::nothing(), 0, Windows::fresh_for(Duration::ZERO)),
            Keeping::Keep(_, _, windows) => {
                let value = self.value.take().unwrap_or_else(core::nothing);
                Draft::new(value, self.core.capture.codec(), *windows)
            }
        };
        draft.timed(self.load_time, self.leased_at.elapsed())
    }

    fn mark(&mut self, from: Origin) {
        if let Some(Landing::Value(_, origin)) = &mut self.answer {
            *origin = from;
        }
    }

    /// Gives the lease up and tells other processes, whose callers wait for this answer, that it is
    /// not for them.
    async fn leave_word(&mut self, lease: Lease) -> Event {
        let draft = self.draft();
        if let Err(error) = self.core.store.commit(lease, draft).await {
            tracing::debug!(%error, "the lease lapses by itself");
        }
        Event::Released
    }

    /// Gives the lease up with word of the failure, so that it counts in the whole fleet.
    pub(super) async fn fail(&mut self) -> Event {
        let (Some(failure), Some(_)) = (&self.failed, &self.lease) else {
            return self.release().await;
        };
        if self.anew || self.core.policy.failures.windows.first.is_zero() {
            return self.release().await;
        }
        let failure = failure.clone();
        if let Some(lease) = self.lease.take() {
            match self.core.store.fail(lease, failure).await {
                Ok(()) => self.core.loads.recall.note_told(&self.leader.key().digest()),
                Err(error) => {
                    tracing::debug!(%error, "a failure is remembered by this process only");
                    // Those who wait for another load would wait for this lease.
                    return self.release().await;
                }
            }
        }
        Event::Released
    }

    pub(super) async fn release(&mut self) -> Event {
        self.unheard = false;
        if matches!(self.keeping, Keeping::Own)
            && !self.replaces
            && let Some(lease) = self.lease.take()
        {
            return self.leave_word(lease).await;
        }
        let claim = self.lease.take().map_or_else(|| self.claim.clone(), Lease::into_claim);
        if let Err(error) = self.core.store.abandon(claim).await {
            tracing::debug!(%error, "the lease lapses by itself");
        }
        Event::Released
    }
}

/// During a probe: gives the failure to every caller but the one whose request is the probe.
async fn serving_others(leader: &Leader<Landing>, failure: Option<&Landing>) -> Infallible {
    let Some(failure) = failure else {
        return pending().await;
    };
    loop {
        leader.land_on_others(failure);
        leader.joined().await;
    }
}

/// Renews a lease to its whole term for as long as it is polled.
async fn renewing(store: &dyn Store, lease: Option<&Lease>, whole: Duration) -> Infallible {
    let Some(lease) = lease else {
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
