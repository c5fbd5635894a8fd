//! The wait of one caller: for a landing, for as long as its patience lasts.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use super::core::Landing;
use crate::flight::{Follower, Landed};

/// A seat in a flight, and the patience that is left.
#[pin_project]
#[derive(Debug)]
pub(super) struct Waiting {
    follower: Follower<Landing>,
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
pub(super) enum Waited {
    Landed(Landed<Landing>),
    /// The load is slow. From here on it waits for as long as its patience lasts.
    Slow,
    RanOut,
}

impl Waiting {
    /// A wait until some moment, which is interrupted once if the load turns out to be slow.
    pub(super) fn new(
        follower: Follower<Landing>,
        until: Option<Instant>,
        slow: Option<Instant>,
    ) -> Self {
        let slow = slow.filter(|slow| until.is_none_or(|until| *slow < until));
        let sleep = slow.or(until).map(sleep_until);
        Self { follower, sleep, until_slow: slow.is_some(), until, fail_fast: false }
    }

    /// The same, ending as soon as it is known that somebody else loads.
    pub(super) fn failing_fast(follower: Follower<Landing>, slow: Option<Instant>) -> Self {
        Self { fail_fast: true, ..Self::new(follower, None, slow) }
    }

    pub(super) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Waited> {
        let mut this = self.project();
        if let Poll::Ready(landed) = this.follower.poll(cx) {
            return Poll::Ready(Waited::Landed(landed));
        }
        if *this.fail_fast && this.follower.waits_for_a_load_of_others() {
            return Poll::Ready(Waited::RanOut);
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
                return Poll::Ready(Waited::Slow);
            }
            if !this.follower.runs_its_own_load() {
                return Poll::Ready(Waited::RanOut);
            }
            this.sleep.set(None);
        }
    }

    /// From here on it waits for as long as it takes.
    pub(super) fn be_patient(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.sleep.set(None);
        *this.until_slow = false;
        *this.fail_fast = false;
    }

    pub(super) fn follower(&self) -> &Follower<Landing> {
        &self.follower
    }

    pub(super) fn is_opener(&self) -> bool {
        self.follower.is_opener()
    }
}
