//! The circuit breaker: stops requests to a server that does not answer.

#[cfg(test)]
mod model;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Admits all operations while the server answers. While it does not, admits one probe per pause.
///
/// ```text
///  Closed ──`after` failures in a row──► Open ◄─┐ the probe fails, or is dropped:
///    ▲                                    │     │ the next one is due a pause later
///    └────── the probe is answered ───────┴─────┘
/// ```
///
/// Operations that began before the last change of the state are ignored when they end, except
/// probes. So a thousand callers that time out together open the breaker once. Their late failures
/// neither keep it open nor open it again.
#[derive(Debug)]
pub(super) struct Breaker {
    /// Whether it is closed and no operation has failed since the last success. Then operations do
    /// not take the lock.
    is_healthy: AtomicBool,
    /// How often it has opened: a copy of [`Machine::opened`] that is read without the lock.
    opened: AtomicU64,
    /// Held for a few instructions, never across an `.await`.
    machine: Mutex<Machine>,
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

/// A change of the state by the end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    Closed,
    Opened,
}

impl Breaker {
    pub(super) fn new(rules: BreakerRules) -> Self {
        let machine =
            Mutex::new(Machine { rules, opened: 0, state: State::Closed { failures: 0 } });
        Self { is_healthy: AtomicBool::new(true), opened: AtomicU64::new(0), machine }
    }

    /// Admits an operation. None while the breaker is open, unless a probe is due.
    pub(super) fn admit(&self) -> Option<Admission<'_>> {
        let ticket = if self.is_healthy.load(Ordering::Acquire) {
            Ticket { opened: self.opened(), is_probe: false }
        } else {
            self.machine().admit(Instant::now())?
        };
        Some(Admission { breaker: self, ticket })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.is_healthy.load(Ordering::Acquire)
            && matches!(self.machine().state, State::Open { .. })
    }

    /// How often it has opened.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = self.machine();
        let changed = change(&mut machine);
        self.opened.store(machine.opened, Ordering::Relaxed);
        let is_healthy = matches!(machine.state, State::Closed { failures: 0 });
        self.is_healthy.store(is_healthy, Ordering::Release);
        changed
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An admitted operation. Dropping it counts as neither a success nor a failure, but ends a probe.
#[derive(Debug)]
#[must_use = "an operation that is not ended counts as neither a success nor a failure"]
pub(super) struct Admission<'a> {
    breaker: &'a Breaker,
    ticket: Ticket,
}

impl Admission<'_> {
    /// The server has answered.
    pub(super) fn answered(mut self) -> Option<Transition> {
        let ticket = self.ticket;
        self.ticket.is_probe = false;
        // A failure in the meantime is more recent than this success.
        if !ticket.is_probe && self.breaker.is_healthy.load(Ordering::Acquire) {
            return None;
        }
        self.breaker.change(|machine| machine.answered(ticket))
    }

    /// The server is down or slow.
    pub(super) fn failed(mut self) -> Option<Transition> {
        let ticket = self.ticket;
        self.ticket.is_probe = false;
        self.breaker.change(|machine| machine.failed(ticket, Instant::now()))
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

    fn answered(&mut self, ticket: Ticket) -> Option<Transition> {
        let was_open = matches!(self.state, State::Open { .. });
        if ticket.opened != self.opened || was_open && !ticket.is_probe {
            return None;
        }
        self.state = State::Closed { failures: 0 };
        was_open.then_some(Transition::Closed)
    }

    fn failed(&mut self, ticket: Ticket, now: Instant) -> Option<Transition> {
        if ticket.opened != self.opened {
            return None;
        }
        let BreakerRules { after, pause, .. } = self.rules;
        match &mut self.state {
            State::Open { probe_at } => {
                if ticket.is_probe {
                    *probe_at = now + pause;
                }
                None
            }
            // Another probe has closed the breaker before. This one is outdated.
            State::Closed { .. } if ticket.is_probe => None,
            State::Closed { failures } => {
                *failures += 1;
                if *failures < after {
                    return None;
                }
                self.opened += 1;
                self.state = State::Open { probe_at: now + pause };
                Some(Transition::Opened)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const TICK: Duration = Duration::from_millis(500);
    const RULES: BreakerRules =
        BreakerRules { after: 2, pause: TICK.saturating_mul(2), longest: TICK.saturating_mul(3) };

    fn breaker() -> Breaker {
        Breaker::new(RULES)
    }

    /// Admits an operation and fails it, if it is admitted.
    fn fail(breaker: &Breaker) -> Option<Transition> {
        breaker.admit().and_then(Admission::failed)
    }

    fn open() -> Breaker {
        let breaker = breaker();
        assert_eq!([fail(&breaker), fail(&breaker)], [None, Some(Transition::Opened)]);
        breaker
    }

    #[tokio::test(start_paused = true)]
    async fn the_set_number_of_failures_in_a_row_opens_it() {
        let breaker = open();
        assert!(breaker.is_open() && breaker.admit().is_none());
        assert_eq!(breaker.opened(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_between_them_starts_the_count_again() {
        let breaker = breaker();
        for _ in 0..10 {
            assert_eq!(fail(&breaker), None);
            assert_eq!(breaker.admit().and_then(Admission::answered), None);
        }
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_operation_counts_neither_way() {
        let breaker = breaker();
        fail(&breaker);
        drop(breaker.admit());
        assert!(!breaker.is_open());
        assert_eq!(fail(&breaker), Some(Transition::Opened));
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_is_admitted_after_the_pause_and_closes_it() {
        let breaker = open();
        advance(RULES.pause).await;
        let probe = breaker.admit().expect("it is due");
        assert!(breaker.admit().is_none());
        assert_eq!(probe.answered(), Some(Transition::Closed));
        assert!(!breaker.is_open() && breaker.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_or_is_dropped_makes_another_one_due_a_pause_later() {
        for end in [|probe: Admission<'_>| _ = probe.failed(), |probe: Admission<'_>| drop(probe)] {
            let breaker = open();
            advance(RULES.pause).await;
            end(breaker.admit().expect("it is due"));
            advance(RULES.pause - TICK).await;
            assert!(breaker.admit().is_none());
            advance(TICK).await;
            assert!(breaker.admit().is_some());
            assert_eq!(breaker.opened(), 1, "it was open all the time");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_never_ends_does_not_keep_it_open() {
        let breaker = open();
        advance(RULES.pause).await;
        let _stuck = breaker.admit().expect("it is due");
        advance(RULES.longest).await;
        let probe = breaker.admit().expect("another one is due");
        assert_eq!(probe.answered(), Some(Transition::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_that_fail_together_open_it_once_and_are_ignored_later() {
        let breaker = breaker();
        let together: Vec<_> = (0..1000).filter_map(|_| breaker.admit()).collect();
        let mut late = together.into_iter();
        let transitions: Vec<_> = late.by_ref().take(500).filter_map(Admission::failed).collect();
        assert_eq!(transitions, [Transition::Opened]);
        advance(RULES.pause).await;
        breaker.admit().and_then(Admission::answered);
        assert_eq!(late.filter_map(Admission::failed).count(), 0);
        assert!(!breaker.is_open());
        assert_eq!(breaker.opened(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_does_not_close_it() {
        let breaker = breaker();
        let late = breaker.admit().expect("it is closed");
        assert_eq!([fail(&breaker), fail(&breaker)], [None, Some(Transition::Opened)]);
        assert_eq!(late.answered(), None);
        assert!(breaker.is_open());
    }
}
