//! Where a request stands.

use std::pin::Pin;
use std::time::Duration;

use pin_project::pin_project;
use tower::Service;
use tower::util::Oneshot;

use super::core::Landing;
use super::waiting::Waiting;
use crate::error::Error;
use crate::flight::Glance;
use crate::status::{Bypass, CacheStatus};
use crate::store::{Answer, Entry};

/// Where a request stands.
#[pin_project(project = StateProjection)]
pub(super) enum State<S, Req>
where
    S: Service<Req>,
{
    /// Nothing is under way. Goes anywhere.
    Fresh(Start),
    /// Polling the store's answer, alone with this key. Goes anywhere.
    Looking(Answer<Option<Entry>>, Glance<Landing>),
    /// Polling a seat in a flight. Goes anywhere, or to `Waiting` in another flight.
    Waiting(#[pin] Waiting),
    /// Polling the loader itself, for a request that goes around the cache, and why it does.
    /// In a box, so that those who wait need no room for a loader's future.
    Passing(Pin<Box<Oneshot<S, Req>>>, Bypass),
    /// Answered by what is kept in this process, and for how much longer that is fresh: to be
    /// given out at the next poll. Most answers are of this kind, so it is kept small.
    Hit(Option<S::Response>, Option<Duration>),
    /// Answered: to be given out at the next poll.
    Settled(Option<Settled<S::Response, S::Error>>),
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
pub(super) type Settled<R, E> = (Result<R, Error<E>>, CacheStatus);
