//! When the slot table is refreshed: one refresh at a time, with a pause between two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use bellwether::adapter::millis;

/// Admits one refresh at a time.
#[derive(Debug)]
pub(super) struct RefreshSchedule {
    /// Held for a few instructions, never across an `.await`.
    state: Mutex<ScheduleState>,
    /// How many refreshes have ended.
    ended: watch::Sender<u64>,
    /// How long a refresh may take. After that another one is admitted, because the runtime of the
    /// first may not be polled any more.
    longest: Duration,
    /// The time from one refresh to the next without a reason.
    every: Duration,
    /// When that one is due, in ms since `born`. Requests read it without the lock.
    due_at: AtomicU64,
    born: Instant,
}

#[derive(Debug, Default)]
struct ScheduleState {
    /// The number of the refresh that is under way, and when it begins or has begun.
    under_way: Option<(u64, Instant)>,
    /// How many were admitted.
    admitted: u64,
    /// When the last one began.
    last_begun: Option<Instant>,
}

/// An admitted refresh. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct AdmittedRefresh {
    schedule: Arc<RefreshSchedule>,
    number: u64,
    /// When it may begin.
    pub(super) begins_at: Instant,
}

impl RefreshSchedule {
    pub(super) fn new(longest: Duration, every: Duration) -> Self {
        let (ended, _) = watch::channel(0);
        let state = Mutex::default();
        Self { state, ended, longest, every, due_at: AtomicU64::new(0), born: Instant::now() }
    }

    /// Admits a refresh, unless one is under way.
    pub(super) fn admit(self: &Arc<Self>, now: Instant) -> Option<AdmittedRefresh> {
        let mut state = self.state();
        if let Some((_, begins_at)) = state.under_way
            && now < begins_at + self.longest
        {
            return None;
        }
        let begins_at = state.last_begun.map_or(now, |last| now.max(last + PAUSE));
        state.admitted += 1;
        let number = state.admitted;
        state.under_way = Some((number, begins_at));
        state.last_begun = Some(begins_at);
        drop(state);
        self.due_at.store(self.since_birth(begins_at + self.every), Ordering::Relaxed);
        Some(AdmittedRefresh { schedule: Arc::clone(self), number, begins_at })
    }

    /// Whether the last refresh began so long ago that the next one is due without a reason.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.since_birth(now) >= self.due_at.load(Ordering::Relaxed)
    }

    /// Begins to wait for the end of a refresh.
    pub(super) fn next_end(&self) -> RefreshEnd {
        RefreshEnd(self.ended.subscribe())
    }

    fn since_birth(&self, at: Instant) -> u64 {
        millis(at.saturating_duration_since(self.born))
    }

    fn state(&self) -> MutexGuard<'_, ScheduleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AdmittedRefresh {
    fn drop(&mut self) {
        let mut state = self.schedule.state();
        if state.under_way.is_some_and(|(number, _)| number == self.number) {
            state.under_way = None;
        }
        drop(state);
        self.schedule.ended.send_modify(|ended| *ended += 1);
    }
}

/// A wait for the end of a refresh.
#[derive(Debug)]
pub(super) struct RefreshEnd(watch::Receiver<u64>);

impl RefreshEnd {
    /// Waits for it, until the deadline at most.
    pub(super) async fn wait(mut self, deadline: Instant) {
        // The sender lives as long as the client, and being late is no error.
        _ = timeout_at(deadline, self.0.changed()).await;
    }
}

/// The time between the beginnings of two refreshes. Meanwhile, requests follow redirections.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);
    const EVERY: Duration = Duration::from_secs(60);

    fn schedule() -> Arc<RefreshSchedule> {
        Arc::new(RefreshSchedule::new(LONGEST, EVERY))
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
        let end = schedule.next_end();
        drop(schedule.admit(Instant::now()));
        let began = Instant::now();
        end.wait(began + LONGEST).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        schedule.next_end().wait(began + LONGEST).await;
        assert_eq!(began.elapsed(), LONGEST);
    }
}
