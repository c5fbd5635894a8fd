//! What the store is asked before a load, and what its answers mean.

use std::time::Duration;

use tokio::time::Instant;
use tower::Service;

use super::{FlightTask, StandIn};
use crate::capture::Capture;
use crate::error::{CacheError, Cause, StoreErrorKind};
use crate::flight::{Line, Phase};
use crate::jitter::jitter;
use crate::log_throttle::warn_throttled;
use crate::read_through::core::{self, Landing, Origin};
use crate::read_through::recall::Recalled;
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
        let (claim, term) = (self.claim.clone(), self.core.policy.first_term());
        match self.core.store.acquire(claim, term, self.accept).await {
            Ok(Acquire::Found(entry)) => self.found(&entry),
            Ok(Acquire::Busy { remaining, stale }) => {
                self.lease_left = remaining;
                if self.accept == Accept::Nothing {
                    // Whoever loads gives something newer than what is there.
                    let than = stale.as_ref().map(Entry::fence);
                    self.accept = than.map_or(Accept::Fresh, |than| Accept::Other { than });
                }
                self.give_meanwhile(stale);
                Event::Busy
            }
            Ok(Acquire::Failed { failure, remaining, stale }) => {
                self.failing(&failure, remaining, stale)
            }
            Ok(Acquire::Lead { lease, stale, failures, probe }) => {
                self.led(lease, stale, failures);
                self.give_during_probe(probe.as_ref());
                Event::Led
            }
            Err(error) => {
                warn_throttled!(%error, "loading without a lease");
                // A store that is down was not asked.
                self.unheard = error.kind() != StoreErrorKind::Down;
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
                warn_throttled!(%error, "those who wait look for themselves");
                Event::Gone
            }
        }
    }

    fn found(&mut self, entry: &Entry) -> Event {
        if let Some(marker) = entry.as_marker() {
            return self.found_marker(marker, entry.fence());
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
        self.due = self.is_due(entry).then(|| Accept::Other { than: entry.fence() });
        Event::Found
    }

    /// The answer that those who waited for it cannot have. It says nothing to those who did not:
    /// theirs may well be for all.
    fn found_marker(&mut self, marker: Marker, fence: u64) -> Event {
        if !self.waited {
            self.accept = Accept::Other { than: fence };
            return Event::Unreadable;
        }
        match marker {
            Marker::Private => Event::Private,
            Marker::Own => Event::Own,
            Marker::Unkept => self.found_unkept(),
        }
    }

    /// It is loaded without a lease, unless it is known here that the load would fail.
    fn found_unkept(&mut self) -> Event {
        self.rest_on_what_failed_here().unwrap_or(Event::Unkept)
    }

    /// Without the store: if the load failed here a moment ago, the failure is given to every caller,
    /// or to every caller but the one whose request is the probe.
    pub(super) fn rest_on_what_failed_here(&mut self) -> Option<Event> {
        let key = self.leader.key();
        let recalled = self.core.loads.recall.of(&key.digest()).filter(|_| !self.anew)?;
        let Recalled { landing, left } = recalled;
        let in_words = || Landing::Failed(CacheError::load_failed(key, Cause::Error, "", left));
        let landing = landing.unwrap_or_else(in_words);
        if left.is_zero() {
            self.probing = Some(landing);
            return None;
        }
        Some(self.rest_on(landing, left))
    }

    /// Whether it is time to load anew what is still fresh, and there is something to load with.
    fn is_due(&self, entry: &Entry) -> bool {
        let freshness = &self.core.policy.freshness;
        let left = entry.fresh_for().filter(|_| freshness.early.is_some() && self.job.is_there());
        left.is_some_and(|left| freshness.is_due_early(entry.load_time(), left, jitter()))
    }

    fn led(&mut self, lease: Lease, stale: Option<Entry>, failures: u32) {
        self.lease = Some(lease);
        self.leased_at = Instant::now();
        self.failures = failures;
        self.replaces =
            failures > 0 || stale.as_ref().is_some_and(|entry| entry.as_marker().is_none());
        self.give_meanwhile(stale);
    }

    /// If the load is a probe, no caller but the one whose request it is waits for it. With a stale
    /// value at hand, not even that one.
    fn give_during_probe(&mut self, probe: Option<&Failure>) {
        self.probing = probe.map(|failure| self.failure_landing(failure, failure.cooldown()));
        if self.probing.is_some()
            && let Some((stand_in, asked)) = self.stand_in()
        {
            self.leader.land(asked, &stand_in);
            self.go_on_in_the_background();
        }
    }

    /// The error itself if it was this process's, or else what the store has of it.
    fn failure_landing(&self, failure: &Failure, left: Duration) -> Landing {
        let key = self.leader.key();
        self.core.loads.recall.landing(&key.digest()).unwrap_or_else(|| {
            let (cause, message) = (failure.cause(), failure.message());
            Landing::Failed(CacheError::load_failed(key, cause, message, left))
        })
    }

    /// Those whom the answer is for are given what is stale if that will do, and are offered it if
    /// it will do only once they have waited in vain.
    fn give_meanwhile(&mut self, entry: Option<Entry>) {
        self.note_stand_in(entry);
        let Some(StandIn { entry, .. }) = &self.stand_in else { return };
        let Some(stale_for) = entry.stale_for() else { return };
        let status = Some(core::stale(entry, Stale::Revalidating));
        let Some(landing) = self.landing_of(entry, status) else { return };
        if entry.serves_while_revalidating() {
            self.leader.land(self.asked, &landing);
            self.go_on_in_the_background();
        } else if entry.serves_if_error() {
            let good_for = entry.windows().if_error().saturating_sub(stale_for);
            self.leader.offer(self.asked, landing, good_for);
            self.leader.let_callers_look();
            self.leader.land_on_late(self.asked, &Landing::Look);
        }
    }

    /// A load failed a moment ago, here or elsewhere.
    fn failing(&mut self, failure: &Failure, left: Duration, stale: Option<Entry>) -> Event {
        self.note_stand_in(stale);
        if let Some((stand_in, asked)) = self.stand_in() {
            self.rest_on(stand_in.clone(), left);
            // It is good for those who had asked. Whoever comes has to ask.
            self.resting = None;
            return Event::Spared { others: self.leader.land(asked, &stand_in) };
        }
        let landing = self.failure_landing(failure, left);
        self.rest_on(landing, left)
    }

    fn note_stand_in(&mut self, entry: Option<Entry>) {
        let (asked, found_at) = (self.asked, Instant::now());
        let entry = entry.filter(|_| !self.anew);
        self.stand_in = entry.map(|entry| StandIn { entry, asked, found_at });
    }

    /// What may be given out if it cannot be loaded anew, and for those who joined before which
    /// line.
    pub(super) fn stand_in(&self) -> Option<(Landing, Line)> {
        let StandIn { entry, asked, found_at } = self.stand_in.as_ref()?;
        Some((self.standing_in(entry, found_at.elapsed())?, *asked))
    }

    fn standing_in(&self, entry: &Entry, since: Duration) -> Option<Landing> {
        let stale_for = match (entry.stale_for(), entry.fresh_for()) {
            (Some(stale_for), _) => stale_for + since,
            (None, Some(fresh_for)) if fresh_for <= since => since - fresh_for,
            _ => return self.landing_of(entry, Some(core::hit(entry))),
        };
        let status = CacheStatus::Stale { why: Stale::LoadFailed, stale_for };
        // In either window: while it is loaded anew it is given out, though that fails.
        let will_do = stale_for < entry.windows().given_out();
        will_do.then(|| self.landing_of(entry, Some(status))).flatten()
    }

    /// What an entry holds, to be landed: as what was kept, or as what somebody else loaded.
    fn landing_of(&self, entry: &Entry, status: Option<CacheStatus>) -> Option<Landing> {
        let kept = self.core.read::<S::Response>(entry)?;
        Some(Landing::Value(kept, status.map_or(Origin::Elsewhere, Origin::Kept)))
    }
}
