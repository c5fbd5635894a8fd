//! A lone lookup with a bound on its time.

use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::flight::LoneLookup;
use crate::read_through::deadline::Deadline;
use crate::read_through::outcome::Outcome;
use crate::store::{Entry, StoreFuture};

/// The lookup of the only caller of a key, and when its wait runs out.
pub(super) struct BoundedLookup {
    answer: Option<StoreFuture<Option<Entry>>>,
    _lookup: LoneLookup<Outcome>,
    until: Option<Deadline>,
}

/// How a lookup ended.
#[derive(Debug)]
pub(super) enum LookupEnd {
    Answered(Result<Option<Entry>, StoreError>),
    /// Its wait ran out.
    RanOut,
}

impl BoundedLookup {
    pub(super) fn new(
        answer: StoreFuture<Option<Entry>>,
        lookup: LoneLookup<Outcome>,
        until: Option<Instant>,
    ) -> Self {
        Self { answer: Some(answer), _lookup: lookup, until: until.map(Deadline::at) }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<LookupEnd> {
        if let Some(answer) = &mut self.answer
            && let Poll::Ready(answer) = answer.poll_unpin(cx)
        {
            return Poll::Ready(LookupEnd::Answered(answer));
        }
        let Some(until) = &mut self.until else { return Poll::Pending };
        ready!(until.poll(cx));
        self.finish_alone();
        Poll::Ready(LookupEnd::RanOut)
    }

    /// Finishes the lookup in a task, without its caller. The breaker of the store learns from it
    /// that the store does not answer. Otherwise callers with short waits would keep asking in
    /// vain.
    pub(super) fn finish_alone(&mut self) {
        if let (Some(answer), Ok(runtime)) = (self.answer.take(), Handle::try_current()) {
            runtime.spawn(answer.map(drop));
        }
    }
}
