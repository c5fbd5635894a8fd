//! The states of a request, without what happens in them: see `machine`.

use std::pin::Pin;
use std::time::Duration;

use tower::Service;

use super::alone_load::AloneLoad;
use super::timer::Timer;
use crate::error::Error;
use crate::flight::{LoneLookup, Waiter};
use crate::read_through::outcome::Outcome;
use crate::status::{BypassReason, CacheStatus};
use crate::store::{Entry, StoreFuture};

/// The state of a request.
pub(super) enum State<S, Req>
where
    S: Service<Req>,
{
    /// Not polled yet.
    Begun(Start),
    /// Polls the store's answer, as the only caller of this key.
    LookingUp { answer: StoreFuture<Option<Entry>>, _alone: LoneLookup<Outcome> },
    /// Polls for the outcome of a flight.
    Waiting(Waiter<Outcome>, FailsFast),
    /// Polls the loader itself, because the request bypasses the cache, for this reason. In a box,
    /// so that a waiter needs no room for a loader's future.
    Loading(Pin<Box<AloneLoad<S, Req>>>, BypassReason),
    /// The same for a request without a key, which has nothing but a timer.
    Keyless(Pin<Box<AloneLoad<S, Req>>>, Box<Timer>),
    /// Answered from this process: the answer, and how much longer it is fresh. The next poll takes
    /// it. Most answers are of this kind, so it is kept small.
    Hit(Option<S::Response>, Option<Duration>),
    /// Answered. The next poll takes the answer.
    Answered(Option<AnswerWithStatus<S::Response, S::Error>>),
}

/// Whether a wait ends as soon as it would be for the load of another caller.
pub(super) type FailsFast = bool;

/// How a request begins.
#[derive(Debug)]
pub(super) enum Start {
    /// With an entry that this process has.
    Entry(Entry),
    /// With a lookup in the store.
    LookUp,
    /// With a flight, since there is no entry.
    Join,
}

/// An answer, and how it came about.
pub(in crate::read_through) type AnswerWithStatus<R, E> = (Result<R, Error<E>>, CacheStatus);

/// Takes the answer out.
pub(super) fn once<T>(answer: &mut Option<T>) -> T {
    answer.take().unwrap_or_else(|| panic!("polled after it was ready"))
}
