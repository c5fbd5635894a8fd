//! The claims of this process that wait or hold, and the handles of their tasks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{mpsc, oneshot, watch};

use crate::{Attempt, LockError, Released, Renew, Token};

/// The task of each claim. Claims that neither wait nor hold have none.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Held for a map operation, never across an `.await`.
    tasks: Mutex<HashMap<Token, TaskHandle>>,
}

/// The entry of a claim in the table.
pub(super) enum ClaimEntry {
    /// The claim has a task.
    There(TaskHandle),
    /// The claim has no task: start one with this slot.
    New(ClaimSlot),
}

/// Sends requests to the task of a claim.
#[derive(Clone, Debug)]
pub(super) struct TaskHandle {
    asks: mpsc::UnboundedSender<ClaimRequest>,
    wish: Arc<watch::Sender<Wish>>,
}

/// A request to the task of a claim.
pub(super) enum ClaimRequest {
    /// The claim is asked for once more.
    Again(oneshot::Sender<Result<Attempt, LockError>>),
    /// Asks whether the claim still holds its key.
    IsHeld(oneshot::Sender<Result<Renew, LockError>>),
    /// Gives the key up.
    Free(oneshot::Sender<Result<Released, LockError>>),
}

/// What a task should do whatever it is doing. A request would have to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wish {
    None,
    /// Stop waiting.
    Leave,
    /// Close the connection.
    Close,
}

/// The entry of a running task in the table. Dropping this removes it.
#[derive(Debug)]
pub(super) struct ClaimSlot {
    claims: Weak<Claims>,
    token: Token,
    /// Tells this entry from a later one of the same claim.
    ours: Arc<watch::Sender<Wish>>,
    pub(super) asks: mpsc::UnboundedReceiver<ClaimRequest>,
}

impl Claims {
    pub(super) fn join(self: &Arc<Self>, token: Token) -> ClaimEntry {
        let mut tasks = self.tasks();
        let entry = tasks.entry(token);
        if let Entry::Occupied(there) = &entry {
            // A task that takes no more requests is about to end.
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
        self.tasks().get(&token).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.tasks().len()
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<Token, TaskHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskHandle {
    /// Sends a request and waits for the answer. `None` if the task has ended.
    pub(super) async fn request<T>(
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
        let mut tasks = claims.tasks();
        // A later task of the same claim may have an entry already: only our own is removed.
        if tasks.get(&self.token).is_some_and(|there| Arc::ptr_eq(&there.wish, &self.ours)) {
            tasks.remove(&self.token);
        }
    }
}
