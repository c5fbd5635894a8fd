//! Gates: who of this process may ask for a key. The others wait here, and cost the lock nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::Digest;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Owner;

/// A gate for each key that somebody in this process holds or waits for, in the order of arrival.
#[derive(Clone, Default)]
pub(super) struct Gates(Arc<Table>);

#[derive(Default)]
struct Table {
    /// Guards the gates: held for a map operation, never across an `.await`, and nobody is woken
    /// while it is.
    gates: Mutex<HashMap<Digest, Gate>>,
}

struct Gate {
    turns: Arc<Semaphore>,
    /// Rung when an owner with other waiters has come through, and when a release has ended.
    changed: Arc<Notify>,
    /// How many hold it or wait for it, by owner: the last one to go takes it with them.
    users: HashMap<Owner, usize>,
    inside: Option<Inside>,
    /// How many releases are under way.
    releases: usize,
}

/// Who has come through.
struct Inside {
    owner: Owner,
    /// How often: an owner that is inside may come again.
    times: usize,
    turn: OwnedSemaphorePermit,
}

/// A place in front of a gate.
pub(super) struct Place {
    gates: Gates,
    digest: Digest,
    owner: Owner,
    turns: Arc<Semaphore>,
    changed: Arc<Notify>,
}

/// A release that is under way, until this is dropped: attempts of this process wait for it.
#[derive(Debug)]
pub(super) struct PendingRelease {
    gates: Gates,
    digest: Digest,
}

/// The right to ask for a key, until it is dropped.
pub(super) struct Pass(Place);

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("digest", &self.0.digest).finish_non_exhaustive()
    }
}

impl Gates {
    /// A place in front of the gate of a key.
    pub(super) fn place(&self, digest: Digest, owner: Owner) -> Place {
        let mut gates = self.lock();
        let gate = gates.entry(digest).or_default();
        *gate.users.entry(owner).or_default() += 1;
        let (turns, changed) = (Arc::clone(&gate.turns), Arc::clone(&gate.changed));
        drop(gates);
        Place { gates: self.clone(), digest, owner, turns, changed }
    }

    /// Notes that what this process had of a key is being released. To be dropped after the
    /// [`Pass`], so that an attempt that waits for it finds the gate open.
    pub(super) fn releasing(&self, digest: Digest) -> PendingRelease {
        self.lock().entry(digest).or_default().releases += 1;
        PendingRelease { gates: self.clone(), digest }
    }

    /// How many gates there are.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Gate>> {
        // A table whose holder panicked is still whole: no user code runs under the lock.
        self.0.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    fn is_used(&self) -> bool {
        !self.users.is_empty() || self.releases > 0
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(1)),
            changed: Arc::new(Notify::new()),
            users: HashMap::new(),
            inside: None,
            releases: 0,
        }
    }
}

impl Place {
    /// Comes through if the gate is open after the releases that are under way.
    ///
    /// # Cancel safety
    /// That of [`pass`](Self::pass).
    pub(super) async fn try_pass(self) -> Option<Pass> {
        if self.comes_again() {
            return Some(Pass(self));
        }
        self.released().await;
        if self.comes_again() {
            return Some(Pass(self));
        }
        let turn = Arc::clone(&self.turns).try_acquire_owned().ok()?;
        Some(self.take(turn))
    }

    /// Waits for its turn, and for the releases that are under way then.
    ///
    /// # Cancel safety
    /// The place is given up when it is dropped.
    pub(super) async fn pass(self) -> Option<Pass> {
        let changed = Arc::clone(&self.changed);
        let mut turn = pin!(Arc::clone(&self.turns).acquire_owned());
        loop {
            let mut changed = pin!(changed.notified());
            // Before it looks: who comes through after that rings.
            changed.as_mut().enable();
            if self.comes_again() {
                return Some(Pass(self));
            }
            tokio::select! {
                biased;
                // Nobody closes it, but if somebody did, nobody would come through.
                turn = &mut turn => {
                    self.released().await;
                    return Some(self.take(turn.ok()?));
                }
                () = changed => {}
            }
        }
    }

    /// Waits for the releases that are under way, but not for one that takes too long.
    async fn released(&self) {
        let released = async {
            loop {
                let mut changed = pin!(self.changed.notified());
                // Before it looks: a release that ends after that rings.
                changed.as_mut().enable();
                if !self.is_releasing() {
                    return;
                }
                changed.await;
            }
        };
        // Whether it has ended or not: the lock itself says who has the key.
        let _ = timeout(LONGEST_RELEASE, released).await;
    }

    fn is_releasing(&self) -> bool {
        self.gates.lock().get(&self.digest).is_some_and(|gate| gate.releases > 0)
    }

    fn take(self, turn: OwnedSemaphorePermit) -> Pass {
        let inside = Inside { owner: self.owner, times: 1, turn };
        let mut gates = self.gates.lock();
        let gate = gates.get_mut(&self.digest);
        let has_company = gate.is_some_and(|gate| {
            gate.inside = Some(inside);
            gate.users.get(&self.owner).is_some_and(|users| *users > 1)
        });
        drop(gates);
        if has_company {
            self.changed.notify_waiters();
        }
        Pass(self)
    }

    /// Whether its owner is inside already, and comes through once more.
    fn comes_again(&self) -> bool {
        let mut gates = self.gates.lock();
        let inside = gates.get_mut(&self.digest).and_then(|gate| gate.inside.as_mut());
        let Some(inside) = inside.filter(|inside| inside.owner == self.owner) else { return false };
        inside.times += 1;
        true
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut gates = self.0.gates.lock();
        let Some(gate) = gates.get_mut(&self.0.digest) else { return };
        let Some(inside) = &mut gate.inside else { return };
        inside.times -= 1;
        let turn = if inside.times == 0 { gate.inside.take() } else { None };
        drop(gates);
        // Wakes the next in turn.
        drop(turn.map(|inside| inside.turn));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut gates = self.gates.lock();
        if let Entry::Occupied(mut gate) = gates.entry(self.digest) {
            if let Entry::Occupied(mut ours) = gate.get_mut().users.entry(self.owner) {
                *ours.get_mut() -= 1;
                if *ours.get() == 0 {
                    ours.remove();
                }
            }
            if !gate.get().is_used() {
                gate.remove();
            }
        }
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let mut gates = self.gates.lock();
        let Entry::Occupied(mut gate) = gates.entry(self.digest) else { return };
        gate.get_mut().releases -= 1;
        let changed = Arc::clone(&gate.get().changed);
        if !gate.get().is_used() {
            gate.remove();
        }
        drop(gates);
        changed.notify_waiters();
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gates").field("keys", &self.len()).finish()
    }
}

/// How long a release is waited for at most: longer than a lock takes to answer.
pub(super) const LONGEST_RELEASE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use tokio_test::task::spawn;
    use tokio_test::{assert_pending, assert_ready};

    use super::*;
    use bellwether::Key;

    fn digest() -> Digest {
        Key::of("gate").digest()
    }

    fn pass(gates: &Gates) -> Option<Pass> {
        pass_as(gates, Owner::new())
    }

    fn pass_as(gates: &Gates, owner: Owner) -> Option<Pass> {
        assert_ready!(spawn(gates.place(digest(), owner).try_pass()).poll())
    }

    #[tokio::test]
    async fn one_passes_at_a_time() {
        let gates = Gates::default();
        let first = pass(&gates);
        assert!(first.is_some() && pass(&gates).is_none());
        drop(first);
        assert!(pass(&gates).is_some());
    }

    #[tokio::test]
    async fn they_pass_in_the_order_of_arrival() {
        let gates = Gates::default();
        let inside = pass(&gates);
        let mut waiting: Vec<_> =
            (0..3).map(|_| spawn(gates.place(digest(), Owner::new()).pass())).collect();
        for waiter in &mut waiting {
            assert_pending!(waiter.poll());
        }
        drop(inside);
        assert_pending!(waiting[1].poll());
        let first = assert_ready!(waiting[0].poll());
        drop(waiting.remove(1));
        drop(first);
        assert!(assert_ready!(waiting[1].poll()).is_some());
    }

    #[tokio::test]
    async fn an_owner_passes_again_and_others_after_its_last_pass() {
        let (gates, owner) = (Gates::default(), Owner::new());
        let outer = pass_as(&gates, owner);
        let inner = pass_as(&gates, owner);
        assert!(outer.is_some() && inner.is_some() && pass(&gates).is_none());
        drop(outer);
        assert!(pass(&gates).is_none());
        drop(inner);
        assert!(pass(&gates).is_some());
    }

    #[tokio::test]
    async fn a_try_waits_for_a_release_and_not_for_another_holder() {
        let gates = Gates::default();
        let (inside, release) = (pass(&gates), gates.releasing(digest()));
        let mut tries = spawn(gates.place(digest(), Owner::new()).try_pass());
        assert_pending!(tries.poll());
        drop(inside);
        assert_pending!(tries.poll());
        drop(release);
        assert!(tries.is_woken());
        let inside = assert_ready!(tries.poll());
        assert!(inside.is_some() && pass(&gates).is_none());
        drop((inside, tries));
        assert_eq!(gates.len(), 0);
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_gate_that_nobody_uses() {
        let gates = Gates::default();
        let inside = pass(&gates);
        drop(pass(&gates));
        let mut waiting = spawn(gates.place(digest(), Owner::new()).pass());
        assert_pending!(waiting.poll());
        drop(inside);
        assert_eq!(gates.len(), 1);
        drop(waiting);
        assert_eq!(gates.len(), 0);
    }
}
