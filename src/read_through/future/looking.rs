//! The look of a caller that is alone with its key.

use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::flight::LoneLookup;
use crate::read_through::deadline::Deadline;
use crate::read_through::outcome::Outcome;
use crate::store::{Entry, StoreFuture};

/// A look of a caller that is alone with its key, and until when it waits for that.
pub(super) struct Looking {
    answer: Option<StoreFuture<Option<Entry>>>,
    _lookup: LoneLookup<Outcome>,
    until: Option<Deadline>,
}

/// What a look came to.
#[derive(Debug)]
pub(super) enum LookEnd {
    Answered(Result<Option<Entry>, StoreError>),
    /// The patience for it is over.
    RanOut,
}

impl Looking {
    pub(super) fn new(
        answer: StoreFuture<Option<Entry>>,
        lookup: LoneLookup<Outcome>,
        until: Option<Instant>,
    ) -> Self {
        Self { answer: Some(answer), _lookup: lookup, until: until.map(Deadline::at) }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<LookEnd> {
        if let Some(answer) = &mut self.answer
            && let Poll::Ready(answer) = answer.poll_unpin(cx)
        {
            return Poll::Ready(LookEnd::Answered(answer));
        }
        let Some(until) = &mut self.until else { return Poll::Pending };
        ready!(until.poll(cx));
        self.finish_alone();
        Poll::Ready(LookEnd::RanOut)
    }

    /// Its caller waits no longer. The look is finished all the same: a store that does not answer
    /// has to notice it, or it would be asked in vain for as long as all callers are in a hurry.
    pub(super) fn finish_alone(&mut self) {
        if let (Some(answer), Ok(runtime)) = (self.answer.take(), Handle::try_current()) {
            runtime.spawn(answer.map(drop));
        }
    }
}
