//! `LockStatus`: what was granted, and whether it still holds.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bellwether::Key;
use bellwether::adapter::locked;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Claim, LockError, Session};

/// The status of a lock that is held: which key it is, its fence, and whether it was lost.
///
/// A cheap handle, which neither keeps nor releases the lock.
#[derive(Clone)]
pub struct LockStatus(Arc<LockHold>);

/// What was granted, and whether it still holds. The guard, its statuses and the renewal task share
/// it.
struct LockHold {
    claim: Claim,
    fence: Option<u64>,
    session: Option<Session>,
    /// Held to read or write it, never across an `.await`.
    state: Mutex<HoldState>,
    /// Notified when the hold is lost.
    changed: Notify,
}

/// Whether a hold still holds. A loss and a release are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldState {
    /// The hold ends at this instant unless it is renewed; or, without one, with its session.
    Held { until: Option<Instant> },
    /// The hold has ended, or may have. With the `max_hold` that ended it, if it did.
    Lost { max_hold: Option<Duration> },
    /// The holder gave it up.
    Released,
}

tokio::task_local! {
    static CURRENT: LockStatus;
}

impl LockStatus {
    pub(super) fn new(
        claim: Claim,
        fence: Option<u64>,
        until: Option<Instant>,
        session: Option<Session>,
    ) -> Self {
        let state = Mutex::new(HoldState::Held { until });
        Self(Arc::new(LockHold { claim, fence, session, state, changed: Notify::new() }))
    }

    /// The key that is held.
    pub fn key(&self) -> &Key {
        self.0.claim.key()
    }

    /// The [fence](super::LockGuard::fence), if the lock is [`Fenced`](super::Fenced).
    pub fn fence(&self) -> Option<u64> {
        self.0.fence
    }

    /// Whether the lock has been lost, as far as this process knows. A release is no loss.
    ///
    /// The clock decides, so this is right even if no other task has run meanwhile. A lease counts
    /// from when the last answered renewal was sent, and a session from when its last answered
    /// request was sent. While a machine is suspended its clock stands still; then the next renewal
    /// notices the loss.
    pub fn is_lost(&self) -> bool {
        match self.state() {
            // The clock decides: the renewal task may not have run since the end.
            HoldState::Held { until } => {
                until.is_some_and(|until| until <= Instant::now())
                    || self.0.session.as_ref().is_some_and(Session::has_ended)
            }
            HoldState::Lost { .. } => true,
            HoldState::Released => false,
        }
    }

    /// Waits until the lock is lost. If it is released instead, this never returns.
    ///
    /// # Cancel safety
    /// It can be dropped and called again: a loss in between is noticed.
    pub async fn lost(&self) {
        let mut changed = pin!(self.0.changed.notified());
        // Asks the clock whenever it is polled. So work that is polled together with this stops at
        // its next await, even if the renewal task has not run.
        poll_fn(|context| {
            // Polled before the check, so that a loss after the check is not missed.
            let is_told = changed.as_mut().poll(context).is_ready();
            if is_told || self.is_lost() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// The status of the lock under which this code runs: that of the innermost
    /// [`Locks::run`](super::Locks::run) or `#[locked]`. `None` outside of them, and in a task that was
    /// spawned inside.
    ///
    /// Send its [fence](LockStatus::fence) along with each write.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs a future in which this is the [current](Self::current) status.
    pub(super) async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    pub(super) fn claim(&self) -> &Claim {
        &self.0.claim
    }

    pub(super) fn session(&self) -> Option<&Session> {
        self.0.session.as_ref()
    }

    /// That it was lost, and why if that is known.
    pub(super) fn lost_error(&self) -> LockError {
        match self.state() {
            HoldState::Lost { max_hold } => LockError::lost(self.key(), max_hold),
            HoldState::Held { .. } | HoldState::Released => LockError::lost(self.key(), None),
        }
    }

    pub(super) fn state(&self) -> HoldState {
        *locked(&self.0.state)
    }

    /// When its lease ends, unless it is renewed.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.state() {
            HoldState::Held { until } => until,
            HoldState::Lost { .. } | HoldState::Released => None,
        }
    }

    /// Changes the state, unless a loss or a release came before.
    pub(super) fn set(&self, next: HoldState) {
        let mut state = locked(&self.0.state);
        if !matches!(*state, HoldState::Held { .. }) {
            return;
        }
        *state = next;
        drop(state);
        if matches!(next, HoldState::Lost { .. }) {
            self.0.changed.notify_waiters();
        }
    }
}

bellwether::debug_fields! { LockStatus => |it| key = it.key(), fence = it.fence(), is_lost = it.is_lost() }
