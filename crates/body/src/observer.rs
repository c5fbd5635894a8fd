//! `BodyObserver`: whether a body that passes through ends in time, and a copy of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bellwether::adapter::locked;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tokio::task::AbortHandle;
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
    /// The data so far, if a copy was requested.
    copy: Option<TimedCopy>,
    trailers: Option<HeaderMap>,
    on_end: Option<OnEnd>,
}

struct BodyCopy {
    data: JoinedFrames,
    share: BudgetShare,
}

/// A copy that a task drops at the deadline: nothing polls a body whose client reads no more of it.
struct TimedCopy {
    /// `None` after the deadline. It is locked to add a frame, never across an `.await`.
    copy: Arc<Mutex<Option<BodyCopy>>>,
    timer: AbortHandle,
}

impl TimedCopy {
    fn new(budget: &BodyBudget, deadline: Instant) -> Self {
        let (data, share) = (JoinedFrames::default(), budget.share());
        let copy = Arc::new(Mutex::new(Some(BodyCopy { data, share })));
        let timed = Arc::downgrade(&copy);
        let timer = tokio::spawn(async move {
            sleep_until(deadline).await;
            if let Some(copy) = timed.upgrade() {
                *locked(&copy) = None;
            }
        });
        Self { copy, timer: timer.abort_handle() }
    }

    /// Adds data. Returns whether it was in time, and within the budget.
    fn add(&self, data: &Bytes) -> bool {
        let mut copy = locked(&self.copy);
        let Some(copy) = &mut *copy else { return false };
        let has_room = copy.share.grow_to(copy.data.len() + data.len());
        if has_room {
            copy.data.push(data.clone(), 0);
        }
        has_room
    }

    fn take(&self) -> Option<BodyCopy> {
        locked(&self.copy).take()
    }
}

impl Drop for TimedCopy {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

/// What a [`BodyObserver`] reports.
#[allow(clippy::exhaustive_enums, reason = "a body is complete in time or it is not")]
#[derive(Debug)]
pub enum ObservedBody {
    /// It was complete in time.
    Complete {
        /// Its data. Empty if no copy was requested.
        data: Bytes,
        /// Its trailer fields.
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
        Self { left: most, deadline, copy: None, trailers: None, on_end: Some(Box::new(on_end)) }
    }

    /// Also copies the body, for [`ObservedBody::Complete`]. A body beyond the budget is
    /// [`Unfinished`](ObservedBody::Unfinished). At the deadline the copy is dropped, even if the caller
    /// reads no more.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn copying(self, budget: &BodyBudget) -> Self {
        let copy = TimedCopy::new(budget, self.deadline.deadline());
        Self { copy: Some(copy), ..self }
    }

    /// Counts and copies a frame that the caller gets.
    pub(super) fn saw(&mut self, frame: &Frame<Bytes>) {
        if let Some(more) = frame.trailers_ref() {
            self.trailers.get_or_insert_default().extend(more.clone());
        }
        let Some(data) = frame.data_ref() else { return };
        let left = self.left.checked_sub(data.len());
        self.left = left.unwrap_or_default();
        if left.is_none() || self.copy.as_ref().is_some_and(|copy| !copy.add(data)) {
            self.finish(ObservedBody::Unfinished);
        }
    }

    /// Reports that the body has ended.
    pub(super) fn ended(&mut self) {
        let trailers = self.trailers.take();
        let data = match self.copy.take() {
            None => Some(Bytes::new()),
            Some(copy) => copy.take().map(|copy| copy.data.into_bytes()),
        };
        self.finish(match data {
            Some(data) => ObservedBody::Complete { data, trailers },
            None => ObservedBody::Unfinished,
        });
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

// Shows no content.
bellwether::debug_fields! { BodyObserver => |it| left = it.left }

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures_util::{StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};
    use tokio::sync::oneshot;
    use tokio::time::sleep;

    use super::*;
    use crate::CacheBody;

    #[tokio::test(start_paused = true)]
    async fn a_copy_is_dropped_at_the_deadline_though_its_body_is_not_polled() {
        let budget = BodyBudget::new(5);
        let (sender, observed) = oneshot::channel();
        let deadline = Instant::now() + Duration::from_secs(1);
        let observer = BodyObserver::new(9, deadline, |seen| _ = sender.send(seen));
        let frames = ["abc", "d"].map(|text| Ok::<_, Infallible>(Frame::data(text.into())));
        let body = Box::pin(StreamBody::new(stream::iter(frames).boxed()));
        let body = CacheBody::resumed(Bytes::new(), body);
        let mut body = body.observed_by(observer.copying(&budget));
        body.frame().await.unwrap().unwrap();
        assert!(!budget.share().grow_to(5));
        sleep(Duration::from_secs(2)).await;
        assert!(budget.share().grow_to(5));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "d");
        assert!(matches!(observed.await, Ok(ObservedBody::Unfinished)));
    }

    #[tokio::test]
    async fn a_copy_is_dropped_with_its_observer() {
        let budget = BodyBudget::new(5);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut observer = BodyObserver::new(9, deadline, |_| ()).copying(&budget);
        observer.saw(&Frame::data("abc".into()));
        assert!(!budget.share().grow_to(5));
        drop(observer);
        assert!(budget.share().grow_to(5));
    }
}
