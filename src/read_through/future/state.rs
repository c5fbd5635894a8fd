//! The states of a request, without what happens in them: see `transitions`.

use std::pin::Pin;
use std::time::Duration;

use pin_project::pin_project;
use tower::Service;

use super::alone_load::AloneLoad;
use super::bounded_lookup::BoundedLookup;
use super::bounded_wait::BoundedWait;
use crate::error::Error;
use crate::status::{BypassReason, CacheStatus};
use crate::store::Entry;

/// The state of a request.
#[pin_project(project = StateProjection)]
pub(super) enum State<S, Req>
where
    S: Service<Req>,
{
    /// Not polled yet.
    Begun(Start),
    /// Polls the store's answer, as the only caller of this key.
    LookingUp(BoundedLookup),
    /// Polls for the outcome of a flight.
    Waiting(#[pin] BoundedWait),
    /// Polls the loader itself, because the request bypasses the cache, for this reason. In a box,
    /// so that a waiter needs no room for a loader's future.
    Loading(Pin<Box<AloneLoad<S, Req>>>, BypassReason),
    /// Answered from this process: the answer, and how much longer it is fresh. The next poll takes
    /// it. Most answers are of this kind, so it is kept small.
    Hit(Option<S::Response>, Option<Duration>),
    /// Answered. The next poll takes the answer.
    Answered(Option<AnswerWithStatus<S::Response, S::Error>>),
}

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
