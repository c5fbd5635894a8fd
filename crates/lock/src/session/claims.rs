//! The claims of this process that wait or hold, and the handles of their tasks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use bellwether::adapter::locked;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{Grant, LockError, Released, Token};

/// The task of each claim. Claims that neither wait nor hold have none.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Held for a map operation, never across an `.await`.
    tasks: Mutex<HashMap<Token, TaskHandle>>,
}

/// Reaches the task of a claim.
#[derive(Clone, Debug)]
pub(super) struct TaskHandle {
    asks: mpsc::UnboundedSender<ClaimRequest>,
    /// Cancelled to end a wait. A request would have to wait for it.
    pub(super) leave: CancellationToken,
    /// Cancelled to close the connection, whatever the task is doing.
    pub(super) close: CancellationToken,
}

/// A request to the task of a claim.
pub(super) enum ClaimRequest {
    /// Asks whether the claim still holds its key. The answer is its grant, if it does.
    Check(oneshot::Sender<Option<Grant>>),
    /// Gives the key up.
    Free(oneshot::Sender<Result<Released, LockError>>),
}

/// The entry of a running task in the table. Dropping this removes it.
#[derive(Debug)]
pub(super) struct ClaimSlot {
    claims: Weak<Claims>,
    token: Token,
    pub(super) asks: mpsc::UnboundedReceiver<ClaimRequest>,
    pub(super) leave: CancellationToken,
    pub(super) close: CancellationToken,
}

impl Claims {
    /// The task of a claim. Without one, an error with the slot for a task to start.
    pub(super) fn join(self: &Arc<Self>, token: Token) -> Result<TaskHandle, ClaimSlot> {
        let mut tasks = locked(&self.tasks);
        // A task that takes no more requests is about to end.
        if let Some(there) = tasks.get(&token).filter(|there| !there.asks.is_closed()) {
            return Ok(there.clone());
        }
        let (ask, asks) = mpsc::unbounded_channel();
        let [leave, close] = [(); 2].map(|()| CancellationToken::new());
        tasks.insert(token, TaskHandle { asks: ask, leave: leave.clone(), close: close.clone() });
        Err(ClaimSlot { claims: Arc::downgrade(self), token, asks, leave, close })
    }

    pub(super) fn find(&self, token: Token) -> Option<TaskHandle> {
        locked(&self.tasks).get(&token).cloned()
    }

    pub(super) fn len(&self) -> usize {
        locked(&self.tasks).len()
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
}

impl Drop for ClaimSlot {
    fn drop(&mut self) {
        self.asks.close();
        let Some(claims) = self.claims.upgrade() else { return };
        let mut tasks = locked(&claims.tasks);
        // A later task of the same claim may have an entry already: it takes requests.
        if tasks.get(&self.token).is_some_and(|there| there.asks.is_closed()) {
            tasks.remove(&self.token);
        }
    }
}
