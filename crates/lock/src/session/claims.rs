//! The claims of this process that wait or hold, and how their tasks are asked.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bellwether::StoreError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{Attempt, Released, Renew, Token};

/// The task to ask about a claim. Nothing is here for claims that neither wait nor hold.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Held for a map operation, never across an `.await`.
    askers: Mutex<HashMap<Token, TaskHandle>>,
}

/// What came of asking for a claim's task.
pub(super) enum ClaimEntry {
    /// There is one.
    There(TaskHandle),
    /// There is none: be one.
    New(ClaimSlot),
}

/// How a task is asked.
#[derive(Clone, Debug)]
pub(super) struct TaskHandle {
    asks: mpsc::UnboundedSender<ClaimRequest>,
    wish: Arc<watch::Sender<Wish>>,
}

/// What is asked of a task.
pub(super) enum ClaimRequest {
    /// For the same claim once more.
    Again(oneshot::Sender<Result<Attempt, StoreError>>),
    /// Whether it still holds.
    IsHeld(oneshot::Sender<Result<Renew, StoreError>>),
    /// To give it up.
    Free(oneshot::Sender<Result<Released, StoreError>>),
}

/// What a task should do besides, whatever it is at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wish {
    None,
    /// Wait no longer.
    Leave,
    /// Close the connection.
    Close,
}

/// A task's place among the claims. It is gone when this is dropped.
#[derive(Debug)]
pub(super) struct ClaimSlot {
    claims: Weak<Claims>,
    token: Token,
    /// Tells our place from a later one of the same claim.
    ours: Arc<watch::Sender<Wish>>,
    pub(super) asks: mpsc::UnboundedReceiver<ClaimRequest>,
}

impl Claims {
    pub(super) fn join(self: &Arc<Self>, token: Token) -> ClaimEntry {
        let mut askers = self.askers();
        let entry = askers.entry(token);
        if let Entry::Occupied(there) = &entry {
            // One that takes no questions any more is about to go.
            if !there.get().asks.is_closed() {
                return ClaimEntry::There(there.get().clone());
            }
        }
        let (ask, asks) = mpsc::unbounded_channel();
        let wish = Arc::new(watch::Sender::new(Wish::None));
        let ours = Arc::clone(&wish);
        entry.insert_entry(TaskHandle { asks: ask, wish });
        ClaimEntry::New(ClaimSlot { claims: Arc::downgrade(self), token, ours, asks })
    }

    pub(super) fn find(&self, token: Token) -> Option<TaskHandle> {
        self.askers().get(&token).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.askers().len()
    }

    fn askers(&self) -> MutexGuard<'_, HashMap<Token, TaskHandle>> {
        self.askers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskHandle {
    /// The answer; none if the task has gone.
    pub(super) async fn of<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<T>) -> ClaimRequest,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.asks.send(ask(answer)).ok()?;
        answered.await.ok()
    }

    pub(super) fn wish(&self, wish: Wish) {
        self.wish.send_replace(wish);
    }
}

impl ClaimSlot {
    pub(super) fn wishes(&self) -> watch::Receiver<Wish> {
        self.ours.subscribe()
    }
}

impl Drop for ClaimSlot {
    fn drop(&mut self) {
        let Some(claims) = self.claims.upgrade() else { return };
        let mut askers = claims.askers();
        // A later task may already have our place: remove only our own.
        if askers.get(&self.token).is_some_and(|there| Arc::ptr_eq(&there.wish, &self.ours)) {
            askers.remove(&self.token);
        }
    }
}
