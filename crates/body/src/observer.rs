//! `BodyObserver`: whether a body that passes through ends in time, and a copy of it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};

use super::budget::{BodyBudget, BudgetShare};
use super::joined::JoinedFrames;

/// Observes a body that passes through to one caller, and reports once whether it was complete in
/// time. It reports nothing if the body fails, or if its caller drops it before that is known.
pub struct BodyObserver {
    /// How many more bytes it may have.
    left: usize,
    /// By when it has to be complete.
    deadline: Pin<Box<Sleep>>,
    /// The frames so far, if a copy was requested.
    copy: Option<BodyCopy>,
    on_end: Option<OnEnd>,
}

struct BodyCopy {
    data: JoinedFrames,
    trailers: Option<HeaderMap>,
    share: BudgetShare,
}

/// What a [`BodyObserver`] reports.
#[allow(clippy::exhaustive_enums, reason = "a body is complete in time or it is not")]
#[derive(Debug)]
pub enum ObservedBody {
    /// It was complete in time.
    Complete {
        /// Its data. Empty if no copy was requested.
        data: Bytes,
        /// Its trailer fields. `None` if no copy was requested.
        trailers: Option<HeaderMap>,
    },
    /// It is too large, or takes too long, or a copy is beyond the budget.
    Unfinished,
}

type OnEnd = Box<dyn FnOnce(ObservedBody) + Send + Sync>;

impl BodyObserver {
    /// Observes a body that should end before `deadline` with at most `most` bytes of data. Then
    /// `on_end` is called, within a poll of the body, so it must not block.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(
        most: usize,
        deadline: Instant,
        on_end: impl FnOnce(ObservedBody) + Send + Sync + 'static,
    ) -> Self {
        let deadline = Box::pin(sleep_until(deadline));
        Self { left: most, deadline, copy: None, on_end: Some(Box::new(on_end)) }
    }

    /// Also copies the body, for [`ObservedBody::Complete`]. A body beyond the budget is
    /// [`Unfinished`](ObservedBody::Unfinished).
    pub fn copying(self, budget: &BodyBudget) -> Self {
        let data = JoinedFrames::default();
        Self { copy: Some(BodyCopy { data, trailers: None, share: budget.share() }), ..self }
    }

    /// Counts and copies a frame that the caller gets.
    pub(super) fn saw(&mut self, frame: &Frame<Bytes>) {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match self.left.checked_sub(length) {
            Some(left) => self.left = left,
            None => return self.finish(ObservedBody::Unfinished),
        }
        if let Some(copy) = &mut self.copy {
            if !copy.share.grow_to(copy.data.len() + length) {
                return self.finish(ObservedBody::Unfinished);
            }
            if let Some(data) = frame.data_ref() {
                copy.data.push(data.clone(), 0);
            }
            if let Some(more) = frame.trailers_ref() {
                copy.trailers.get_or_insert_default().extend(more.clone());
            }
        }
    }

    /// Reports that the body has ended.
    pub(super) fn ended(&mut self) {
        let (data, trailers) = match self.copy.take() {
            Some(BodyCopy { data, trailers, .. }) => (data.into_bytes(), trailers),
            None => (Bytes::new(), None),
        };
        self.finish(ObservedBody::Complete { data, trailers });
    }

    /// Checks the deadline, and has it wake the task while no frame comes.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>) {
        if self.on_end.is_some()
            && let Poll::Ready(()) = self.deadline.as_mut().poll(cx)
        {
            self.finish(ObservedBody::Unfinished);
        }
    }

    /// Stops without a report, as the body has failed.
    pub(super) fn broke_off(&mut self) {
        self.copy = None;
        self.on_end = None;
    }

    fn finish(&mut self, observed: ObservedBody) {
        self.copy = None;
        if let Some(on_end) = self.on_end.take() {
            on_end(observed);
        }
    }
}

/// Shows no content.
impl fmt::Debug for BodyObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyObserver").field("left", &self.left).finish_non_exhaustive()
    }
}
