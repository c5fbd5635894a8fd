//! Deadlines: the moments at which a request is answered at the latest.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

/// A moment to be waited for. Few requests have one, so its timer is made when it is first waited
/// for, and in a box.
pub(super) struct Deadline {
    at: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(super) fn at(at: Instant) -> Self {
        Self { at, timer: None }
    }

    /// Waits until it has come. Where there is no runtime, there are no timers: it never comes.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.is_none() && Handle::try_current().is_ok() {
            self.timer = Some(Box::pin(sleep_until(self.at)));
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Deadline").field(&self.at).finish()
    }
}

/// When a wait ends so that its caller has the answer by its deadline: earlier by a tenth of the
/// time that is left, and by [`MARGIN`] at most.
pub(super) fn answer_by(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    deadline - (left / 10).min(MARGIN)
}

/// About what it takes on a busy machine from a timer to the answer.
const MARGIN: Duration = Duration::from_millis(10);
