//! Deadlines: the moments at which a request is answered at the latest.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

/// A moment to wait for. Few requests have one, so its timer is in a box and is made at the first
/// poll.
pub(super) struct Deadline {
    at: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(super) fn at(at: Instant) -> Self {
        Self { at, timer: None }
    }

    /// Waits for the moment. Without a runtime there are no timers, and it never comes.
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

/// When a wait has to end so that its caller has the answer by the deadline.
pub(super) fn answer_by(deadline: Instant) -> Instant {
    deadline - margin(deadline.saturating_duration_since(Instant::now()))
}

/// How much earlier than the deadline a wait ends, with `left` until the deadline.
fn margin(left: Duration) -> Duration {
    (left / 10).clamp(TIMER, ANSWER).min(left / 2)
}

/// Timers have steps of 1 ms, so they may be as late, and a woken task takes time to run.
const TIMER: Duration = Duration::from_millis(2);

/// About how long a busy machine takes from a timer to the answer.
const ANSWER: Duration = Duration::from_millis(10);
