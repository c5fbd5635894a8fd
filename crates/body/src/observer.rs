//! `BodyObserver`: whether a body that passes through ends in time, and a copy of it.

use std::sync::{Arc, Mutex};

use bellwether::adapter::locked;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::budget::{BodyBudget, BudgetShare};
use super::joined::JoinedFrames;

/// Observes a body that passes through to one caller, and reports once whether it was complete in
/// time. It reports nothing if the body fails, or if its caller drops it before that is known.
pub struct BodyObserver {
    observed: Arc<PendingObservation>,
    /// Reports at the deadline: nothing polls a body whose client reads no more of it.
    timer: AbortHandle,
}

/// `None` once it has reported, or the body has failed. It is locked to note a frame or to take all, never
/// across an `.await`, nor while it reports.
type PendingObservation = Mutex<Option<Observation>>;

struct Observation {
    /// How many more bytes it may have.
    left: usize,
    /// The data so far, if a copy was requested.
    copy: Option<(JoinedFrames, BudgetShare)>,
    trailers: Option<HeaderMap>,
    on_end: OnEnd,
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
    /// `on_end` is called, within a poll of the body or in a task at the deadline, so it must not block.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(
        most: usize,
        deadline: Instant,
        on_end: impl FnOnce(ObservedBody) + Send + Sync + 'static,
    ) -> Self {
        let on_end = Box::new(on_end);
        let observation = Observation { left: most, copy: None, trailers: None, on_end };
        let observed = Arc::new(Mutex::new(Some(observation)));
        let late = Arc::clone(&observed);
        let timer = tokio::spawn(async move {
            sleep_until(deadline).await;
            give_up(&late);
        });
        Self { observed, timer: timer.abort_handle() }
    }

    /// Also copies the body, for [`ObservedBody::Complete`]. A body beyond the budget is
    /// [`Unfinished`](ObservedBody::Unfinished).
    #[must_use]
    pub fn copying(self, budget: &BodyBudget) -> Self {
        if let Some(observation) = &mut *locked(&self.observed) {
            observation.copy = Some((JoinedFrames::default(), budget.share()));
        }
        self
    }

    /// Counts and copies a frame that the caller gets.
    pub(super) fn saw(&self, frame: &Frame<Bytes>) {
        let takes = locked(&self.observed).as_mut().is_none_or(|it| it.takes(frame));
        if !takes {
            give_up(&self.observed);
        }
    }

    /// Reports that the body has ended.
    pub(super) fn ended(&self) {
        if let Some(Observation { copy, trailers, on_end, .. }) = take(&self.observed) {
            let data = copy.map_or_else(Bytes::new, |(data, _)| data.into_bytes());
            on_end(ObservedBody::Complete { data, trailers });
        }
    }

    /// Stops without a report, as the body has failed.
    pub(super) fn broke_off(&self) {
        drop(take(&self.observed));
    }
}

impl Observation {
    /// Whether it may have this frame, too.
    fn takes(&mut self, frame: &Frame<Bytes>) -> bool {
        if let Some(more) = frame.trailers_ref() {
            self.trailers.get_or_insert_default().extend(more.clone());
        }
        let Some(data) = frame.data_ref() else { return true };
        let Some(left) = self.left.checked_sub(data.len()) else { return false };
        self.left = left;
        let Some((copy, share)) = &mut self.copy else { return true };
        let has_room = share.grow_to(copy.len() + data.len());
        if has_room {
            copy.push(data.clone(), 0);
        }
        has_room
    }
}

fn take(observed: &PendingObservation) -> Option<Observation> {
    locked(observed).take()
}

fn give_up(observed: &PendingObservation) {
    if let Some(Observation { on_end, .. }) = take(observed) {
        on_end(ObservedBody::Unfinished);
    }
}

impl Drop for BodyObserver {
    fn drop(&mut self) {
        self.timer.abort();
        self.broke_off();
    }
}

// Shows no content.
bellwether::debug_fields! { BodyObserver }

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
        let observer = BodyObserver::new(9, deadline, |_| ()).copying(&budget);
        observer.saw(&Frame::data("abc".into()));
        assert!(!budget.share().grow_to(5));
        drop(observer);
        assert!(budget.share().grow_to(5));
    }
}
