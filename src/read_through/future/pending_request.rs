//! What a request carries from state to state until it is answered.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::Service;
use tracing::Instrument;

use super::bounded_wait::BoundedWait;
use super::fallback::FoundFallback;
use super::request_span::RequestSpan;
use super::state::State;
use crate::codec::Codec;
use crate::error::{BoxError, CacheError};
use crate::flight::{Leader, PhaseListener, Role, Waiter};
use crate::jitter::jitter;
use crate::key::Key;
use crate::read_through::core::Core;
use crate::read_through::flight_task::{FlightTask, Purpose};
use crate::read_through::job::{Job, LentJob};
use crate::read_through::lookup::RequestOptions;
use crate::read_through::not_found::NotFound;
use crate::read_through::outcome::{Outcome, ValueOrigin};
use crate::read_through::private_keys::BypassPermit;
use crate::read_through::uncached_load::load_uncached;
use crate::status::{CacheStatus, LoadLocation};
use crate::store::{Accept, Entry};
use crate::tag::Tags;
use crate::trace::CallerSpan;

/// A request that has no answer yet.
pub(super) struct PendingRequest<S, Req, C> {
    pub(super) core: Arc<Core<C>>,
    pub(super) key: Key,
    pub(super) tags: Tags,
    /// The loader and the request, until they are lent to the task of a flight.
    pub(super) job: Option<Job<S, Req>>,
    pub(super) lent: Option<LentJob<S, Req>>,
    /// When it was first polled. Its status and its errors count the wait from here.
    pub(super) begun: Instant,
    /// From when its wait counts against the policy.
    pub(super) waiting_since: Instant,
    /// The deadline in here is a little before the caller's, so that the answer is there in time.
    pub(super) options: RequestOptions,
    /// Its wait for another load ran out, and it waits for an uncached load.
    pub(super) is_uncached: bool,
    /// The stale entry that its lookup found, to be served instead of an error.
    pub(super) fallback: Option<Box<FoundFallback>>,
    /// Held while it loads individually, for a key with private answers.
    pub(super) bypassing: Option<BypassPermit>,
    /// Called with each phase of its flight.
    pub(super) listener: Option<PhaseListener>,
    /// It has asked the store, or joined a flight that does.
    pub(super) has_asked: bool,
    /// Its answer is in the statistics.
    pub(super) is_counted: bool,
    /// The span in which it waits, from when it has asked.
    pub(super) span: RequestSpan,
}

impl<S, Req, C> PendingRequest<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    pub(super) fn new(
        core: Arc<Core<C>>,
        key: Key,
        tags: Tags,
        job: Job<S, Req>,
        options: RequestOptions,
    ) -> Self {
        let now = Instant::now();
        Self {
            core,
            key: key.digested(),
            tags,
            job: Some(job),
            lent: None,
            begun: now,
            waiting_since: now,
            options,
            is_uncached: false,
            fallback: None,
            bypassing: None,
            listener: None,
            has_asked: false,
            is_counted: false,
            span: RequestSpan::default(),
        }
    }

    /// It has no answer yet, and asks for one.
    pub(super) fn asks(&mut self) {
        if !mem::replace(&mut self.has_asked, true) {
            self.span = RequestSpan::begin(&self.core.statistics, &self.key);
        }
    }

    pub(super) fn set_listener(&mut self, listener: PhaseListener) {
        self.listener = Some(listener);
    }

    pub(super) fn is_due_early(&self, entry: &Entry, left: Duration) -> bool {
        let freshness = &self.core.policy.freshness;
        freshness.early.is_some() && freshness.is_due_early(entry.load_time(), left, jitter())
    }

    /// Refreshes the entry that answered this request, in the background. Does nothing if a flight
    /// of this key runs in this process.
    pub(super) fn refresh(&mut self, accept: Accept) {
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(leader) = self.core.loads.flights.open_in_background(&self.key, &self.tags) {
            let job = LentJob::new(self.job.take());
            runtime.spawn(self.task(leader, job, Purpose::Refresh(accept)).run());
        }
    }

    pub(super) fn wait(&self, waiter: Waiter<Outcome>) -> BoundedWait {
        let policy = &self.core.policy;
        let slow = policy.slow_load.and_then(|slow| Instant::now().checked_add(slow));
        if policy.wait.is_fail_fast() {
            return BoundedWait::failing_fast(waiter, slow);
        }
        BoundedWait::new(waiter, self.waiting_since.checked_add(policy.max_wait()), slow)
    }

    /// Opens or joins the uncached load of its key.
    pub(super) fn join_uncached(&mut self) -> State<S, Req> {
        if self.is_late() {
            return self.out_of_time(None);
        }
        let Ok(runtime) = Handle::try_current() else {
            return self.fail(CacheError::no_runtime(&self.key).into());
        };
        self.is_uncached = true;
        // Only callers that had asked before its load began get its answer, whatever their tags.
        let (uncached, tags) = (&self.core.loads.uncached, Tags::none());
        let waiter = match uncached.join(&self.key, &tags, false, self.span.caller()) {
            Role::Joined(waiter) => waiter,
            Role::Opened(leader, waiter) => {
                let job = self.lend();
                let load = load_uncached(Arc::clone(&self.core), leader, job);
                runtime.spawn(load.in_current_span());
                waiter
            }
            Role::Refused(full) => return self.refuse(full),
        };
        State::Waiting(BoundedWait::new(waiter, None, None))
    }

    pub(super) fn take_job(&mut self) -> Option<Job<S, Req>> {
        self.job.take().or_else(|| self.lent.as_ref()?.take())
    }

    /// Shares the job with a task: either takes it, the task to load or this request to load
    /// itself.
    pub(super) fn lend(&mut self) -> LentJob<S, Req> {
        let lent = LentJob::new(self.job.take());
        self.lent = Some(lent.clone());
        lent
    }

    pub(super) fn task(
        &self,
        leader: Leader<Outcome>,
        job: LentJob<S, Req>,
        purpose: Purpose,
    ) -> FlightTask<S, Req, C> {
        let leader = leader.with_listener(self.listener.clone());
        let opener = match self.has_asked {
            true => self.span.caller().clone(),
            false => CallerSpan::current(),
        };
        FlightTask::new(Arc::clone(&self.core), leader, job, purpose, self.tags.clone(), opener)
    }

    pub(super) fn answer_with(
        &mut self,
        kept: Arc<dyn Any + Send + Sync>,
        origin: ValueOrigin,
        opener: bool,
    ) -> State<S, Req> {
        if let Some(not_found) = kept.downcast_ref::<NotFound>() {
            let error = not_found.to_error(&self.key);
            return State::Answered(Some((Err(error), self.status(origin, opener))));
        }
        match kept.downcast::<C::Kept>() {
            Ok(kept) => self.settle(&kept, self.status(origin, opener)),
            // Only if the flight were one of another type, and those are kept apart.
            Err(_) => self.fail(CacheError::load_lost(&self.key).into()),
        }
    }

    fn status(&self, origin: ValueOrigin, opener: bool) -> CacheStatus {
        let waited = self.begun.elapsed();
        match origin {
            ValueOrigin::Stored(status) => status,
            ValueOrigin::Remote => CacheStatus::Collapsed { place: LoadLocation::Remote, waited },
            ValueOrigin::Loaded { stored } if opener => CacheStatus::Led { stored },
            ValueOrigin::Uncached(why) if opener => CacheStatus::Bypass(why),
            ValueOrigin::Loaded { .. } | ValueOrigin::Uncached(_) => {
                CacheStatus::Collapsed { place: LoadLocation::Local, waited }
            }
        }
    }

    fn settle(&self, kept: &C::Kept, status: CacheStatus) -> State<S, Req> {
        State::Answered(Some((Ok(self.core.codec.restore(kept, &status)), status)))
    }
}

impl<S, Req, C> fmt::Debug for PendingRequest<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRequest").field("key", &self.key).finish_non_exhaustive()
    }
}
