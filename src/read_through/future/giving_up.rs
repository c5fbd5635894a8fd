//! When a request does not wait any longer: what it is answered with instead.

use tokio::time::Instant;
use tower::Service;

use super::fallback::offered;
use super::request::Request;
use super::states::State;
use crate::codec::Codec;
use crate::error::{CacheError, CacheErrorKind, Error};
use crate::flight::{Awaited, Full, Waiter};
use crate::policy::Then;
use crate::read_through::outcome::Outcome;
use crate::status::{CacheStatus, StaleReason};

impl<S, Req, C> Request<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    /// Once the load is slow. Nothing, if there is nothing to be had but that.
    pub(super) fn load_is_slow(&mut self, waiter: &Waiter<Outcome>) -> Option<State<S, Req>> {
        let stale = self.make_do(waiter, StaleReason::LoadSlow)?;
        waiter.leave_it_running();
        Some(stale)
    }

    /// After its patience is over. Nothing, if by now a load runs that it waits for to its end.
    pub(super) fn give_up(&mut self, waiter: &Waiter<Outcome>) -> Option<State<S, Req>> {
        if let Some(stale) = self.make_do(waiter, StaleReason::WaitRanOut) {
            return Some(stale);
        }
        let (key, wait) = (&self.key, self.core.policy.wait);
        if wait.is_for_load() && waiter.waits_for_a_load_here() {
            return None;
        }
        if waiter.waits_for_leave_to_load() {
            let most = self.core.policy.bounds.loads_around;
            return Some(self.fail(CacheError::too_many_loads(key, most).into()));
        }
        match wait.then() {
            Then::Fail if wait.is_fail_fast() => Some(self.fail(CacheError::contended(key).into())),
            Then::Fail => Some(self.time_out(waiter.awaited())),
            Then::Load => {
                self.job = Some(self.take_job()?);
                Some(self.join_uncached())
            }
        }
    }

    /// After its patience is over while it looks by itself.
    pub(super) fn give_up_looking(&mut self) -> State<S, Req> {
        match self.core.policy.wait.then() {
            Then::Fail => self.time_out(Awaited::Store),
            Then::Load => self.join_uncached(),
        }
    }

    fn time_out(&mut self, awaited: Awaited) -> State<S, Req> {
        let (key, waited) = (&self.key, self.begun.elapsed());
        let message = format!("`{key}` was not there after a wait of {waited:?}: {awaited}");
        self.fail(CacheError::new(CacheErrorKind::WaitTimedOut, message).into())
    }

    /// At its deadline, or once that cannot be met: whatever it waits for goes on without it, and
    /// has its request if it was lent.
    pub(super) fn out_of_time(&mut self, waiter: Option<&Waiter<Outcome>>) -> State<S, Req> {
        let awaited = waiter.map_or(Awaited::Store, Waiter::awaited);
        if let Some(stale) = waiter.and_then(|it| self.make_do(it, StaleReason::WaitRanOut)) {
            return stale;
        }
        let (key, waited) = (&self.key, self.begun.elapsed());
        let message = format!("`{key}` was not there by the deadline, after {waited:?}: {awaited}");
        self.fail(CacheError::new(CacheErrorKind::DeadlineExceeded, message).into())
    }

    /// Whether there is no time to begin anything.
    pub(super) fn is_late(&self) -> bool {
        self.how.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Whether the load of others that it would wait for cannot be expected to end in time.
    pub(super) fn is_hopeless(&self, waiter: &Waiter<Outcome>) -> bool {
        let Some(deadline) = self.how.deadline else { return false };
        let left = deadline.saturating_duration_since(Instant::now());
        waiter.waits_for_a_load_of_others() && waiter.expects(self.core.loads.typical()) > left
    }

    pub(super) fn refuse(&mut self, full: Full) -> State<S, Req> {
        let (key, bounds) = (&self.key, self.core.policy.bounds);
        let error = match full {
            Full::Flights => CacheError::too_many_flights(key, bounds.flights),
            Full::Waiters => CacheError::too_many_waiters(key, bounds.waiters),
        };
        self.fail(error.into())
    }

    /// Ends with an error, unless a stale answer will do.
    pub(super) fn fail(&mut self, error: Error<S::Error>) -> State<S, Req> {
        use CacheErrorKind::{Contended, DeadlineExceeded, Full, WaitTimedOut};
        let why = match error.cache().map(CacheError::kind) {
            Some(Full) => StaleReason::NoRoom,
            Some(Contended | DeadlineExceeded | WaitTimedOut) => StaleReason::WaitRanOut,
            _ => StaleReason::LoadFailed,
        };
        self.instead(why)
            .unwrap_or_else(|| State::Answered(Some((Err(error), CacheStatus::Failed))))
    }

    /// The stale answer that its flight or its look found, if it may still be given out.
    fn make_do(&mut self, waiter: &Waiter<Outcome>, why: StaleReason) -> Option<State<S, Req>> {
        match offered(waiter, why) {
            Some(Outcome::Value(kept, origin)) => Some(self.give(kept, origin, false)),
            _ => self.instead(why),
        }
    }

    /// The stale answer that its look found, if that may still be given out instead of an error.
    pub(super) fn instead(&mut self, why: StaleReason) -> Option<State<S, Req>> {
        let (entry, status) = self.fallback.take()?.into_entry(why)?;
        let (answer, status) = self.core.answer::<S::Response>(entry, status)?;
        Some(State::Answered(Some((Ok(answer), status))))
    }
}
