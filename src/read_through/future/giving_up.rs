//! When a request stops waiting, and what answers it then.

use tokio::time::Instant;
use tower::Service;

use super::fallback::fallback_of;
use super::pending_request::PendingRequest;
use super::state::State;
use crate::codec::Codec;
use crate::error::{BoxError, CacheError, CacheErrorKind, Error};
use crate::flight::{Awaited, Full, Waiter};
use crate::policy::AfterWait;
use crate::read_through::outcome::Outcome;
use crate::read_through::results::stale_reason;
use crate::stats::LimitEvent;
use crate::status::{CacheStatus, StaleReason};

impl<S, Req, C> PendingRequest<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    /// When the load is slow: the stale fallback, or `None` if there is none.
    pub(super) fn load_is_slow(&mut self, waiter: &Waiter<Outcome>) -> Option<State<S, Req>> {
        let stale = self.answer_stale(waiter, StaleReason::LoadSlow)?;
        waiter.keep_running();
        Some(stale)
    }

    /// When its wait has run out. `None` if a load runs by now and the wait is for that load's end.
    pub(super) fn give_up(&mut self, waiter: &Waiter<Outcome>) -> Option<State<S, Req>> {
        if let Some(stale) = self.answer_stale(waiter, StaleReason::WaitRanOut) {
            return Some(stale);
        }
        let key = &self.key;
        let wait = self.core.policy.wait;
        if wait.is_for_load() && waiter.waits_for_local_load() {
            return None;
        }
        if waiter.waits_for_permit() {
            self.core.statistics.refuse(LimitEvent::UncachedLoads);
            let most = self.core.policy.bounds.uncached_loads;
            return Some(self.fail(CacheError::too_many_loads(key, most).into()));
        }
        match wait.then() {
            AfterWait::Fail if wait.is_fail_fast() => {
                Some(self.fail(CacheError::contended(key).into()))
            }
            AfterWait::Fail => Some(self.time_out(waiter.awaited())),
            AfterWait::Load => {
                self.job = Some(self.take_job()?);
                Some(self.join_uncached())
            }
        }
    }

    /// When its wait has run out during a lone lookup.
    pub(super) fn give_up_lookup(&mut self) -> State<S, Req> {
        match self.core.policy.wait.then() {
            AfterWait::Fail => self.time_out(Awaited::Store),
            AfterWait::Load => self.join_uncached(),
        }
    }

    fn time_out(&mut self, awaited: Awaited) -> State<S, Req> {
        let key = &self.key;
        let waited = self.begun.elapsed();
        let message = format!("`{key}` was not there after a wait of {waited:?}: {awaited}");
        self.fail(CacheError::new(CacheErrorKind::WaitTimedOut, message).into())
    }

    /// At its deadline. A flight goes on without this caller, and keeps its request if the request
    /// was lent to it.
    pub(super) fn out_of_time(&mut self, waiter: Option<&Waiter<Outcome>>) -> State<S, Req> {
        let awaited = waiter.map_or(Awaited::Store, Waiter::awaited);
        if let Some(stale) = waiter.and_then(|it| self.answer_stale(it, StaleReason::WaitRanOut)) {
            return stale;
        }
        let key = &self.key;
        let waited = self.begun.elapsed();
        let message = format!("`{key}` was not there by the deadline, after {waited:?}: {awaited}");
        self.fail(CacheError::new(CacheErrorKind::DeadlineExceeded, message).into())
    }

    /// Whether its deadline has passed.
    pub(super) fn is_late(&self) -> bool {
        self.options.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    pub(super) fn refuse(&mut self, full: Full) -> State<S, Req> {
        let key = &self.key;
        let bounds = self.core.policy.bounds;
        let (error, limit) = match full {
            Full::Flights => {
                (CacheError::too_many_flights(key, bounds.flights), LimitEvent::Flights)
            }
            Full::Waiters => {
                (CacheError::too_many_waiters(key, bounds.waiters), LimitEvent::Waiters)
            }
        };
        self.core.statistics.refuse(limit);
        self.fail(error.into())
    }

    /// Ends with the stale entry that its lookup found, or with an error if there is none.
    pub(super) fn fail(&mut self, error: Error<S::Error>) -> State<S, Req> {
        self.stale_fallback(stale_reason(&error))
            .unwrap_or_else(|| State::Answered(Some((Err(error), CacheStatus::Failed))))
    }

    /// The stale fallback of its flight or of its own lookup, if it may still be served.
    fn answer_stale(
        &mut self,
        waiter: &Waiter<Outcome>,
        why: StaleReason,
    ) -> Option<State<S, Req>> {
        match fallback_of(waiter, why) {
            Some(Outcome::Value(kept, origin)) => Some(self.answer_with(kept, origin, false)),
            _ => self.stale_fallback(why),
        }
    }

    /// The stale entry of its own lookup, if it may still be served instead of an error.
    pub(super) fn stale_fallback(&mut self, why: StaleReason) -> Option<State<S, Req>> {
        let (entry, status) = self.fallback.take()?.into_entry(why)?;
        Some(State::Answered(Some(self.core.answer(&self.key, entry, status)?)))
    }
}
