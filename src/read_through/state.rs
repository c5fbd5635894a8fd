//! Where a request stands.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use pin_project::pin_project;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::Service;
use tower::util::Oneshot;

use super::core::Landing;
use super::deadline::Deadline;
use super::waiting::Waiting;
use crate::error::{Error, StoreError};
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
    Looking(Looking),
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

/// A look of a caller that is alone with its key, and until when it waits for that.
pub(super) struct Looking {
    answer: Option<Answer<Option<Entry>>>,
    _glance: Glance<Landing>,
    until: Option<Deadline>,
}

/// What a look came to.
#[derive(Debug)]
pub(super) enum Looked {
    Answered(Result<Option<Entry>, StoreError>),
    /// The patience for it is over.
    RanOut,
}

impl Looking {
    pub(super) fn new(
        answer: Answer<Option<Entry>>,
        glance: Glance<Landing>,
        until: Option<Instant>,
    ) -> Self {
        Self { answer: Some(answer), _glance: glance, until: until.map(Deadline::at) }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Looked> {
        if let Some(answer) = &mut self.answer
            && let Poll::Ready(answer) = answer.poll_unpin(cx)
        {
            return Poll::Ready(Looked::Answered(answer));
        }
        match &mut self.until {
            Some(until) => until.poll(cx).map(|()| Looked::RanOut),
            None => Poll::Pending,
        }
    }

    /// Its caller waits no longer. The look is finished all the same: a store that does not answer
    /// has to notice it, or it would be asked in vain for as long as all callers are in a hurry.
    pub(super) fn finish_alone(&mut self) {
        if let (Some(answer), Ok(runtime)) = (self.answer.take(), Handle::try_current()) {
            runtime.spawn(answer.map(drop));
        }
    }
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
