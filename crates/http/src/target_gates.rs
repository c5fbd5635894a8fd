//! `TargetGates`: how many requests for one target ask the origin at once, each for itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bellwether::adapter::locked;
use bellwether::store::Digest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many requests for one target ask the origin at once, each for itself.
pub(super) struct TargetGates {
    most: usize,
    /// The gates with requests. Locked for a few operations, never across an `.await`.
    gates: Mutex<HashMap<Digest, Arc<Semaphore>>>,
}

/// A request at the gate of its target, or past it. Hold it until the origin has answered.
pub(super) struct TargetPermit {
    gates: Arc<TargetGates>,
    target: Digest,
    gate: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl TargetGates {
    /// Gates for this many requests each.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.min(Semaphore::MAX_PERMITS), gates: Mutex::default() }
    }

    /// Waits for a permit, in the order of the calls.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue.
    pub(super) async fn enter(self: &Arc<Self>, target: Digest) -> TargetPermit {
        let mut entering = self.at(target);
        // No gate is ever closed.
        entering.permit = Arc::clone(&entering.gate).acquire_owned().await.ok();
        entering
    }

    fn at(self: &Arc<Self>, target: Digest) -> TargetPermit {
        let mut gates = locked(&self.gates);
        let gate = gates.entry(target).or_insert_with(|| Arc::new(Semaphore::new(self.most)));
        TargetPermit { gates: Arc::clone(self), target, gate: Arc::clone(gate), permit: None }
    }
}

impl Drop for TargetPermit {
    /// Removes a gate with its last request.
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut gates = locked(&self.gates.gates);
        // One is here, and one in the table.
        if Arc::strong_count(&self.gate) == 2 {
            gates.remove(&self.target);
        }
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

    fn len(gates: &TargetGates) -> usize {
        gates.gates.lock().unwrap().len()
    }

    #[tokio::test]
    async fn so_many_enter_the_gate_of_a_target_and_the_next_one_waits() {
        let gates = Arc::new(TargetGates::new(2));
        let first = gates.enter(digest(0)).await;
        let _second = gates.enter(digest(0)).await;
        let mut third = Box::pin(gates.enter(digest(0)));
        assert!((&mut third).now_or_never().is_none());
        let _other = gates.enter(digest(1)).await;
        drop(first);
        third.await;
    }

    #[tokio::test]
    async fn a_gate_without_requests_is_removed() {
        let gates = Arc::new(TargetGates::new(1));
        let first = gates.enter(digest(0)).await;
        let mut given_up = Box::pin(gates.enter(digest(0)));
        assert!((&mut given_up).now_or_never().is_none());
        drop(first);
        assert_eq!(len(&gates), 1, "a request waits");
        drop(given_up);
        assert_eq!(len(&gates), 0);
    }
}
