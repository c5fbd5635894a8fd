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
    /// None: it waits for as long as it takes.
    #[pin]
    patience: Option<Sleep>,
    /// It does not wait for a load of others at all.
    fail_fast: bool,
}

/// What a wait came to.
#[derive(Debug)]
pub(super) enum Waited {
    Landed(Landed<Landing>),
    RanOut,
}

impl Waiting {
    pub(super) fn new(follower: Follower<Landing>, until: Option<Instant>) -> Self {
        Self { follower, patience: until.map(sleep_until), fail_fast: false }
    }

    pub(super) fn failing_fast(follower: Follower<Landing>) -> Self {
        Self { follower, patience: None, fail_fast: true }
    }

    pub(super) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Waited> {
        let mut this = self.project();
        if let Poll::Ready(landed) = this.follower.poll(cx) {
            return Poll::Ready(Waited::Landed(landed));
        }
        if *this.fail_fast && this.follower.waits_for_a_load_of_others() {
            return Poll::Ready(Waited::RanOut);
        }
        let Some(sleep) = this.patience.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        if sleep.poll(cx).is_pending() {
            return Poll::Pending;
        }
        if this.follower.runs_its_own_load() {
            this.patience.set(None);
            return Poll::Pending;
        }
        Poll::Ready(Waited::RanOut)
    }

    /// From here on it waits for as long as it takes.
    pub(super) fn be_patient(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.patience.set(None);
        *this.fail_fast = false;
    }

    pub(super) fn follower(&self) -> &Follower<Landing> {
        &self.follower
    }

    pub(super) fn is_opener(&self) -> bool {
        self.follower.is_opener()
    }
}
