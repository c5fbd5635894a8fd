//! What was granted, and whether it still holds.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bellwether::Key;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Claim, Session};

/// What was granted, and whether it still holds. The guard, its statuses and the renewal task share
/// it.
pub(super) struct LockHold {
    claim: Claim,
    pub(super) fence: Option<u64>,
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
    /// The hold has ended, or may have.
    Lost,
    /// The holder gave it up.
    Released,
}

impl LockHold {
    pub(super) fn new(
        claim: Claim,
        fence: Option<u64>,
        state: HoldState,
        session: Option<Session>,
    ) -> Self {
        Self { claim, fence, session, state: Mutex::new(state), changed: Notify::new() }
    }

    pub(super) fn key(&self) -> &Key {
        self.claim.key()
    }

    pub(super) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    pub(super) fn state(&self) -> HoldState {
        *self.lock()
    }

    /// When its lease ends, unless it is renewed.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.state() {
            HoldState::Held { until } => until,
            HoldState::Lost | HoldState::Released => None,
        }
    }

    /// Changes the state, unless a loss or a release came before.
    pub(super) fn set(&self, next: HoldState) {
        let mut state = self.lock();
        if !matches!(*state, HoldState::Held { .. }) {
            return;
        }
        *state = next;
        drop(state);
        if next == HoldState::Lost {
            self.changed.notify_waiters();
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        match self.state() {
            // The clock decides: the renewal task may not have run since the end.
            HoldState::Held { until } => {
                until.is_some_and(|until| until <= Instant::now())
                    || self.session.as_ref().is_some_and(Session::has_ended)
            }
            HoldState::Lost => true,
            HoldState::Released => false,
        }
    }

    /// Asks the clock whenever it is polled. So work that is polled together with this stops at its
    /// next await, even if the renewal task has not run.
    pub(super) async fn lost(&self) {
        let mut changed = pin!(self.changed.notified());
        poll_fn(|context| {
            // Polled before the check, so that a loss after the check is not missed.
            let is_told = changed.as_mut().poll(context).is_ready();
            if is_told || self.is_lost() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, HoldState> {
        // It is one value, so a panic cannot leave it half written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
