//! What the store is asked before a load, and what its answers mean.

use std::time::Duration;

use tokio::time::Instant;
use tower::Service;

use super::FlightTask;
use crate::capture::Capture;
use crate::error::CacheError;
use crate::flight::Phase;
use crate::quiet::warn_seldom;
use crate::read_through::core::{self, Landing, Origin};
use crate::read_through::step::Event;
use crate::status::{CacheStatus, Stale};
use crate::store::{Accept, Acquire, Entry, Failure, Lease, Marker};

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Capture<S::Response>,
{
    pub(super) async fn acquire(&mut self) -> Event {
        self.leader.enter(Phase::Asking);
        self.asked = self.leader.line();
        let (claim, term) = (self.claim.clone(), self.core.policy.lease);
        match self.core.store.acquire(claim, term, self.accept).await {
            Ok(Acquire::Found(entry)) => self.found(&entry),
            Ok(Acquire::Busy { remaining, stale }) => {
                self.lease_left = remaining;
                self.give_meanwhile(stale);
                Event::Busy
            }
            Ok(Acquire::Failed { failure, remaining, stale }) => {
                self.failing(&failure, remaining, stale)
            }
            Ok(Acquire::Lead { lease, stale, failures }) => self.led(lease, stale, failures),
            Err(error) => {
                warn_seldom!(%error, "loading without a lease");
                self.unheard = true;
                self.note_failure_of_the_store(&error)
            }
        }
    }

    pub(super) async fn look(&mut self) -> Event {
        self.leader.enter(Phase::Asking);
        self.asked = self.leader.line();
        match self.core.store.look(self.leader.key().clone()).await {
            Ok(Some(entry)) if entry.is_fresh() => match self.found(&entry) {
                Event::Found => Event::Found,
                _ => Event::Gone,
            },
            Ok(_) => Event::Gone,
            Err(error) => {
                warn_seldom!(%error, "those who wait look for themselves");
                Event::Gone
            }
        }
    }

    fn found(&mut self, entry: &Entry) -> Event {
        match entry.as_marker() {
            Some(Marker::Private) => return Event::Private,
            Some(Marker::Unkept) => return Event::Unkept,
            None => {}
        }
        let status = match self.waited {
            true => None,
            false => Some(core::hit(entry)),
        };
        let Some(landing) = self.landing_of(entry, status) else {
            // Somebody has to replace it. Whoever does so meanwhile is good enough.
            self.accept = Accept::Other { than: entry.fence() };
            return Event::Unreadable;
        };
        self.answer = Some(landing);
        Event::Found
    }

    fn led(&mut self, lease: Lease, stale: Option<Entry>, failures: u32) -> Event {
        self.lease = Some(lease);
        self.leased_at = Instant::now();
        self.failures = failures;
        self.give_meanwhile(stale);
        Event::Led
    }

    /// Those whom the answer is for are given what is stale if that will do, and are offered it if
    /// it will do only once they have waited in vain.
    fn give_meanwhile(&mut self, entry: Option<Entry>) {
        self.stand_in = entry;
        let Some(entry) = &self.stand_in else { return };
        let why = match entry.serves_while_revalidating() {
            true => Stale::Revalidating,
            false if entry.serves_if_error() => Stale::WaitRanOut,
            false => return,
        };
        let Some(landing) = self.landing_of(entry, Some(core::stale(entry, why))) else { return };
        if why == Stale::Revalidating {
            self.leader.land(self.asked, &landing);
            self.leader.run_in_the_background();
            self.refreshes = true;
        } else {
            self.leader.offer(self.asked, landing);
        }
    }

    /// A load failed a moment ago, here or elsewhere.
    fn failing(&mut self, failure: &Failure, left: Duration, stale: Option<Entry>) -> Event {
        self.stand_in = stale;
        self.leased_at = Instant::now();
        if let Some(stand_in) = self.stand_in(Stale::LoadFailed) {
            self.rest_on(stand_in.clone(), left);
            // It is good for those who had asked. Whoever comes has to ask.
            self.resting = None;
            return Event::Spared { others: self.leader.land(self.asked, &stand_in) };
        }
        let key = self.leader.key();
        let ours = self.core.loads.recall.of(&key.digest()).map(|(landing, _)| landing);
        let landing = ours.unwrap_or_else(|| {
            let (cause, message) = (failure.cause(), failure.message());
            Landing::Failed(CacheError::load_failed(key, cause, message, left))
        });
        self.rest_on(landing, left)
    }

    /// What those whom the last answer was for may have, if it cannot be loaded anew.
    pub(super) fn stand_in(&self, why: Stale) -> Option<Landing> {
        let entry = self.stand_in.as_ref()?;
        let Some(stale_for) = entry.stale_for() else {
            return self.landing_of(entry, Some(core::hit(entry)));
        };
        let stale_for = stale_for + self.leased_at.elapsed();
        let status = CacheStatus::Stale { why, stale_for };
        let will_do = stale_for < entry.windows().stale();
        let will_do = will_do && (why == Stale::LoadSlow || stale_for < entry.windows().if_error());
        will_do.then(|| self.landing_of(entry, Some(status))).flatten()
    }

    /// What an entry holds, to be landed: as what was kept, or as what somebody else loaded.
    fn landing_of(&self, entry: &Entry, status: Option<CacheStatus>) -> Option<Landing> {
        let kept = self.core.read::<S::Response>(entry)?;
        Some(Landing::Value(kept, status.map_or(Origin::Elsewhere, Origin::Kept)))
    }
}
