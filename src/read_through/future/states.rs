//! The states of a request, in the order in which it goes through them, and how it gets from one to
//! the next.
//!
//! ```text
//!  Begun ──an entry that will do──────────────────► Answered (and replaced in the background)
//!    ├─unknown──► Looking ──an entry that will do─► Answered
//!    │               └─none─┐
//!    └─none────────────────► Waiting ──outcome────► Answered
//!                              ├─private──────────► Loading ──► Answered
//!                              ├─again────────────► Looking, Waiting
//!                              ├─slow, or too long─► Answered with a stale fallback or an error
//!                              └─too long─────────► Waiting, for an uncached load
//! ```
//!
//! `poll` drives a state to its end; the functions below it, in the same order, say what comes next.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::util::Oneshot;
use tower::{Service, ServiceExt};

use super::fallback::Fallback;
use super::looking::{LookEnd, Looking};
use super::request::Request;
use super::waiting::{WaitEnd, Waiting};
use crate::codec::Codec;
use crate::error::{CacheError, Error, StoreError};
use crate::flight::{Completion, Phase, Role};
use crate::log_throttle::warn_throttled;
use crate::read_through::core::{self, Peeked};
use crate::read_through::flight_task::Purpose;
use crate::read_through::outcome::{Origin, Outcome};
use crate::status::{BypassReason, CacheStatus, StaleReason};
use crate::store::{Accept, Entry};

/// Where a request with a key stands.
#[pin_project(project = StateProjection)]
pub(super) enum State<S, Req>
where
    S: Service<Req>,
{
    /// It has not been polled yet.
    Begun(Start),
    /// Polling the store's answer, alone with this key.
    Looking(Looking),
    /// Polling for the outcome of a flight.
    Waiting(#[pin] Waiting),
    /// Polling the loader itself, for a request that bypasses the cache, and why it does.
    /// In a box, so that those that wait need no room for a loader's future.
    Loading(Pin<Box<Oneshot<S, Req>>>, BypassReason),
    /// Answered by what is kept in this process, and for how much longer that is fresh: to be
    /// given out at the next poll. Most answers are of this kind, so it is kept small.
    Hit(Option<S::Response>, Option<Duration>),
    /// Answered: to be given out at the next poll.
    Answered(Option<Settled<S::Response, S::Error>>),
}

/// What a request begins with.
#[derive(Debug)]
pub(super) enum Start {
    /// This process knows the entry.
    With(Entry),
    /// The store is to be asked.
    Look,
    /// There is nothing.
    Join,
}

/// An answer, and how it came about.
pub(in crate::read_through) type Settled<R, E> = (Result<R, Error<E>>, CacheStatus);

impl<S, Req> State<S, Req>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
{
    /// Goes from state to state until there is an answer. Only what needs no more than a poll has no
    /// request.
    #[inline]
    pub(super) fn poll<C: Codec<S::Response>>(
        mut self: Pin<&mut Self>,
        request: &mut Option<Request<S, Req, C>>,
        cx: &mut Context<'_>,
    ) -> Poll<Settled<S::Response, S::Error>> {
        loop {
            let next = match (self.as_mut().project(), request.as_mut()) {
                (StateProjection::Hit(answer, fresh_for), _) => {
                    let status = CacheStatus::Hit { fresh_for: *fresh_for };
                    return Poll::Ready((Ok(once(answer)), status));
                }
                (StateProjection::Answered(answer), _) => return Poll::Ready(once(answer)),
                (StateProjection::Begun(start), Some(request)) => request.start(start),
                (StateProjection::Looking(looking), Some(request)) => {
                    let end = ready!(looking.poll(cx));
                    request.looked(end)
                }
                (StateProjection::Waiting(mut waiting), Some(request)) => {
                    match ready!(waiting.as_mut().poll(cx)) {
                        WaitEnd::Completed(completion) => {
                            request.waited(completion, waiting.waiter().is_opener())
                        }
                        WaitEnd::Slow => match request.load_is_slow(waiting.waiter()) {
                            Some(stale) => stale,
                            None => continue,
                        },
                        WaitEnd::RanOut => match request.give_up(waiting.waiter()) {
                            Some(next) => next,
                            None => {
                                waiting.keep_waiting();
                                continue;
                            }
                        },
                    }
                }
                (StateProjection::Loading(response, why), request) => {
                    let answer = ready!(response.as_mut().poll(cx));
                    return Poll::Ready(loaded(request, answer, *why));
                }
                (_, None) => unreachable!("what has no request is answered, or loads"),
            };
            self.set(next);
        }
    }

    /// At its deadline: whatever it waits for goes on without it, and has its request if it was
    /// lent.
    pub(super) fn run_out<C: Codec<S::Response>>(
        mut self: Pin<&mut Self>,
        request: &mut Request<S, Req, C>,
    ) {
        let next = match self.as_mut().project() {
            StateProjection::Waiting(waiting) => request.out_of_time(Some(waiting.waiter())),
            StateProjection::Looking(looking) => {
                looking.finish_alone();
                request.out_of_time(None)
            }
            _ => request.out_of_time(None),
        };
        self.set(next);
    }
}

impl<S, Req, C> Request<S, Req, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
    C: Codec<S::Response>,
{
    /// `Begun`: looks alone if no other caller is about this key, else joins them.
    fn start(&mut self, start: &mut Start) -> State<S, Req> {
        self.begun = Instant::now();
        self.patient_from = self.begun;
        match std::mem::replace(start, Start::Join) {
            Start::With(entry) => self.consider(entry),
            Start::Look if !self.how.is_forced => self.look(),
            Start::Look | Start::Join => self.join(None),
        }
    }

    fn look(&mut self) -> State<S, Req> {
        if self.is_late() {
            return self.out_of_time(None);
        }
        match self.core.loads.flights.look_up_alone(&self.key) {
            Some(lookup) => {
                let patience = self.core.policy.patience_for_look();
                let until = patience.map(|patience| self.patient_from + patience);
                State::Looking(Looking::new(
                    self.core.store.lookup(self.key.clone()),
                    lookup,
                    until,
                ))
            }
            None => self.join(None),
        }
    }

    /// `Looking` has ended.
    fn looked(&mut self, end: LookEnd) -> State<S, Req> {
        match end {
            LookEnd::Answered(Ok(Some(entry))) => self.consider(entry),
            LookEnd::Answered(Ok(None)) => self.join(None),
            LookEnd::Answered(Err(error)) => {
                warn_throttled!(%error, "taken for a miss");
                self.join(Some(error))
            }
            LookEnd::RanOut => self.give_up_looking(),
        }
    }

    /// An entry was found: gives it out if it will do, and sees to it that it is replaced if it is
    /// time for that.
    fn consider(&mut self, entry: Entry) -> State<S, Req> {
        let (status, refresh) = match entry.fresh_for() {
            _ if entry.as_marker().is_some() => return self.join(None),
            _ if entry.serves_while_revalidating() => {
                (core::stale(&entry, StaleReason::Revalidating), Some(Accept::Fresh))
            }
            _ if !entry.is_fresh() => {
                self.fallback = Fallback::of(entry).map(Box::new);
                return self.join(None);
            }
            Some(left) if self.is_due_early(&entry, left) => {
                (core::hit(&entry), Some(Accept::Other { than: entry.fence() }))
            }
            _ => (core::hit(&entry), None),
        };
        let Some(answer) = self.core.answer::<S::Response>(entry, status) else {
            return self.join(None);
        };
        if let Some(accept) = refresh {
            self.refresh(accept);
        }
        State::Answered(Some((Ok(answer.0), answer.1)))
    }

    /// Opens or joins the flight of its key.
    fn join(&mut self, store_failed: Option<StoreError>) -> State<S, Req> {
        if self.is_late() {
            return self.out_of_time(None);
        }
        self.bypassing = self.core.bypass(&self.key, self.how).filter(|_| store_failed.is_none());
        if self.bypassing.is_some() {
            return self.load(BypassReason::NotKept);
        }
        let Ok(runtime) = Handle::try_current() else {
            return self.fail(CacheError::no_runtime(&self.key).into());
        };
        let (flights, purpose) = match self.how.is_forced {
            true => (&self.core.loads.forced, Purpose::AnswerAnew),
            false => (&self.core.loads.flights, Purpose::Answer),
        };
        let waiter = match flights.join(&self.key, self.core.policy.wait.is_fail_fast()) {
            Role::Joined(waiter) => {
                if let Some(listener) = &self.listener {
                    listener(Phase::Waiting);
                }
                waiter
            }
            Role::Opened(leader, waiter) => {
                let job = self.lend();
                let task = self.task(leader, job, purpose);
                match store_failed {
                    Some(error) => runtime.spawn(task.run_after(error)),
                    None => runtime.spawn(task.run()),
                };
                waiter
            }
            Role::Refused(full) => return self.refuse(full),
        };
        if self.is_hopeless(&waiter) {
            return self.out_of_time(Some(&waiter));
        }
        State::Waiting(self.wait(waiter))
    }

    /// `Waiting` has ended.
    fn waited(&mut self, completion: Completion<Outcome>, opener: bool) -> State<S, Req> {
        let outcome = match completion {
            Completion::Outcome(outcome) => outcome,
            // A caller that opens a flight is always answered by it, unless its task was dropped.
            // One that is dropped as soon as it is spawned would be opened again for ever.
            Completion::Again if opener => {
                return self.fail(CacheError::load_lost(&self.key).into());
            }
            Completion::Again => return self.again(|it| it.join(None)),
        };
        match outcome {
            Outcome::Value(kept, origin) => self.give(kept, origin, opener),
            Outcome::LoadFailed(error) => match error.downcast() {
                Ok(error) => self.fail(Error::Load(error)),
                Err(_) => self.fail(CacheError::other_type(&self.key).into()),
            },
            Outcome::FailedValue(kept) => {
                // The opener of a flight that rests on an earlier failure has not loaded.
                let led = opener && self.lent.as_ref().is_some_and(|lent| !lent.is_there());
                self.instead(StaleReason::LoadFailed)
                    .unwrap_or_else(|| self.give(kept, Origin::Loaded { stored: false }, led))
            }
            Outcome::Own if std::mem::take(&mut self.how.asks_again) => {
                // What it waited for was another's: that does not shorten the wait for its own.
                self.patient_from = Instant::now();
                self.again(|it| it.join(None))
            }
            Outcome::Private | Outcome::Own => self.load(BypassReason::NotKept),
            Outcome::Look => self.again(Self::look),
            Outcome::Failed(error) => self.fail(error.into()),
        }
    }

    /// Looks again: the task of its flight has gone, or there is something that may do.
    fn again(&mut self, ask: impl FnOnce(&mut Self) -> State<S, Req>) -> State<S, Req> {
        if self.is_uncached {
            return self.join_uncached();
        }
        if self.how.is_forced {
            return self.join(None);
        }
        match self.core.peek::<S::Response>(&self.key) {
            Peeked::Hit(answer, fresh_for) => State::Hit(Some(answer), fresh_for),
            Peeked::Entry(entry) => self.consider(entry),
            Peeked::Miss => self.join(None),
            Peeked::Unknown => ask(self),
        }
    }

    /// Loads for itself.
    fn load(&mut self, why: BypassReason) -> State<S, Req> {
        if self.is_late() {
            return self.out_of_time(None);
        }
        if self.how.bypasses_by_itself {
            let error = CacheError::contended(&self.key);
            return State::Answered(Some((Err(error.into()), CacheStatus::Bypass(why))));
        }
        match self.take_job() {
            Some(job) => State::Loading(Box::pin(job.service.oneshot(job.request)), why),
            None => self.fail(CacheError::load_lost(&self.key).into()),
        }
    }
}

/// `Loading` has ended. A request without a key has nothing to note.
fn loaded<S, Req, C>(
    request: Option<&mut Request<S, Req, C>>,
    answer: Result<S::Response, S::Error>,
    why: BypassReason,
) -> Settled<S::Response, S::Error>
where
    S: Service<Req>,
    C: Codec<S::Response>,
{
    let status = CacheStatus::Bypass(why);
    match request {
        Some(request) => request.core.answer_of_bypass(&request.key, answer, status),
        None => (answer.map_err(|error| Error::Load(Arc::new(error))), status),
    }
}

fn once<T>(answer: &mut Option<T>) -> T {
    answer.take().unwrap_or_else(|| panic!("polled after it was ready"))
}
