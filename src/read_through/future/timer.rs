//! The timer of a request: when its wait is interrupted, and when it ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

/// The moments for which a request waits beside its answer.
pub(super) struct Timer {
    /// When the load counts as slow.
    slow: Option<Instant>,
    /// When its wait runs out.
    wait: Option<Instant>,
    /// When it is answered at the latest.
    deadline: Option<Instant>,
    /// Until the first of them. In a box and made at the first poll, since few requests wait.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// Which moment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elapsed {
    Slow,
    Wait,
    Deadline,
}

impl Timer {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self { slow: None, wait: None, deadline, sleep: None }
    }

    /// Sets when the load counts as slow, and when the wait runs out.
    pub(super) fn wait_until(&mut self, wait: Option<Instant>, slow: Option<Instant>) {
        (self.wait, self.slow) = (wait, slow);
    }

    pub(super) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Waits for the first moment that has not come yet. Without a runtime there are no timers, and
    /// it never comes.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Elapsed> {
        let moments = [
            (self.wait, Elapsed::Wait),
            (self.slow, Elapsed::Slow),
            (self.deadline, Elapsed::Deadline),
        ];
        let set = moments.into_iter().filter_map(|(at, what)| Some((at?, what)));
        let Some((at, what)) = set.min_by_key(|(at, _)| *at) else { return Poll::Pending };
        if self.sleep.is_none() && Handle::try_current().is_err() {
            return Poll::Pending;
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        ready!(sleep.as_mut().poll(cx));
        match what {
            Elapsed::Slow => self.slow = None,
            Elapsed::Wait => self.wait_until(None, None),
            Elapsed::Deadline => {}
        }
        Poll::Ready(what)
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("deadline", &self.deadline).finish_non_exhaustive()
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
