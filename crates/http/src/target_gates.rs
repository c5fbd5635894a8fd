//! `TargetGates`: how many requests for one target ask the origin at once, each for itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use bellwether::adapter::locked;
use bellwether::store::Digest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many requests for one target ask the origin at once, each for itself.
pub(super) struct TargetGates {
    most: usize,
    /// The gates with requests, and some without. Locked for a few operations, never across an `.await`.
    gates: Mutex<HashMap<Digest, Weak<Semaphore>>>,
}

impl TargetGates {
    /// Gates for this many requests each.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.min(Semaphore::MAX_PERMITS), gates: Mutex::default() }
    }

    /// Waits for a permit, in the order of the calls. Hold it until the origin has answered.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue.
    pub(super) async fn enter(&self, target: Digest) -> Option<OwnedSemaphorePermit> {
        // No gate is ever closed.
        self.gate(target).acquire_owned().await.ok()
    }

    fn gate(&self, target: Digest) -> Arc<Semaphore> {
        let mut gates = locked(&self.gates);
        if let Some(gate) = gates.get(&target).and_then(Weak::upgrade) {
            return gate;
        }
        // Only a table that would grow is searched.
        if gates.len() == gates.capacity() {
            gates.retain(|_, gate| gate.strong_count() > 0);
        }
        let gate = Arc::new(Semaphore::new(self.most));
        gates.insert(target, Arc::downgrade(&gate));
        gate
    }
}

#[cfg(test)]
mod tests {
    use bellwether::Key;
    use futures_util::FutureExt;

    use super::*;

    fn digest(nth: usize) -> Digest {
        Key::of("target").with(nth).digest()
    }

    #[tokio::test]
    async fn so_many_enter_the_gate_of_a_target_and_the_next_one_waits() {
        let gates = TargetGates::new(2);
        let first = gates.enter(digest(0)).await;
        let _second = gates.enter(digest(0)).await;
        let mut third = Box::pin(gates.enter(digest(0)));
        assert!((&mut third).now_or_never().is_none());
        let _other = gates.enter(digest(1)).await;
        drop(first);
        third.await;
    }

    #[tokio::test]
    async fn gates_without_requests_are_removed_and_others_stay() {
        let gates = TargetGates::new(1);
        let first = gates.enter(digest(0)).await;
        let mut waiting = Box::pin(gates.enter(digest(0)));
        assert!((&mut waiting).now_or_never().is_none());
        drop(first);
        for nth in 1..1_000 {
            drop(gates.enter(digest(nth)).await);
        }
        assert!(locked(&gates.gates).len() < 10);
        let _second = waiting.await;
        assert!(gates.enter(digest(0)).now_or_never().is_none(), "the gate is that of the first");
    }
}
