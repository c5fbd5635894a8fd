//! What a request carries from state to state, and what it does with that.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::Service;

use super::fallback::Fallback;
use super::states::State;
use super::waiting::Waiting;
use crate::codec::Codec;
use crate::error::CacheError;
use crate::flight::{Leader, Listener, Role, Waiter};
use crate::jitter::jitter;
use crate::key::Key;
use crate::read_through::core::Core;
use crate::read_through::flight_task::{FlightTask, Purpose};
use crate::read_through::load::{Job, Lent};
use crate::read_through::lookup::RequestOptions;
use crate::read_through::outcome::{Origin, Outcome};
use crate::read_through::private_keys::BypassPermit;
use crate::read_through::uncached_load::load_uncached;
use crate::status::{CacheStatus, LoadLocation};
use crate::store::{Accept, Entry};

/// What a request carries until it is answered.
pub(super) struct Request<S, Req, C> {
    pub(super) core: Arc<Core<C>>,
    pub(super) key: Key,
    /// What to load with, until it is lent to the task of a flight.
    pub(super) job: Option<Job<S, Req>>,
    pub(super) lent: Option<Lent<S, Req>>,
    /// When it was first polled: what it waits is counted from then.
    pub(super) begun: Instant,
    /// From when on its patience is counted.
    pub(super) patient_from: Instant,
    /// Its deadline is earlier than the caller's: when it is answered at the latest.
    pub(super) how: RequestOptions,
    /// It has waited in vain for another load, and waits for an uncached one.
    pub(super) is_uncached: bool,
    /// What its look found, to be given out instead of an error.
    pub(super) fallback: Option<Box<Fallback>>,
    pub(super) bypassing: Option<BypassPermit>,
    /// Hears what its flights wait for.
    pub(super) listener: Option<Listener>,
}

impl<S, Req, C> Request<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    pub(super) fn new(core: Arc<Core<C>>, key: Key, job: Job<S, Req>, how: RequestOptions) -> Self {
        let now = Instant::now();
        Self {
            core,
            key: key.digested(),
            job: Some(job),
            lent: None,
            begun: now,
            patient_from: now,
            how,
            is_uncached: false,
            fallback: None,
            bypassing: None,
            listener: None,
        }
    }

    pub(super) fn set_listener(&mut self, listener: Listener) {
        self.listener = Some(listener);
    }

    pub(super) fn is_due_early(&self, entry: &Entry, left: Duration) -> bool {
        let freshness = &self.core.policy.freshness;
        freshness.early.is_some() && freshness.is_due_early(entry.load_time(), left, jitter())
    }

    /// Replaces in the background what this request was answered with, unless a flight in this
    /// process does already.
    pub(super) fn refresh(&mut self, accept: Accept) {
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(leader) = self.core.loads.flights.open_for_nobody(&self.key) {
            let job = Lent::new(self.job.take());
            runtime.spawn(self.task(leader, job, Purpose::Refresh(accept)).run());
        }
    }

    pub(super) fn wait(&self, waiter: Waiter<Outcome>) -> Waiting {
        let policy = &self.core.policy;
        let slow = policy.slow_load.and_then(|slow| Instant::now().checked_add(slow));
        if policy.wait.is_fail_fast() {
            return Waiting::failing_fast(waiter, slow);
        }
        Waiting::new(waiter, self.patient_from.checked_add(policy.patience()), slow)
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
        let waiter = match self.core.loads.uncached.join(&self.key, false) {
            Role::Joined(waiter) => waiter,
            Role::Opened(leader, waiter) => {
                let job = self.lend();
                runtime.spawn(load_uncached(Arc::clone(&self.core), leader, job));
                waiter
            }
            Role::Refused(full) => return self.refuse(full),
        };
        State::Waiting(Waiting::new(waiter, None, None))
    }

    pub(super) fn take_job(&mut self) -> Option<Job<S, Req>> {
        self.job.take().or_else(|| self.lent.as_ref()?.take())
    }

    /// Puts the job where a task can take it, and where it can be taken back.
    pub(super) fn lend(&mut self) -> Lent<S, Req> {
        let lent = Lent::new(self.job.take());
        self.lent = Some(lent.clone());
        lent
    }

    pub(super) fn task(
        &self,
        leader: Leader<Outcome>,
        job: Lent<S, Req>,
        purpose: Purpose,
    ) -> FlightTask<S, Req, C> {
        let leader = leader.heard_by(self.listener.clone());
        FlightTask::new(Arc::clone(&self.core), leader, job, purpose)
    }

    pub(super) fn give(
        &mut self,
        kept: Arc<dyn Any + Send + Sync>,
        origin: Origin,
        opener: bool,
    ) -> State<S, Req> {
        match kept.downcast::<C::Kept>() {
            Ok(kept) => self.settle(&kept, self.status(origin, opener)),
            Err(_) => self.fail(CacheError::other_type(&self.key).into()),
        }
    }

    fn status(&self, origin: Origin, opener: bool) -> CacheStatus {
        let waited = self.begun.elapsed();
        match origin {
            Origin::Kept(status) => status,
            Origin::Elsewhere => CacheStatus::Collapsed { place: LoadLocation::Remote, waited },
            Origin::Loaded { stored } if opener => CacheStatus::Led { stored },
            Origin::Around(why) if opener => CacheStatus::Bypass(why),
            Origin::Loaded { .. } | Origin::Around(_) => {
                CacheStatus::Collapsed { place: LoadLocation::Local, waited }
            }
        }
    }

    fn settle(&self, kept: &C::Kept, status: CacheStatus) -> State<S, Req> {
        State::Answered(Some((Ok(self.core.codec.restore(kept, &status)), status)))
    }
}

impl<S, Req, C> fmt::Debug for Request<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("key", &self.key).finish_non_exhaustive()
    }
}
