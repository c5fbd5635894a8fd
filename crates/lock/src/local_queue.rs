//! Local queues: one caller of this process at a time asks the lock for a key. The others wait
//! here, and cost the lock nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::Digest;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::Owner;
use super::policy::LONGEST_RELEASE;

/// A queue, in the order of arrival, for each key that this process holds, waits for or releases.
#[derive(Clone, Default)]
pub(super) struct LocalQueues(Arc<QueueTable>);

#[derive(Default)]
struct QueueTable {
    /// Held for a map operation, never across an `.await`. No task is woken while it is held.
    queues: Mutex<HashMap<Digest, LocalQueue>>,
}

/// The queue of one key. It is removed when it has no permit, no waiter and no release.
#[derive(Default)]
struct LocalQueue {
    /// Made for the first caller that does not get a permit at once.
    wait_point: Option<Arc<WaitPoint>>,
    /// How many tickets wait, by owner.
    waiting: HashMap<Owner, usize>,
    holder: Option<PermitHolder>,
    /// How many releases are under way.
    releases: usize,
}

/// What the tickets of one queue wait on.
struct WaitPoint {
    /// Has one permit while the queue has no holder.
    turns: Semaphore,
    /// Notified when an owner that has other tickets got a permit, and when a release has ended.
    changed: Notify,
}

/// The owner that has the permits of a queue.
struct PermitHolder {
    owner: Owner,
    /// How many permits it has: an owner gets further ones without waiting.
    permits: usize,
}

/// A place in a queue. Dropping it leaves the queue.
pub(super) struct QueueTicket {
    queues: LocalQueues,
    digest: Digest,
    owner: Owner,
    wait_point: Arc<WaitPoint>,
    is_waiting: bool,
}

/// A release that is under way until this is dropped. Attempts of this process wait for it.
pub(super) struct PendingRelease {
    queues: LocalQueues,
    digest: Digest,
    /// Given back at the end of the release.
    permit: Option<QueuePermit>,
}

/// The right to ask the lock for a key. Dropping it lets the next ticket ask.
#[derive(Debug)]
pub(super) struct QueuePermit {
    queues: LocalQueues,
    digest: Digest,
    /// Whether a [`PendingRelease`] has given it back already.
    is_given_back: bool,
}

impl LocalQueues {
    /// Gives a permit if the queue of the key is empty, or if its owner has a permit already.
    /// Otherwise this gives a ticket to wait with.
    pub(super) fn enter(&self, digest: Digest, owner: Owner) -> Result<QueuePermit, QueueTicket> {
        let mut queues = self.lock();
        let queue = queues.entry(digest).or_default();
        if !queue.is_used() {
            queue.holder = Some(PermitHolder { owner, permits: 0 });
        }
        if queue.permit_again(owner) {
            drop(queues);
            return Ok(self.permit(digest));
        }
        *queue.waiting.entry(owner).or_default() += 1;
        let wait_point = Arc::clone(queue.wait_point.get_or_insert_with(|| {
            let turns = Semaphore::new(usize::from(queue.holder.is_none()));
            Arc::new(WaitPoint { turns, changed: Notify::new() })
        }));
        drop(queues);
        Err(QueueTicket { queues: self.clone(), digest, owner, wait_point, is_waiting: true })
    }

    /// Notes that this process releases what it had of a key. Attempts wait until this is dropped.
    pub(super) fn releasing(&self, digest: Digest) -> PendingRelease {
        self.lock().entry(digest).or_default().releases += 1;
        PendingRelease { queues: self.clone(), digest, permit: None }
    }

    /// How many keys have a queue.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn permit(&self, digest: Digest) -> QueuePermit {
        QueuePermit { queues: self.clone(), digest, is_given_back: false }
    }

    /// Changes a queue. Removes it if it is unused now, and wakes the next ticket if the last
    /// permit was given back. Returns what the other tickets wait on.
    fn change(
        &self,
        digest: Digest,
        change: impl FnOnce(&mut LocalQueue),
    ) -> Option<Arc<WaitPoint>> {
        let mut queues = self.lock();
        let Entry::Occupied(mut queue) = queues.entry(digest) else { return None };
        let had_holder = queue.get().holder.is_some();
        change(queue.get_mut());
        let is_free_now = had_holder && queue.get().holder.is_none();
        let is_used = queue.get().is_used();
        let wait_point =
            if is_used { queue.get().wait_point.clone() } else { queue.remove().wait_point };
        drop(queues);
        if let Some(wait_point) = wait_point.as_ref().filter(|_| is_free_now) {
            wait_point.turns.add_permits(1);
        }
        wait_point
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, LocalQueue>> {
        // A panic cannot leave the table half changed: no user code runs under this mutex.
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalQueue {
    fn is_used(&self) -> bool {
        self.holder.is_some() || !self.waiting.is_empty() || self.releases > 0
    }

    /// Counts one more permit if this owner has one already.
    fn permit_again(&mut self, owner: Owner) -> bool {
        let holder = self.holder.as_mut().filter(|holder| holder.owner == owner);
        let Some(holder) = holder else { return false };
        holder.permits += 1;
        true
    }

    /// Counts one ticket less.
    fn stop_waiting(&mut self, owner: Owner) {
        let Entry::Occupied(mut ours) = self.waiting.entry(owner) else { return };
        *ours.get_mut() -= 1;
        if *ours.get() == 0 {
            ours.remove();
        }
    }

    /// Counts one permit less.
    fn give_back(&mut self) {
        if let Some(holder) = &mut self.holder {
            holder.permits -= 1;
        }
        self.holder.take_if(|holder| holder.permits == 0);
    }
}

impl QueueTicket {
    /// Waits for the releases that are under way. Then gives a permit if the queue has no holder.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub(super) async fn try_permit(mut self) -> Option<QueuePermit> {
        self.released().await;
        if self.permit_again() {
            return Some(self.queues.permit(self.digest));
        }
        self.wait_point.turns.try_acquire().ok()?.forget();
        Some(self.take_permit())
    }

    /// Waits for its turn, and for the releases that are under way then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub(super) async fn permit(mut self) -> Option<QueuePermit> {
        let wait_point = Arc::clone(&self.wait_point);
        let mut turn = pin!(wait_point.turns.acquire());
        loop {
            let mut changed = pin!(wait_point.changed.notified());
            // Enabled before the check, so that a permit given after the check is not missed.
            changed.as_mut().enable();
            if self.permit_again() {
                return Some(self.queues.permit(self.digest));
            }
            tokio::select! {
                biased;
                turn = &mut turn => {
                    // Dropped during a release, it goes to the next ticket. Turns never close.
                    let turn = turn.ok()?;
                    self.released().await;
                    turn.forget();
                    return Some(self.take_permit());
                }
                () = changed => {}
            }
        }
    }

    /// Waits for the releases that are under way, for [`LONGEST_RELEASE`] at most.
    async fn released(&self) {
        let released = async {
            loop {
                let mut changed = pin!(self.wait_point.changed.notified());
                // Enabled before the check, so that the end of a release is not missed.
                changed.as_mut().enable();
                let releases = self.queues.lock().get(&self.digest).map(|queue| queue.releases);
                if releases.unwrap_or_default() == 0 {
                    return;
                }
                changed.await;
            }
        };
        // A timeout is no error: the lock itself knows whether the key is free.
        let _ = timeout(LONGEST_RELEASE, released).await;
    }

    /// Turns this ticket into the first permit of its owner.
    fn take_permit(&mut self) -> QueuePermit {
        self.is_waiting = false;
        let mut has_more_tickets = false;
        self.queues.change(self.digest, |queue| {
            queue.stop_waiting(self.owner);
            queue.holder = Some(PermitHolder { owner: self.owner, permits: 1 });
            has_more_tickets = queue.waiting.contains_key(&self.owner);
        });
        if has_more_tickets {
            self.wait_point.changed.notify_waiters();
        }
        self.queues.permit(self.digest)
    }

    /// Turns this ticket into one more permit if its owner has one already.
    fn permit_again(&mut self) -> bool {
        let mut queues = self.queues.lock();
        let queue = queues.get_mut(&self.digest);
        let queue = queue.and_then(|queue| queue.permit_again(self.owner).then_some(queue));
        let Some(queue) = queue else { return false };
        queue.stop_waiting(self.owner);
        self.is_waiting = false;
        true
    }
}

impl PendingRelease {
    /// Ends the release, and gives the permit back in the same step. So an attempt that waited for
    /// the release finds the queue without a holder.
    pub(super) fn end_with(mut self, permit: Option<QueuePermit>) {
        self.permit = permit;
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        if !self.is_given_back {
            self.queues.change(self.digest, LocalQueue::give_back);
        }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        if self.is_waiting {
            self.queues.change(self.digest, |queue| queue.stop_waiting(self.owner));
        }
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let permit = self.permit.take().map(|mut permit| permit.is_given_back = true);
        let wait_point = self.queues.change(self.digest, |queue| {
            queue.releases -= 1;
            permit.inspect(|()| queue.give_back());
        });
        wait_point.inspect(|wait_point| wait_point.changed.notify_waiters());
    }
}

impl fmt::Debug for LocalQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalQueues").field("keys", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio_test::task::spawn;
    use tokio_test::{assert_pending, assert_ready};

    use super::*;
    use bellwether::Key;

    fn digest() -> Digest {
        Key::of("queue").digest()
    }

    fn permit(queues: &LocalQueues) -> Option<QueuePermit> {
        permit_as(queues, Owner::new())
    }

    fn permit_as(queues: &LocalQueues, owner: Owner) -> Option<QueuePermit> {
        match queues.enter(digest(), owner) {
            Ok(permit) => Some(permit),
            Err(ticket) => assert_ready!(spawn(ticket.try_permit()).poll()),
        }
    }

    /// A ticket of another owner, for a queue that has a holder.
    fn ticket(queues: &LocalQueues) -> QueueTicket {
        queues.enter(digest(), Owner::new()).expect_err("the queue has a holder")
    }

    #[tokio::test]
    async fn one_owner_has_a_permit_at_a_time() {
        let queues = LocalQueues::default();
        let first = permit(&queues);
        assert!(first.is_some() && permit(&queues).is_none());
        drop(first);
        assert!(permit(&queues).is_some());
    }

    #[tokio::test]
    async fn permits_are_given_in_the_order_of_arrival() {
        let queues = LocalQueues::default();
        let holder = permit(&queues);
        let mut waiting: Vec<_> = (0..3).map(|_| spawn(ticket(&queues).permit())).collect();
        for waiter in &mut waiting {
            assert_pending!(waiter.poll());
        }
        drop(holder);
        assert_pending!(waiting[1].poll());
        let first = assert_ready!(waiting[0].poll());
        drop(waiting.remove(1));
        drop(first);
        assert!(assert_ready!(waiting[1].poll()).is_some());
    }

    #[tokio::test]
    async fn an_owner_gets_further_permits_and_other_owners_wait_for_the_last() {
        let queues = LocalQueues::default();
        let owner = Owner::new();
        let outer = permit_as(&queues, owner);
        let inner = permit_as(&queues, owner);
        assert!(outer.is_some() && inner.is_some() && permit(&queues).is_none());
        drop(outer);
        assert!(permit(&queues).is_none());
        drop(inner);
        assert!(permit(&queues).is_some());
    }

    #[tokio::test]
    async fn a_try_waits_for_a_release_and_not_for_another_holder() {
        let queues = LocalQueues::default();
        let holder = permit(&queues);
        let release = queues.releasing(digest());
        let mut tries = spawn(ticket(&queues).try_permit());
        assert_pending!(tries.poll());
        drop(holder);
        assert_pending!(tries.poll());
        drop(release);
        assert!(tries.is_woken());
        let holder = assert_ready!(tries.poll());
        assert!(holder.is_some() && permit(&queues).is_none());
        drop((holder, tries));
        assert_eq!(queues.len(), 0);
    }

    #[tokio::test]
    async fn an_unused_queue_is_removed() {
        let queues = LocalQueues::default();
        let holder = permit(&queues);
        drop(permit(&queues));
        let mut waiting = spawn(ticket(&queues).permit());
        assert_pending!(waiting.poll());
        drop(holder);
        assert_eq!(queues.len(), 1);
        drop(waiting);
        assert_eq!(queues.len(), 0);
    }
}
