//! A wait for the outcome of a flight, with a bound on its time.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::flight::{Completion, Waiter};
use crate::read_through::outcome::Outcome;

/// A waiter in a flight, and when its wait runs out.
#[pin_project]
#[derive(Debug)]
pub(super) struct BoundedWait {
    waiter: Waiter<Outcome>,
    /// Until the load counts as slow, and then until the wait runs out. `None`: without a bound.
    #[pin]
    sleep: Option<Sleep>,
    /// `sleep` is the one until the load counts as slow.
    until_slow: bool,
    /// When the wait runs out.
    until: Option<Instant>,
    /// It does not wait for the load of another caller.
    fail_fast: bool,
}

/// How a wait ended, or was interrupted.
#[derive(Debug)]
pub(super) enum WaitEnd {
    Completed(Completion<Outcome>),
    /// The load is slow. The next poll goes on until the wait runs out.
    Slow,
    RanOut,
}

impl BoundedWait {
    /// A wait that runs out at `until`, and is interrupted once at `slow`.
    pub(super) fn new(
        waiter: Waiter<Outcome>,
        until: Option<Instant>,
        slow: Option<Instant>,
    ) -> Self {
        let slow = slow.filter(|slow| until.is_none_or(|until| *slow < until));
        let sleep = slow.or(until).map(sleep_until);
        Self { waiter, sleep, until_slow: slow.is_some(), until, fail_fast: false }
    }

    /// A wait that runs out as soon as it would be for the load of another caller.
    pub(super) fn failing_fast(waiter: Waiter<Outcome>, slow: Option<Instant>) -> Self {
        Self { fail_fast: true, ..Self::new(waiter, None, slow) }
    }

    pub(super) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WaitEnd> {
        let mut this = self.project();
        if let Poll::Ready(completion) = this.waiter.poll(cx) {
            return Poll::Ready(WaitEnd::Completed(completion));
        }
        if *this.fail_fast && this.waiter.waits_for_other_load() {
            return Poll::Ready(WaitEnd::RanOut);
        }
        loop {
            let Some(sleep) = this.sleep.as_mut().as_pin_mut() else {
                return Poll::Pending;
            };
            if sleep.poll(cx).is_pending() {
                return Poll::Pending;
            }
            if std::mem::take(this.until_slow) {
                this.sleep.set(this.until.map(sleep_until));
                return Poll::Ready(WaitEnd::Slow);
            }
            if !this.waiter.runs_its_own_load() {
                return Poll::Ready(WaitEnd::RanOut);
            }
            this.sleep.set(None);
        }
    }

    /// Goes on without a bound.
    pub(super) fn keep_waiting(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.sleep.set(None);
        *this.until_slow = false;
        *this.fail_fast = false;
    }

    pub(super) fn waiter(&self) -> &Waiter<Outcome> {
        &self.waiter
    }
}
