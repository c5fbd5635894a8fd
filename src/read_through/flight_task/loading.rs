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
use crate::flight::Phase;
use crate::quiet::warn_seldom;
use crate::read_through::core::{self, Landing, Origin};
use crate::read_through::load::{self, Failed, Keeping, Outcome};
use crate::read_through::step::{Committed, Event};
use crate::status::Bypass;
use crate::store::{Commit, Draft, Failure, Lease, Marker, Renew, Store, Value, Windows};

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Capture<S::Response>,
{
    pub(super) async fn load(&mut self) -> Event {
        let Some(_leave) = self.leave_to_load().await else {
            return Event::Deserted;
        };
        let Some(job) = self.job.take() else {
            return Event::NoJob;
        };
        self.leader.enter(Phase::Loading);
        self.loading = self.leader.line();
        let began = Instant::now();
        let when_abandoned = self.core.policy.when_abandoned;
        let outcome = tokio::select! {
            biased;
            outcome = load::load(job, &self.core, &self.leader, when_abandoned) => outcome,
            never = renewing(&*self.core.store, self.lease.as_ref(), self.core.policy.renewal()) => {
                match never {}
            }
        };
        self.load_time = began.elapsed();
        match outcome {
            Outcome::Loaded(kept, keeping) => self.loaded(kept, keeping),
            Outcome::Failed(failed) => self.load_failed(failed),
            Outcome::Deserted => Event::Deserted,
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
        self.core.loads.recall.forget(&self.leader.key().digest());
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
        let Failed { landing, bytes, cause, message } = failed;
        let (key, recall) = (self.leader.key().digest(), &self.core.loads.recall);
        // Who has the lease knows from the store, which is told of successes elsewhere too.
        let before = if self.lease.is_some() { self.failures } else { recall.times(&key) };
        // Who will not have what is kept may ask as often as it likes, and in ways of its own: that
        // its load failed is held against nobody else.
        let window = match self.anew {
            true => Duration::ZERO,
            false => self.core.policy.failures.after(before),
        };
        let times = before.saturating_add(1);
        if !window.is_zero() {
            recall.note(key, landing.clone(), bytes, times, window);
        }
        self.failed = Some(Failure::new(cause, times, window).saying(&message));
        match self.stand_in() {
            // Whoever came later may have more than this, and asks for it.
            Some((stand_in, asked)) => {
                self.leader.land(asked, &stand_in);
                Event::LoadFailed { spared: true }
            }
            None => {
                self.answer = Some(landing);
                Event::LoadFailed { spared: false }
            }
        }
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
                warn_seldom!(%error, "loaded, and perhaps not kept");
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
            Keeping::Share | Keeping::Own => {
                Draft::new(core::nothing(), 0, Windows::fresh_for(Duration::ZERO))
            }
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

    /// Gives the lease up with word of the failure, so that nobody tries again at once.
    pub(super) async fn fail(&mut self) -> Event {
        let (Some(failure), Some(_)) = (&self.failed, &self.lease) else {
            return self.release().await;
        };
        if failure.window().is_zero() {
            return self.release().await;
        }
        let failure = failure.clone();
        if let Some(lease) = self.lease.take()
            && let Err(error) = self.core.store.fail(lease, failure).await
        {
            tracing::debug!(%error, "a failure is remembered by this process only");
        }
        Event::Released
    }

    pub(super) async fn release(&mut self) -> Event {
        self.unheard = false;
        let claim = self.lease.take().map_or_else(|| self.claim.clone(), Lease::into_claim);
        if let Err(error) = self.core.store.abandon(claim).await {
            tracing::debug!(%error, "the lease lapses by itself");
        }
        Event::Released
    }
}

/// Renews a lease for as long as it is polled.
async fn renewing(store: &dyn Store, lease: Option<&Lease>, every: Duration) -> Infallible {
    let Some(lease) = lease else {
        return pending().await;
    };
    loop {
        sleep(every).await;
        match store.renew(lease).await {
            Ok(Renew::Held) => {}
            // The load goes on: what it gives may still be newer than anything else.
            Ok(Renew::Lost) => return pending().await,
            Err(error) => warn_seldom!(%error, "a lease could not be renewed"),
        }
    }
}
