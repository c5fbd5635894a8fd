//! The circuit breaker: stops requests to a server that does not answer, and says so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use bellwether::adapter::{LogThrottle, locked};
use bellwether::store::StoreErrorKind;
use bellwether::{StoreError, warn_throttled};

/// Admits all operations while the server answers. While it does not, admits one probe per pause.
///
/// ```text
///  Closed ──`after` failures in a row──► Open ◄─┐ the probe fails, or is dropped:
///    ▲                                    │     │ the next one is due a pause later
///    └────── the probe is answered ───────┴─────┘
/// ```
///
/// A probe that was dropped may go on as another operation, and is answered or fails by that.
///
/// Operations that began before the last change of the state are ignored when they end, except
/// probes. So a thousand callers that time out together open the breaker once. Their late failures
/// neither keep it open nor open it again.
pub(super) struct Breaker {
    /// While it is closed and no operation has failed since the last success: how often it has opened.
    /// Then operations do not take the lock. [`UNHEALTHY`] otherwise.
    healthy: AtomicU64,
    /// Held for a few instructions, never across an `.await`.
    machine: Mutex<Machine>,
    /// The error of operations that are not admitted. Never held across an `.await`.
    down: Mutex<StoreError>,
    outages: Arc<Outages>,
}

/// The outages of all nodes of a client.
#[derive(Debug, Default)]
pub(super) struct Outages {
    pub(super) count: AtomicU64,
    /// Notified when a node answers again after an outage. Wakes all tasks that wait, or the next one.
    pub(super) is_back: Arc<Notify>,
}

/// The settings of a breaker.
#[derive(Clone, Copy, Debug)]
pub(super) struct BreakerRules {
    /// How many failures in a row open it.
    pub(super) after: u32,
    /// The time from a failure to the next probe.
    pub(super) pause: Duration,
    /// How long a probe may take before another one is admitted. No operation takes longer, but a
    /// caller can hold a future that it does not poll.
    pub(super) longest: Duration,
}

impl Breaker {
    pub(super) fn new(rules: BreakerRules, outages: Arc<Outages>) -> Self {
        let machine = Machine { rules, opened: 0, state: State::Closed { failures: 0 } };
        Self {
            healthy: AtomicU64::new(0),
            machine: Mutex::new(machine),
            down: Mutex::new(StoreError::new(StoreErrorKind::Down, DOWN)),
            outages,
        }
    }

    /// Admits an operation, unless the server is taken to be down and no probe is due.
    pub(super) fn admit(&self) -> Result<Admission<'_>, StoreError> {
        let ticket = match self.healthy.load(Ordering::Acquire) {
            UNHEALTHY => locked(&self.machine).admit(Instant::now()),
            opened => Some(Ticket { opened, is_probe: false }),
        };
        let ticket = ticket.ok_or_else(|| locked(&self.down).clone())?;
        Ok(Admission { breaker: self, ticket })
    }

    /// Goes on with a probe that was dropped.
    pub(super) fn resume(&self, ProbeTicket(ticket): ProbeTicket) -> Admission<'_> {
        Admission { breaker: self, ticket }
    }

    /// Whether the server is taken to be down.
    pub(super) fn is_open(&self) -> bool {
        !self.is_healthy() && matches!(locked(&self.machine).state, State::Open { .. })
    }

    fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Acquire) != UNHEALTHY
    }

    fn change<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = locked(&self.machine);
        let changed = change(&mut machine);
        let is_healthy = matches!(machine.state, State::Closed { failures: 0 });
        let healthy = if is_healthy { machine.opened } else { UNHEALTHY };
        self.healthy.store(healthy, Ordering::Release);
        changed
    }

    fn note_down(&self, last: &StoreError) {
        self.outages.count.fetch_add(1, Ordering::Relaxed);
        let message = format!("{DOWN}, the last one: {last}");
        *locked(&self.down) =
            StoreError::new(StoreErrorKind::Down, message).with_source(last.clone());
        warn_throttled!(target: "bellwether::store", %last, "redis is taken to be down");
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

/// An operation that finds out whether a server answers that is taken to be down.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeTicket(Ticket);

/// An admitted operation. Dropping it counts as neither a success nor a failure, but ends a probe.
#[must_use = "an operation that is not ended counts as neither a success nor a failure"]
pub(super) struct Admission<'a> {
    breaker: &'a Breaker,
    ticket: Ticket,
}

impl Admission<'_> {
    /// The probe that it is, if it is one.
    pub(super) fn probe(&self) -> Option<ProbeTicket> {
        self.ticket.is_probe.then_some(ProbeTicket(self.ticket))
    }

    /// The server has answered. A refusal is an answer.
    pub(super) fn answered(mut self) {
        let ticket = self.ticket;
        self.ticket.is_probe = false;
        // A failure in the meantime is more recent than this success.
        let is_news = ticket.is_probe || !self.breaker.is_healthy();
        if is_news && self.breaker.change(|machine| machine.answered(ticket)) {
            self.breaker.note_back();
        }
    }

    /// The server is down or slow. Returns whether it is taken to be down from now on.
    pub(super) fn failed(mut self, error: &StoreError) -> bool {
        let ticket = self.ticket;
        self.ticket.is_probe = false;
        let opened = self.breaker.change(|machine| machine.failed(ticket, Instant::now()));
        if opened {
            self.breaker.note_down(error);
        }
        opened
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.ticket.is_probe {
            let ticket = self.ticket;
            self.breaker.change(|machine| machine.failed(ticket, Instant::now()));
        }
    }
}

/// The breaker without its clock and its lock.
#[derive(Clone, Copy, Debug)]
struct Machine {
    rules: BreakerRules,
    /// How often it has opened.
    opened: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All operations are admitted.
    Closed { failures: u32 },
    /// No operation is admitted, except a probe when it is due.
    Open { probe_at: Instant },
}

/// When an operation began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    /// How often the breaker had opened by then.
    opened: u64,
    is_probe: bool,
}

impl Machine {
    fn admit(&mut self, now: Instant) -> Option<Ticket> {
        let is_probe = match &mut self.state {
            State::Closed { .. } => false,
            State::Open { probe_at } if *probe_at <= now => {
                *probe_at = now + self.rules.longest.max(self.rules.pause);
                true
            }
            State::Open { .. } => return None,
        };
        Some(Ticket { opened: self.opened, is_probe })
    }

    /// Returns whether that has closed it.
    fn answered(&mut self, ticket: Ticket) -> bool {
        let was_open = matches!(self.state, State::Open { .. });
        if ticket.opened != self.opened || was_open && !ticket.is_probe {
            return false;
        }
        self.state = State::Closed { failures: 0 };
        was_open
    }

    /// Returns whether that has opened it.
    fn failed(&mut self, ticket: Ticket, now: Instant) -> bool {
        if ticket.opened != self.opened {
            return false;
        }
        let BreakerRules { after, pause, .. } = self.rules;
        match &mut self.state {
            State::Open { probe_at } => {
                if ticket.is_probe {
                    *probe_at = now + pause;
                }
                false
            }
            // Another probe has closed the breaker before. This one is outdated.
            State::Closed { .. } if ticket.is_probe => false,
            State::Closed { failures } => {
                *failures += 1;
                if *failures < after {
                    return false;
                }
                self.opened += 1;
                self.state = State::Open { probe_at: now + pause };
                true
            }
        }
    }
}

const UNHEALTHY: u64 = u64::MAX;

const DOWN: &str =
    "redis is taken to be down, and was not asked: too many operations in a row failed";

#[cfg(test)]
mod tests {
    mod model;

    use tokio::time::advance;

    use super::*;

    const TICK: Duration = Duration::from_millis(500);
    const RULES: BreakerRules =
        BreakerRules { after: 2, pause: TICK.saturating_mul(2), longest: TICK.saturating_mul(3) };

    fn breaker() -> Breaker {
        Breaker::new(RULES, Arc::default())
    }

    /// Admits an operation and fails it. Returns whether that has opened the breaker.
    fn fail(breaker: &Breaker) -> bool {
        fail_one(breaker.admit().expect("it is closed"))
    }

    fn fail_one(admission: Admission<'_>) -> bool {
        admission.failed(&StoreError::new(StoreErrorKind::TimedOut, "late"))
    }

    fn opened(breaker: &Breaker) -> u64 {
        breaker.outages.count.load(Ordering::Relaxed)
    }

    fn open() -> Breaker {
        let breaker = breaker();
        assert_eq!([fail(&breaker), fail(&breaker)], [false, true]);
        breaker
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
            breaker.admit().expect("it is closed").answered();
        }
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_operation_counts_neither_way() {
        let breaker = breaker();
        fail(&breaker);
        drop(breaker.admit());
        assert!(!breaker.is_open());
        assert!(fail(&breaker));
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_is_admitted_after_the_pause_and_closes_it() {
        let breaker = open();
        advance(RULES.pause).await;
        let probe = breaker.admit().expect("it is due");
        assert!(breaker.admit().is_err());
        probe.answered();
        assert!(!breaker.is_open() && breaker.admit().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_or_is_dropped_makes_another_one_due_a_pause_later() {
        for end in [|probe: Admission<'_>| _ = fail_one(probe), |probe: Admission<'_>| drop(probe)]
        {
            let breaker = open();
            advance(RULES.pause).await;
            end(breaker.admit().expect("it is due"));
            advance(RULES.pause - TICK).await;
            assert!(breaker.admit().is_err());
            advance(TICK).await;
            assert!(breaker.admit().is_ok());
            assert_eq!(opened(&breaker), 1, "it was open all the time");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_was_dropped_goes_on_and_closes_it() {
        let breaker = open();
        advance(RULES.pause).await;
        let dropped = breaker.admit().expect("it is due");
        let probe = dropped.probe().expect("it is one");
        drop(dropped);
        breaker.resume(probe).answered();
        assert!(!breaker.is_open());
        assert!(breaker.admit().expect("it is closed").probe().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_never_ends_does_not_keep_it_open() {
        let breaker = open();
        advance(RULES.pause).await;
        let _stuck = breaker.admit().expect("it is due");
        advance(RULES.longest).await;
        let probe = breaker.admit().expect("another one is due");
        probe.answered();
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_that_fail_together_open_it_once_and_are_ignored_later() {
        let breaker = breaker();
        let together: Vec<_> = (0..1000).filter_map(|_| breaker.admit().ok()).collect();
        let mut late = together.into_iter();
        assert_eq!(late.by_ref().take(500).map(fail_one).filter(|opened| *opened).count(), 1);
        advance(RULES.pause).await;
        breaker.admit().expect("a probe is due").answered();
        assert!(!late.any(fail_one));
        assert!(!breaker.is_open());
        assert_eq!(opened(&breaker), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_does_not_close_it() {
        let breaker = breaker();
        let late = breaker.admit().expect("it is closed");
        assert_eq!([fail(&breaker), fail(&breaker)], [false, true]);
        late.answered();
        assert!(breaker.is_open());
    }
}
