//! Reminders: a task gives up the claims whose requests were not acknowledged. It runs while there
//! are any.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::select;
use tokio::time::{Instant, sleep};

use super::inner::Inner;
use super::unacknowledged::LeaseCommand;
use bellwether::StoreError;
use bellwether::store::Claim;

/// Adds a claim to the unacknowledged ones when it is dropped, unless it was settled before.
pub(super) struct Reminder<'a> {
    store: &'a Arc<Inner>,
    command: LeaseCommand,
    claim: Option<Claim>,
}

impl<'a> Reminder<'a> {
    /// Create it before the request is sent.
    pub(super) fn new(store: &'a Arc<Inner>, claim: &Claim, command: LeaseCommand) -> Self {
        Self { store, command, claim: Some(claim.clone()) }
    }

    /// Settles the claim, unless it may hold a lease after this outcome. Returns the outcome.
    pub(super) fn settle<T>(mut self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let is_lost = |error: &StoreError| self.command.may_have_left_a_lease(error.kind());
        if !outcome.as_ref().is_err_and(is_lost) {
            self.claim = None;
        }
        outcome
    }
}

impl Drop for Reminder<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.store.unacknowledged.add(claim, Instant::now());
            start(self.store);
        }
    }
}

/// The task that gives up claims. It runs while there are any.
struct ReleaseTask(Weak<Inner>);

/// Starts the task, unless it runs already or there is no runtime.
fn start(store: &Arc<Inner>) {
    let Ok(runtime) = Handle::try_current() else { return };
    if store.unacknowledged.begin_task() {
        runtime.spawn(ReleaseTask(Arc::downgrade(store)).run());
    }
}

impl ReleaseTask {
    async fn run(self) {
        self.give_up_all().await;
        let store = self.0.clone();
        drop(self);
        // Claims may have been added while the task ended.
        if let Some(store) = store.upgrade()
            && !store.unacknowledged.is_empty()
        {
            start(&store);
        }
    }

    async fn give_up_all(&self) {
        while let Some(store) = self.0.upgrade() {
            if !store.unacknowledged.any_holds(Instant::now()) {
                return;
            }
            // Without other requests, this one detects that the server is back.
            if let Err(error) = store.give_up_unacknowledged().await {
                tracing::debug!(target: "bellwether::store", %error, "leases that no flight holds are not given up yet");
            }
            let is_back = store.client.is_back();
            drop(store);
            select! {
                () = is_back.notified() => {}
                () = sleep(AGAIN) => {}
            }
        }
    }
}

impl Drop for ReleaseTask {
    fn drop(&mut self) {
        if let Some(store) = self.0.upgrade() {
            store.unacknowledged.end_task();
        }
    }
}

/// The pause between attempts, unless the server is back before: about as long as callers can bear
/// to wait for a lease that no flight holds.
const AGAIN: Duration = Duration::from_millis(100);
