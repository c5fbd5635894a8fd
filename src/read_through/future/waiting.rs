//! The wait of one caller: for an outcome, for as long as its patience lasts.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::flight::{Completion, Waiter};
use crate::read_through::outcome::Outcome;

/// A place in a flight, and the patience that is left.
#[pin_project]
#[derive(Debug)]
pub(super) struct Waiting {
    waiter: Waiter<Outcome>,
    /// Until the load is slow, or else until the patience is over. None: as long as it takes.
    #[pin]
    sleep: Option<Sleep>,
    /// It is to be told when the load is slow, and was not yet.
    until_slow: bool,
    /// When the patience is over.
    until: Option<Instant>,
    /// It does not wait for a load of others at all.
    fail_fast: bool,
}

/// What a wait came to.
#[derive(Debug)]
pub(super) enum WaitEnd {
    Completed(Completion<Outcome>),
    /// The load is slow. From here on it waits for as long as its patience lasts.
    Slow,
    RanOut,
}

impl Waiting {
    /// A wait until some moment, which is interrupted once if the load turns out to be slow.
    pub(super) fn new(
        waiter: Waiter<Outcome>,
        until: Option<Instant>,
        slow: Option<Instant>,
    ) -> Self {
        let slow = slow.filter(|slow| until.is_none_or(|until| *slow < until));
        let sleep = slow.or(until).map(sleep_until);
        Self { waiter, sleep, until_slow: slow.is_some(), until, fail_fast: false }
    }

    /// The same, ending as soon as it is known that another caller loads.
    pub(super) fn failing_fast(waiter: Waiter<Outcome>, slow: Option<Instant>) -> Self {
        Self { fail_fast: true, ..Self::new(waiter, None, slow) }
    }

    pub(super) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WaitEnd> {
        let mut this = self.project();
        if let Poll::Ready(completion) = this.waiter.poll(cx) {
            return Poll::Ready(WaitEnd::Completed(completion));
        }
        if *this.fail_fast && this.waiter.waits_for_a_load_of_others() {
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

    /// From here on it waits for as long as it takes.
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
