//! The task of a flight: does what [`step::next`] says.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower::Service;

use super::core::{self, Core, Landing, Origin};
use super::load::{Lent, Outcome, load};
use super::step::{self, Committed, Event, Leased, On, Standing, Step};
use crate::capture::Capture;
use crate::flight::{Leader, Line, Phase};
use crate::policy::Pauses;
use crate::status::Bypass;
use crate::store::Windows;
use crate::store::{
    Accept, Acquire, Claim, Commit, Draft, Entry, Lease, Renew, Store, Value, Watch,
};

/// One flight, seen from the one that works for it.
pub(crate) struct FlightTask<S, Req, C> {
    core: Arc<Core<C>>,
    leader: Leader<Landing>,
    job: Lent<S, Req>,
    claim: Claim,
    watch: Watch,
    pauses: Pauses,
    accept: Accept,
    lease: Option<Lease>,
    /// A question was sent that grants or ends a lease, and its answer was not heard.
    unheard: bool,
    leased_at: Instant,
    lease_left: Duration,
    waited: bool,
    store_failed: bool,
    /// Drawn before the store was asked last.
    asked: Line,
    /// Drawn before the load began.
    loading: Line,
    load_time: Duration,
    bytes: Option<Value>,
    answer: Option<Landing>,
}

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Capture<S::Response>,
{
    pub(crate) fn new(core: Arc<Core<C>>, leader: Leader<Landing>, job: Lent<S, Req>) -> Self {
        let key = leader.key();
        // Before the first question: a change between its answer and the watch would be missed.
        let watch = core.store.watch(key);
        let pauses = core.policy.pauses(!watch.is_silent());
        let claim = Claim::new(key.clone());
        let line = leader.line();
        Self {
            core,
            leader,
            job,
            claim,
            watch,
            pauses,
            accept: Accept::Fresh,
            lease: None,
            unheard: false,
            leased_at: Instant::now(),
            lease_left: Duration::ZERO,
            waited: false,
            store_failed: false,
            asked: line,
            loading: line,
            load_time: Duration::ZERO,
            bytes: None,
            answer: None,
        }
    }

    /// Works until the flight is closed.
    ///
    /// # Cancel safety
    /// If it is dropped, as when the runtime shuts down, whoever waits is told to look again, and a
    /// lease that was taken lapses.
    pub(crate) async fn run(mut self, opened: Event) {
        let mut event = opened;
        self.store_failed = opened == Event::Opened { store_failed: true };
        loop {
            event = match step::next(event, self.standing()) {
                Step::Acquire => self.acquire().await,
                Step::Look => self.look().await,
                Step::Wait => self.wait().await,
                Step::Load => self.load().await,
                Step::Commit => self.commit().await,
                Step::Release => self.release().await,
                Step::Land(on) => self.land(on),
                Step::Close => return,
            };
        }
    }

    fn standing(&self) -> Standing {
        Standing {
            leased: match self.lease {
                Some(_) => Leased::Yes,
                None if self.unheard => Leased::Perhaps,
                None => Leased::No,
            },
            can_load: self.job.is_there(),
            store_failed: self.store_failed,
        }
    }

    async fn acquire(&mut self) -> Event {
        self.leader.enter(Phase::Asking);
        self.asked = self.leader.line();
        let (claim, term) = (self.claim.clone(), self.core.policy.lease);
        match self.core.store.acquire(claim, term, self.accept).await {
            Ok(Acquire::Found(entry)) => self.found(&entry),
            Ok(Acquire::Busy { remaining, .. }) => {
                self.lease_left = remaining;
                Event::Busy
            }
            Ok(Acquire::Lead { lease, .. }) => {
                self.lease = Some(lease);
                self.leased_at = Instant::now();
                Event::Led
            }
            Err(error) => {
                tracing::warn!(%error, "loading without a lease");
                self.store_failed = true;
                self.unheard = true;
                Event::AskFailed
            }
        }
    }

    async fn look(&mut self) -> Event {
        self.leader.enter(Phase::Asking);
        self.asked = self.leader.line();
        match self.core.store.look(self.leader.key().clone()).await {
            Ok(Some(entry)) if entry.is_fresh() => match self.found(&entry) {
                Event::Found => Event::Found,
                _ => Event::Gone,
            },
            Ok(_) => Event::Gone,
            Err(error) => {
                tracing::warn!(%error, "those who wait look for themselves");
                Event::Gone
            }
        }
    }

    fn found(&mut self, entry: &Entry) -> Event {
        let Some(kept) = self.core.read::<S::Response>(entry) else {
            // Somebody has to replace it. Whoever does so meanwhile is good enough.
            self.accept = Accept::Other { than: entry.fence() };
            return Event::Unreadable;
        };
        let origin = match self.waited {
            true => Origin::Elsewhere,
            false => Origin::Kept(core::hit(entry)),
        };
        self.answer = Some(Landing::Value(kept, origin));
        Event::Found
    }

    /// Waits for a change, for a pause, or until nobody waits any more: a load of somebody else's
    /// is not worth waiting for then.
    async fn wait(&mut self) -> Event {
        self.leader.enter(Phase::Waiting);
        self.waited = true;
        self.accept = Accept::Fresh;
        let pause = self.pauses.next(draw(), self.lease_left);
        tokio::select! {
            () = self.watch.changed() => Event::Waited,
            () = sleep(pause) => Event::Waited,
            () = self.leader.deserted() => Event::Deserted,
        }
    }

    async fn load(&mut self) -> Event {
        let Some(job) = self.job.take() else {
            return Event::NoJob;
        };
        self.leader.enter(Phase::Loading);
        self.loading = self.leader.line();
        let began = Instant::now();
        let outcome = tokio::select! {
            biased;
            outcome = load(job, &self.core, &self.leader) => outcome,
            never = renewing(&*self.core.store, self.lease.as_ref(), self.core.policy.renewal()) => {
                match never {}
            }
        };
        self.load_time = began.elapsed();
        match outcome {
            Outcome::Loaded(kept, bytes) => {
                self.bytes = bytes.map(|bytes| Value::of(bytes, Arc::clone(&kept)));
                self.answer = Some(Landing::Value(kept, self.origin(false)));
                Event::Loaded
            }
            Outcome::Failed(answer) => {
                self.answer = Some(answer);
                Event::LoadFailed
            }
            Outcome::Deserted => Event::Deserted,
        }
    }

    /// Where a value of ours is from.
    fn origin(&self, stored: bool) -> Origin {
        match self.store_failed {
            true => Origin::Around(Bypass::StoreFailed),
            false => Origin::Loaded { stored },
        }
    }

    async fn commit(&mut self) -> Event {
        let Some(lease) = self.lease.take() else {
            return Event::Committed(Committed::Failed);
        };
        // Whoever joins from here on may have begun after an invalidation that this commit, being
        // under way, does not know of.
        self.asked = self.leader.line();
        let stored = self.bytes.is_some();
        let windows =
            Windows::fresh_for(if stored { self.core.policy.ttl } else { Duration::ZERO });
        let value = self.bytes.take().unwrap_or_else(core::nothing);
        let draft = Draft::new(value, self.core.capture.codec(), windows)
            .timed(self.load_time, self.leased_at.elapsed());
        match self.core.store.commit(lease, draft).await {
            Ok(Commit::Stored) => {
                self.mark(Origin::Loaded { stored });
                Event::Committed(Committed::Stored)
            }
            Ok(Commit::Superseded) => Event::Committed(Committed::Superseded),
            Err(error) => {
                tracing::warn!(%error, "loaded, and perhaps not kept");
                self.unheard = true;
                Event::Committed(Committed::Failed)
            }
        }
    }

    fn mark(&mut self, from: Origin) {
        if let Some(Landing::Value(_, origin)) = &mut self.answer {
            *origin = from;
        }
    }

    async fn release(&mut self) -> Event {
        self.unheard = false;
        let claim = self.lease.take().map_or_else(|| self.claim.clone(), Lease::into_claim);
        if let Err(error) = self.core.store.abandon(claim).await {
            tracing::debug!(%error, "the lease lapses by itself");
        }
        Event::Released
    }

    fn land(&mut self, on: On) -> Event {
        let Some(answer) = self.answer.take() else {
            return Event::Landed { others: true };
        };
        let line = match on {
            On::Asked => self.asked,
            On::BeforeLoad => self.loading,
            On::All => self.leader.line(),
        };
        Event::Landed { others: self.leader.land(line, &answer) }
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
            Err(error) => tracing::warn!(%error, "a lease could not be renewed"),
        }
    }
}

/// A number from 0 to 1, for jitter: a dozen random bits are more than a pause can show.
fn draw() -> f64 {
    let [high, low, ..] = *uuid::Uuid::new_v4().as_bytes();
    f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX)
}
