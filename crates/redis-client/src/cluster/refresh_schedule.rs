//! When the slot table is refreshed: one refresh at a time, with a pause between two.

use std::sync::Mutex;
use std::time::Duration;

use bellwether::adapter::locked;
use futures_util::FutureExt;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::shared_task::{SharedTask, start};

/// Admits one refresh at a time.
pub(super) struct RefreshSchedule {
    /// When the last refresh begins or has begun, and its task. Held for a few instructions, never across an
    /// `.await`.
    last: Mutex<Option<(Instant, SharedTask<()>)>>,
    /// How long a refresh may take. After that another one is admitted, because the runtime of the
    /// first may not be polled any more.
    longest: Duration,
    /// The time from one refresh to the next without a reason.
    every: Duration,
}

impl RefreshSchedule {
    pub(super) fn new(longest: Duration, every: Duration) -> Self {
        Self { last: Mutex::default(), longest, every }
    }

    /// Starts a task that refreshes, unless there is one.
    pub(super) fn refresh(&self, now: Instant, refresh: impl Future<Output = ()> + Send + 'static) {
        let mut last = locked(&self.last);
        let begins_at = match &*last {
            Some((begun, task)) if !has_ended(task) && now < *begun + self.longest => return,
            Some((begun, _)) => now.max(*begun + PAUSE),
            None => now,
        };
        let task = start(async move {
            sleep_until(begins_at).await;
            refresh.await;
        });
        *last = Some((begins_at, task));
    }

    /// Whether the last refresh began so long ago that the next one is due without a reason.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        locked(&self.last).as_ref().is_none_or(|(begun, _)| now >= *begun + self.every)
    }

    /// Waits for the end of the refresh that is under way, until the deadline at most.
    pub(super) async fn ended(&self, deadline: Instant) {
        let task = locked(&self.last).as_ref().map(|(_, task)| task.clone());
        if let Some(task) = task {
            // Being late is no error.
            _ = timeout_at(deadline, task).await;
        }
    }
}

fn has_ended(task: &SharedTask<()>) -> bool {
    task.clone().now_or_never().is_some()
}

/// The time between the beginnings of two refreshes. Meanwhile, requests follow redirections.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;
    use tokio::task::yield_now;
    use tokio::time::{advance, sleep};

    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);
    const EVERY: Duration = Duration::from_secs(60);

    fn schedule() -> RefreshSchedule {
        RefreshSchedule::new(LONGEST, EVERY)
    }

    /// Asks for a refresh, and tells when it begins, if it does. It ends with the sender.
    async fn begun(schedule: &RefreshSchedule) -> Option<(Duration, oneshot::Sender<()>)> {
        let (begin, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let asked = Instant::now();
        schedule.refresh(asked, async move {
            _ = begin.send(asked.elapsed());
            _ = ended.await;
        });
        Some((begun.await.ok()?, end))
    }

    #[tokio::test(start_paused = true)]
    async fn one_refresh_is_under_way_at_a_time() {
        let schedule = schedule();
        let first = begun(&schedule).await.expect("none is under way");
        for _ in 0..1000 {
            assert!(begun(&schedule).await.is_none());
        }
        drop(first);
        yield_now().await;
        assert!(begun(&schedule).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn two_refreshes_begin_a_pause_apart() {
        let schedule = schedule();
        let mut after = Vec::new();
        for pause in [Duration::ZERO, Duration::ZERO, PAUSE * 3] {
            sleep(pause).await;
            let (began, end) = begun(&schedule).await.expect("none is under way");
            after.push(began);
            drop(end);
            yield_now().await;
        }
        assert_eq!(after, [Duration::ZERO, PAUSE, Duration::ZERO]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refresh_that_never_ends_does_not_prevent_the_next_one() {
        let schedule = schedule();
        let stuck = begun(&schedule).await;
        advance(LONGEST).await;
        let next = begun(&schedule).await;
        assert!(next.is_some());
        drop(stuck);
        yield_now().await;
        assert!(begun(&schedule).await.is_none(), "the next one is still under way");
    }

    #[tokio::test(start_paused = true)]
    async fn one_is_due_at_the_beginning_and_after_the_interval() {
        let schedule = schedule();
        assert!(schedule.is_due(Instant::now()));
        drop(begun(&schedule).await);
        assert!(!schedule.is_due(Instant::now()));
        advance(EVERY).await;
        assert!(schedule.is_due(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_refresh_or_at_the_deadline() {
        let schedule = schedule();
        let began = Instant::now();
        drop(begun(&schedule).await);
        schedule.ended(began + LONGEST).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        schedule.refresh(began, pending());
        schedule.ended(began + LONGEST).await;
        assert_eq!(began.elapsed(), LONGEST);
    }
}
