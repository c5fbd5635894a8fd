//! One request: where it stands, and what it does next.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use pin_project::pin_project;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::Service;
use tower::util::Oneshot;

use super::core::{Core, Landing, Origin, Peeked};
use super::flight_task::FlightTask;
use super::load::{Job, Lent};
use super::relief_task::relieve;
use super::step::Event;
use super::waiting::Waiting;
use crate::capture::Capture;
use crate::error::{CacheError, Error, StoreError};
use crate::flight::{Glance, Landed, Seat};
use crate::key::Key;
use crate::policy::Then;
use crate::status::{CacheStatus, Place};
use crate::store::{Answer, Entry};

/// Where a request stands.
#[pin_project(project = StateProjection)]
pub(super) enum State<S, Req>
where
    S: Service<Req>,
{
    /// Nothing is under way. Goes to `Looking` or `Waiting`.
    Fresh { ask: bool },
    /// Polling the store's answer, alone with this key. Goes to `Settled` or `Waiting`.
    Looking(Answer<Option<Entry>>, Glance<Landing>),
    /// Polling a seat in a flight. Goes to `Settled`, or to `Waiting` in another flight.
    Waiting(#[pin] Waiting),
    /// Polling the loader itself, for a request without a key.
    /// In a box, so that those who wait need no room for a loader's future.
    Passing(Pin<Box<Oneshot<S, Req>>>),
    /// Answered: to be given out at the next poll.
    Settled(Option<Settled<S::Response, S::Error>>),
}

/// An answer, and how it came about.
pub(super) type Settled<R, E> = (Result<R, Error<E>>, CacheStatus);

/// What a request needs until it is answered.
pub(super) struct Call<S, Req, C> {
    core: Arc<Core<C>>,
    key: Key,
    /// What to load with, until it is lent to the task of a flight.
    job: Option<Job<S, Req>>,
    lent: Option<Lent<S, Req>>,
    /// When it was first polled: what it waits is counted from then.
    begun: Instant,
    /// It has waited in vain for somebody else's load.
    relieved: bool,
}

impl<S, Req, C> Call<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
    C: Capture<S::Response>,
{
    pub(super) fn new(core: Arc<Core<C>>, key: Key, service: S, request: Req) -> Self {
        let job = Some(Job { service, request });
        let key = key.digested();
        Self { core, key, job, lent: None, begun: Instant::now(), relieved: false }
    }

    /// The first thing to do: look alone if nobody else is about this key, else join them.
    pub(super) fn start(&mut self, ask: bool) -> State<S, Req> {
        self.begun = Instant::now();
        let glance = if ask { self.core.loads.flights.glance(&self.key) } else { None };
        match glance {
            Some(glance) => State::Looking(self.core.store.look(self.key.clone()), glance),
            None => self.join(false),
        }
    }

    /// After the look.
    pub(super) fn looked(&mut self, answer: Result<Option<Entry>, StoreError>) -> State<S, Req> {
        let store_failed = answer.is_err();
        let entry = answer.unwrap_or_else(|error| {
            tracing::warn!(%error, "taken for a miss");
            None
        });
        let fresh = entry.filter(Entry::is_fresh);
        match fresh.and_then(|entry| self.core.answer::<S::Response>(entry)) {
            Some((answer, status)) => State::Settled(Some((Ok(answer), status))),
            None => self.join(store_failed),
        }
    }

    /// After a landing.
    pub(super) fn landed(&mut self, landed: Landed<Landing>, opener: bool) -> State<S, Req> {
        match landed {
            Landed::Answer(Landing::Value(kept, origin)) => self.given(kept, origin, opener),
            Landed::Answer(Landing::LoadFailed(error)) => match error.downcast() {
                Ok(error) => self.fail(Error::Load(error)),
                Err(_) => self.fail(CacheError::other_type(&self.key).into()),
            },
            Landed::Answer(Landing::Failed(error)) => self.fail(error.into()),
            // Whoever opens a flight is always answered by it, unless its task was dropped. One
            // that is dropped as soon as it is spawned would be opened again for ever.
            Landed::Again if opener => self.fail(CacheError::load_lost(&self.key).into()),
            Landed::Again => self.again(),
        }
    }

    /// After its patience is over. Nothing, if by now its own load runs.
    pub(super) fn give_up(&mut self) -> Option<State<S, Req>> {
        let wait = self.core.policy.wait;
        match wait.then() {
            Then::Fail if wait.is_fail_fast() => {
                Some(self.fail(CacheError::contended(&self.key).into()))
            }
            Then::Fail => {
                Some(self.fail(CacheError::wait_timed_out(&self.key, self.begun.elapsed()).into()))
            }
            Then::Load => {
                let job = self.job.take().or_else(|| self.lent.as_ref()?.take())?;
                self.job = Some(job);
                Some(self.join_relief())
            }
        }
    }

    /// Looks again, since whoever worked for its flight has gone.
    fn again(&mut self) -> State<S, Req> {
        if self.relieved {
            return self.join_relief();
        }
        match self.core.peek::<S::Response>(&self.key) {
            Peeked::Hit(kept, status) => self.settle(&kept, status),
            Peeked::Miss | Peeked::Unknown => self.join(false),
        }
    }

    fn join(&mut self, store_failed: bool) -> State<S, Req> {
        let Ok(runtime) = Handle::try_current() else {
            return self.fail(CacheError::no_runtime(&self.key).into());
        };
        let wait = self.core.policy.wait;
        let follower = match self.core.loads.flights.join(&self.key, wait.is_fail_fast()) {
            Seat::Joined(follower) => follower,
            Seat::Opened(leader, follower) => {
                let task = FlightTask::new(Arc::clone(&self.core), leader, self.lend());
                runtime.spawn(task.run(Event::Opened { store_failed }));
                follower
            }
        };
        State::Waiting(match wait.is_fail_fast() {
            true => Waiting::failing_fast(follower),
            false => Waiting::new(follower, self.begun.checked_add(wait.patience())),
        })
    }

    fn join_relief(&mut self) -> State<S, Req> {
        let Ok(runtime) = Handle::try_current() else {
            return self.fail(CacheError::no_runtime(&self.key).into());
        };
        self.relieved = true;
        let follower = match self.core.loads.reliefs.join(&self.key, false) {
            Seat::Joined(follower) => follower,
            Seat::Opened(leader, follower) => {
                runtime.spawn(relieve(Arc::clone(&self.core), leader, self.lend()));
                follower
            }
        };
        State::Waiting(Waiting::new(follower, None))
    }

    /// Puts the job where a task can take it, and where it can be taken back.
    fn lend(&mut self) -> Lent<S, Req> {
        let lent = Lent::new(self.job.take());
        self.lent = Some(lent.clone());
        lent
    }

    fn given(
        &self,
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
            Origin::Elsewhere => CacheStatus::Collapsed { place: Place::Elsewhere, waited },
            Origin::Loaded { stored } if opener => CacheStatus::Led { stored },
            Origin::Around(why) if opener => CacheStatus::Bypass(why),
            Origin::Loaded { .. } | Origin::Around(_) => {
                CacheStatus::Collapsed { place: Place::Here, waited }
            }
        }
    }

    fn settle(&self, kept: &C::Kept, status: CacheStatus) -> State<S, Req> {
        State::Settled(Some((Ok(self.core.capture.restore(kept, &status)), status)))
    }

    fn fail(&self, error: Error<S::Error>) -> State<S, Req> {
        State::Settled(Some((Err(error), CacheStatus::Failed)))
    }
}

impl<S, Req, C> fmt::Debug for Call<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("key", &self.key).finish_non_exhaustive()
    }
}
