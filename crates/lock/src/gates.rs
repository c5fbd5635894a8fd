//! Gates: who of this process may ask for a key. The others wait here, and cost the lock nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::Digest;
use tokio::sync::{Notify, Semaphore};
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

/// The last one to go takes it with them.
#[derive(Default)]
struct Gate {
    /// Made for the first one that does not come through at once.
    line: Option<Arc<Line>>,
    /// How many wait, by owner.
    waiting: HashMap<Owner, usize>,
    inside: Option<Inside>,
    /// How many releases are under way.
    releases: usize,
}

/// Where those wait that do not come through at once.
struct Line {
    /// One permit, while nobody is inside.
    turns: Semaphore,
    /// Rung when an owner with other waiters has come through, and when a release has ended.
    changed: Notify,
}

/// Who has come through.
struct Inside {
    owner: Owner,
    /// How often: an owner that is inside may come again.
    times: usize,
}

/// A place in front of a gate.
pub(super) struct Place {
    gates: Gates,
    digest: Digest,
    owner: Owner,
    line: Arc<Line>,
    /// Whether it still waits.
    waits: bool,
}

/// A release that is under way, until this is dropped: attempts of this process wait for it.
pub(super) struct PendingRelease {
    gates: Gates,
    digest: Digest,
    /// Given up at the end of the release.
    pass: Option<Pass>,
}

/// The right to ask for a key, until it is dropped.
#[derive(Debug)]
pub(super) struct Pass {
    gates: Gates,
    digest: Digest,
    /// Whether it is given up otherwise.
    has_left: bool,
}

impl Gates {
    /// Comes through the gate of a key, if it is open and nobody waits in front of it, or if its owner
    /// is inside already. Otherwise this gives a place to wait.
    pub(super) fn enter(&self, digest: Digest, owner: Owner) -> Result<Pass, Place> {
        let mut gates = self.lock();
        let gate = gates.entry(digest).or_default();
        if !gate.is_used() {
            gate.inside = Some(Inside { owner, times: 0 });
        }
        if gate.comes_again(owner) {
            drop(gates);
            return Ok(self.pass(digest));
        }
        *gate.waiting.entry(owner).or_default() += 1;
        let line = Arc::clone(gate.line.get_or_insert_with(|| {
            let turns = Semaphore::new(usize::from(gate.inside.is_none()));
            Arc::new(Line { turns, changed: Notify::new() })
        }));
        drop(gates);
        Err(Place { gates: self.clone(), digest, owner, line, waits: true })
    }

    /// Notes that what this process had of a key is being released. An attempt that waits for it finds
    /// the gate open, if this is [given](PendingRelease::leave) the pass.
    pub(super) fn releasing(&self, digest: Digest) -> PendingRelease {
        self.lock().entry(digest).or_default().releases += 1;
        PendingRelease { gates: self.clone(), digest, pass: None }
    }

    /// How many gates there are.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn pass(&self, digest: Digest) -> Pass {
        Pass { gates: self.clone(), digest, has_left: false }
    }

    /// Changes a gate, which goes if it is not used any more, and wakes the next in turn if it has
    /// opened. Gives where the others wait.
    fn change(&self, digest: Digest, change: impl FnOnce(&mut Gate)) -> Option<Arc<Line>> {
        let mut gates = self.lock();
        let Entry::Occupied(mut gate) = gates.entry(digest) else { return None };
        let was_closed = gate.get().inside.is_some();
        change(gate.get_mut());
        let has_opened = was_closed && gate.get().inside.is_none();
        let is_used = gate.get().is_used();
        let line = if is_used { gate.get().line.clone() } else { gate.remove().line };
        drop(gates);
        if let Some(line) = line.as_ref().filter(|_| has_opened) {
            line.turns.add_permits(1);
        }
        line
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Gate>> {
        // A table whose holder panicked is still whole: no user code runs under the lock.
        self.0.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    fn is_used(&self) -> bool {
        self.inside.is_some() || !self.waiting.is_empty() || self.releases > 0
    }

    /// Whether its owner is inside already, and comes through once more.
    fn comes_again(&mut self, owner: Owner) -> bool {
        let inside = self.inside.as_mut().filter(|inside| inside.owner == owner);
        let Some(inside) = inside else { return false };
        inside.times += 1;
        true
    }

    /// One waiter less.
    fn stops_waiting(&mut self, owner: Owner) {
        let Entry::Occupied(mut ours) = self.waiting.entry(owner) else { return };
        *ours.get_mut() -= 1;
        if *ours.get() == 0 {
            ours.remove();
        }
    }

    /// One pass less.
    fn leave(&mut self) {
        if let Some(inside) = &mut self.inside {
            inside.times -= 1;
        }
        self.inside.take_if(|inside| inside.times == 0);
    }
}

impl Place {
    /// Comes through if the gate is open after the releases that are under way.
    ///
    /// # Cancel safety
    /// That of [`pass`](Self::pass).
    pub(super) async fn try_pass(mut self) -> Option<Pass> {
        self.released().await;
        if self.comes_again() {
            return Some(self.gates.pass(self.digest));
        }
        self.line.turns.try_acquire().ok()?.forget();
        Some(self.take())
    }

    /// Waits for its turn, and for the releases that are under way then.
    ///
    /// # Cancel safety
    /// The place is given up when it is dropped.
    pub(super) async fn pass(mut self) -> Option<Pass> {
        let line = Arc::clone(&self.line);
        let mut turn = pin!(line.turns.acquire());
        loop {
            let mut changed = pin!(line.changed.notified());
            // Before it looks: who comes through after that rings.
            changed.as_mut().enable();
            if self.comes_again() {
                return Some(self.gates.pass(self.digest));
            }
            tokio::select! {
                biased;
                // Nobody closes it, but if somebody did, nobody would come through.
                turn = &mut turn => {
                    // Given back if this is dropped meanwhile.
                    let turn = turn.ok()?;
                    self.released().await;
                    turn.forget();
                    return Some(self.take());
                }
                () = changed => {}
            }
        }
    }

    /// Waits for the releases that are under way, but not for one that takes too long.
    async fn released(&self) {
        let released = async {
            loop {
                let mut changed = pin!(self.line.changed.notified());
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

    /// Comes through by a turn.
    fn take(&mut self) -> Pass {
        self.waits = false;
        let mut has_company = false;
        self.gates.change(self.digest, |gate| {
            gate.stops_waiting(self.owner);
            gate.inside = Some(Inside { owner: self.owner, times: 1 });
            has_company = gate.waiting.contains_key(&self.owner);
        });
        if has_company {
            self.line.changed.notify_waiters();
        }
        self.gates.pass(self.digest)
    }

    /// Whether its owner is inside already, and comes through once more.
    fn comes_again(&mut self) -> bool {
        let mut gates = self.gates.lock();
        let gate = gates.get_mut(&self.digest);
        let gate = gate.and_then(|gate| gate.comes_again(self.owner).then_some(gate));
        let Some(gate) = gate else { return false };
        gate.stops_waiting(self.owner);
        self.waits = false;
        true
    }
}

impl PendingRelease {
    /// Gives up the pass together with the end of the release.
    pub(super) fn leave(mut self, pass: Option<Pass>) {
        self.pass = pass;
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.has_left {
            self.gates.change(self.digest, Gate::leave);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.waits {
            self.gates.change(self.digest, |gate| gate.stops_waiting(self.owner));
        }
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let pass = self.pass.take().map(|mut pass| pass.has_left = true);
        let line = self.gates.change(self.digest, |gate| {
            gate.releases -= 1;
            pass.inspect(|()| gate.leave());
        });
        line.inspect(|line| line.changed.notify_waiters());
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
        match gates.enter(digest(), owner) {
            Ok(pass) => Some(pass),
            Err(place) => assert_ready!(spawn(place.try_pass()).poll()),
        }
    }

    /// A place of another one, in front of a gate that is not open.
    fn place(gates: &Gates) -> Place {
        gates.enter(digest(), Owner::new()).err().expect("it is not open")
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
        let mut waiting: Vec<_> = (0..3).map(|_| spawn(place(&gates).pass())).collect();
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
        let mut tries = spawn(place(&gates).try_pass());
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
        let mut waiting = spawn(place(&gates).pass());
        assert_pending!(waiting.poll());
        drop(inside);
        assert_eq!(gates.len(), 1);
        drop(waiting);
        assert_eq!(gates.len(), 0);
    }
}
