//! When the slot table is refreshed: one refresh at a time, with a pause between two.

use std::sync::Mutex;
use std::time::Duration;

use bellwether::adapter::locked;
use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Admits one refresh at a time.
pub(super) struct RefreshSchedule {
    /// When the last refresh begins or has begun, and what is closed when it has ended. Held for a
    /// few instructions, never across an `.await`.
    last: Mutex<Option<(Instant, Shared<oneshot::Receiver<()>>)>>,
    /// How long a refresh may take. After that another one is admitted, because the runtime of the
    /// first may not be polled any more.
    longest: Duration,
    /// The time from one refresh to the next without a reason.
    every: Duration,
}

/// An admitted refresh. It ends when this is dropped.
pub(super) struct AdmittedRefresh {
    /// When it may begin.
    pub(super) begins_at: Instant,
    _running: oneshot::Sender<()>,
}

impl RefreshSchedule {
    pub(super) fn new(longest: Duration, every: Duration) -> Self {
        Self { last: Mutex::default(), longest, every }
    }

    /// Admits a refresh, unless one is under way.
    pub(super) fn admit(&self, now: Instant) -> Option<AdmittedRefresh> {
        let mut last = locked(&self.last);
        let begins_at = match &*last {
            Some((begun, running)) if is_open(running) && now < *begun + self.longest => {
                return None;
            }
            Some((begun, _)) => now.max(*begun + PAUSE),
            None => now,
        };
        let (_running, end) = oneshot::channel();
        let end = end.shared();
        *last = Some((begins_at, end));
        Some(AdmittedRefresh { begins_at, _running })
    }

    /// Whether the last refresh began so long ago that the next one is due without a reason.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        locked(&self.last).as_ref().is_none_or(|(begun, _)| now >= *begun + self.every)
    }

    /// Waits for the end of the refresh that is under way, until the deadline at most.
    pub(super) async fn ended(&self, deadline: Instant) {
        let end = locked(&self.last).as_ref().map(|(_, end)| end.clone());
        if let Some(end) = end {
            // Nothing is sent: it is closed. Being late is no error.
            _ = timeout_at(deadline, end).await;
        }
    }
}

fn is_open(running: &Shared<oneshot::Receiver<()>>) -> bool {
    running.clone().now_or_never().is_none()
}

/// The time between the beginnings of two refreshes. Meanwhile, requests follow redirections.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);
    const EVERY: Duration = Duration::from_secs(60);

    fn schedule() -> RefreshSchedule {
        RefreshSchedule::new(LONGEST, EVERY)
    }

    #[tokio::test(start_paused = true)]
    async fn one_refresh_is_under_way_at_a_time() {
        let schedule = schedule();
        let first = schedule.admit(Instant::now()).expect("none is under way");
        assert!((0..1000).all(|_| schedule.admit(Instant::now()).is_none()));
        drop(first);
        assert!(schedule.admit(Instant::now()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn two_refreshes_begin_a_pause_apart() {
        let schedule = schedule();
        let now = Instant::now();
        assert_eq!(schedule.admit(now).map(|first| first.begins_at), Some(now));
        assert_eq!(schedule.admit(now).map(|second| second.begins_at), Some(now + PAUSE));
        advance(PAUSE * 3).await;
        let later = Instant::now();
        assert_eq!(schedule.admit(later).map(|third| third.begins_at), Some(later));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refresh_that_never_ends_does_not_prevent_the_next_one() {
        let schedule = schedule();
        let stuck = schedule.admit(Instant::now());
        advance(LONGEST).await;
        let next = schedule.admit(Instant::now());
        assert!(next.is_some());
        drop(stuck);
        assert!(schedule.admit(Instant::now()).is_none(), "the next one is still under way");
    }

    #[tokio::test(start_paused = true)]
    async fn one_is_due_at_the_beginning_and_after_the_interval() {
        let schedule = schedule();
        assert!(schedule.is_due(Instant::now()));
        drop(schedule.admit(Instant::now()));
        assert!(!schedule.is_due(Instant::now()));
        advance(EVERY).await;
        assert!(schedule.is_due(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_refresh_or_at_the_deadline() {
        let schedule = schedule();
        let began = Instant::now();
        drop(schedule.admit(began));
        schedule.ended(began + LONGEST).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        let _running = schedule.admit(began);
        schedule.ended(began + LONGEST).await;
        assert_eq!(began.elapsed(), LONGEST);
    }
}
