//! The circuit breaker: stops requests to a server that does not answer, and says so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::server_error::ServerError;
use bellwether::adapter::{LogThrottle, jitter, locked};
use bellwether::store::StoreErrorKind;
use bellwether::{StoreError, warn_throttled};

/// Admits all operations while the server answers. While it does not, admits one probe per pause.
///
/// ```text
///  Closed ──`after` failures in a row──► Open ◄─┐ no probe is answered:
///    ▲                                    │     │ the next one is due a pause later
///    └────── a probe is answered ─────────┴─────┘
/// ```
///
/// Operations that began before it last opened are ignored when they end. So a thousand callers that
/// time out together open the breaker once. Their late failures neither keep it open nor open it again.
pub(super) struct Breaker {
    /// How many failures in a row open it.
    after: u32,
    /// The time from a failure, or from a probe, to the next probe.
    pause: Duration,
    /// While it is closed and no operation has failed since the last success: how often it has opened.
    /// Then operations do not take the lock. [`UNHEALTHY`] otherwise.
    healthy: AtomicU64,
    /// Held for a few instructions, never across an `.await`.
    state: Mutex<BreakerState>,
    outages: Arc<Outages>,
}

#[derive(Debug, Default)]
struct BreakerState {
    /// How often it has opened.
    opened: u64,
    /// How many failures in a row there were while it is closed.
    failures: u32,
    /// While it is open: when the next probe is admitted, and the error of other operations.
    open: Option<(Instant, ServerError)>,
}

/// The outages of all nodes of a client.
#[derive(Debug, Default)]
pub(super) struct Outages {
    pub(super) count: AtomicU64,
    /// Notified when a node answers again after an outage. Wakes all tasks that wait, or the next one.
    pub(super) is_back: Arc<Notify>,
}

/// When an operation began: how often the breaker had opened by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct BreakerTicket(u64);

impl Breaker {
    /// With about this pause: up to a fifth shorter or longer, so that a fleet does not probe in step.
    pub(super) fn new(after: u32, pause: Duration, outages: &Arc<Outages>) -> Self {
        let pause = pause.mul_f64(0.8 + 0.4 * jitter());
        let (healthy, outages) = (AtomicU64::new(0), Arc::clone(outages));
        Self { after, pause, healthy, state: Mutex::default(), outages }
    }

    /// Admits an operation, unless the server is taken to be down and no probe is due.
    pub(super) fn admit(&self) -> Result<BreakerTicket, ServerError> {
        let opened = self.healthy.load(Ordering::Acquire);
        if opened != UNHEALTHY {
            return Ok(BreakerTicket(opened));
        }
        let mut state = locked(&self.state);
        if let Some((probe_at, down)) = &mut state.open {
            let now = Instant::now();
            if now < *probe_at {
                return Err(down.clone());
            }
            *probe_at = now + self.pause;
        }
        Ok(BreakerTicket(state.opened))
    }

    /// Whether the server is taken to be down.
    pub(super) fn is_open(&self) -> bool {
        self.outage().is_some()
    }

    /// The ticket of an operation that begins now, if the server is taken to be down.
    pub(super) fn outage(&self) -> Option<BreakerTicket> {
        let state = (!self.is_healthy()).then(|| locked(&self.state))?;
        state.open.is_some().then_some(BreakerTicket(state.opened))
    }

    fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Acquire) != UNHEALTHY
    }

    /// The server has answered. A refusal is an answer.
    pub(super) fn answered(&self, ticket: BreakerTicket) {
        // A failure in the meantime is more recent than this success.
        if self.is_healthy() {
            return;
        }
        let mut state = locked(&self.state);
        if ticket.0 != state.opened {
            return;
        }
        state.failures = 0;
        let was_open = state.open.take().is_some();
        self.healthy.store(state.opened, Ordering::Release);
        drop(state);
        if was_open {
            self.note_back();
        }
    }

    /// The server is down or slow. Returns whether it is taken to be down from now on.
    pub(super) fn failed(&self, ticket: BreakerTicket, error: &StoreError) -> bool {
        let mut state = locked(&self.state);
        if ticket.0 != state.opened {
            return false;
        }
        self.healthy.store(UNHEALTHY, Ordering::Release);
        let next = Instant::now() + self.pause;
        if let Some((probe_at, _)) = &mut state.open {
            *probe_at = next;
            return false;
        }
        state.failures += 1;
        if state.failures < self.after {
            return false;
        }
        let message = format!("{DOWN}, the last one: {error}");
        let down = ServerError::Other(StoreErrorKind::Down, message.into());
        *state = BreakerState { opened: state.opened + 1, failures: 0, open: Some((next, down)) };
        drop(state);
        self.outages.count.fetch_add(1, Ordering::Relaxed);
        warn_throttled!(target: "bellwether::store", last = %error, "redis is taken to be down");
        true
    }

    fn note_back(&self) {
        self.outages.is_back.notify_waiters();
        // For a task that is about to wait.
        self.outages.is_back.notify_one();
        static LOG: LogThrottle = LogThrottle::once_per(Duration::from_secs(10));
        if let Some(held_back) = LOG.admit() {
            tracing::info!(target: "bellwether::store", held_back, "redis answers again");
        }
    }
}

const UNHEALTHY: u64 = u64::MAX;

const DOWN: &str = "it is taken to be down, and was not asked: too many operations in a row failed";

#[cfg(test)]
mod tests {
    mod model;

    use tokio::time::advance;

    use super::*;

    const TICK: Duration = Duration::from_millis(500);
    const PAUSE: Duration = TICK.saturating_mul(2);
    const AFTER: u32 = 2;

    fn breaker() -> Breaker {
        Breaker { pause: PAUSE, ..Breaker::new(AFTER, PAUSE, &Arc::default()) }
    }

    /// Admits an operation and fails it. Returns whether that has opened the breaker.
    fn fail(breaker: &Breaker) -> bool {
        fail_one(breaker, breaker.admit().expect("it is closed"))
    }

    fn fail_one(breaker: &Breaker, ticket: BreakerTicket) -> bool {
        breaker.failed(ticket, &StoreError::new(StoreErrorKind::TimedOut, "late"))
    }

    fn opened(breaker: &Breaker) -> u64 {
        breaker.outages.count.load(Ordering::Relaxed)
    }

    fn open() -> Breaker {
        let breaker = breaker();
        assert_eq!([fail(&breaker), fail(&breaker)], [false, true]);
        breaker
    }

    #[test]
    fn the_clients_of_a_fleet_probe_at_different_intervals() {
        let wanted = Duration::from_millis(250);
        let pauses = (0..100).map(|_| Breaker::new(AFTER, wanted, &Arc::default()).pause);
        let pauses: Vec<_> = pauses.collect();
        let range = [200, 300].map(Duration::from_millis);
        assert!(pauses.iter().all(|pause| (range[0]..=range[1]).contains(pause)));
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }

    #[tokio::test(start_paused = true)]
    async fn the_set_number_of_failures_in_a_row_opens_it() {
        let breaker = open();
        assert!(breaker.is_open() && breaker.admit().is_err());
        assert_eq!(opened(&breaker), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_between_them_starts_the_count_again() {
        let breaker = breaker();
        for _ in 0..10 {
            assert!(!fail(&breaker));
            breaker.answered(breaker.admit().expect("it is closed"));
        }
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_operation_counts_neither_way() {
        let breaker = breaker();
        fail(&breaker);
        _ = breaker.admit();
        assert!(!breaker.is_open());
        assert!(fail(&breaker));
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_is_admitted_after_the_pause_and_closes_it() {
        let breaker = open();
        advance(PAUSE).await;
        let probe = breaker.admit().expect("it is due");
        assert!(breaker.admit().is_err());
        breaker.answered(probe);
        assert!(!breaker.is_open() && breaker.admit().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_or_is_dropped_makes_another_one_due_a_pause_later() {
        for is_dropped in [false, true] {
            let breaker = open();
            advance(PAUSE).await;
            let probe = breaker.admit().expect("it is due");
            assert!(is_dropped || !fail_one(&breaker, probe));
            advance(PAUSE - TICK).await;
            assert!(breaker.admit().is_err());
            advance(TICK).await;
            assert!(breaker.admit().is_ok());
            assert_eq!(opened(&breaker), 1, "it was open all the time");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_that_fail_together_open_it_once_and_are_ignored_later() {
        let breaker = breaker();
        let together: Vec<_> = (0..1000).filter_map(|_| breaker.admit().ok()).collect();
        let mut late = together.into_iter();
        let mut fail_next = |count| {
            let failed = late.by_ref().take(count).map(|ticket| fail_one(&breaker, ticket));
            failed.filter(|opened| *opened).count()
        };
        assert_eq!(fail_next(500), 1);
        advance(PAUSE).await;
        breaker.answered(breaker.admit().expect("a probe is due"));
        assert_eq!(fail_next(500), 0);
        assert!(!breaker.is_open());
        assert_eq!(opened(&breaker), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_does_not_close_it() {
        let breaker = breaker();
        let late = breaker.admit().expect("it is closed");
        assert_eq!([fail(&breaker), fail(&breaker)], [false, true]);
        breaker.answered(late);
        assert!(breaker.is_open());
    }
}
