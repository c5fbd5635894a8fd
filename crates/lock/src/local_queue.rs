//! Local queues: one caller of this process at a time asks the lock for a key. The others wait
//! here, and cost the lock nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::adapter::locked;
use bellwether::store::Digest;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::Owner;

/// The local queues of a lock ([`Lock::local_queues`](super::Lock::local_queues)): one, in the order
/// of arrival, for each key that this process holds, waits for or releases.
///
/// A handle: clones share the queues.
#[derive(Clone, Default)]
pub struct LocalQueues(Arc<QueueTable>);

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
    waiting: HashMap<Owner, WaitingTickets>,
    holder: Option<PermitHolder>,
    /// How many releases are under way.
    releases: usize,
}

/// The tickets of one owner that wait.
#[derive(Default)]
struct WaitingTickets {
    count: usize,
    /// Notified when the owner got a permit by one of them, and has more.
    permitted: Arc<Notify>,
}

/// What the tickets of one queue wait on, each for itself, so that a release wakes only the next one.
struct WaitPoint {
    /// Has one permit while the queue has no holder.
    turns: Semaphore,
    /// Notified when a release has ended: the ticket whose turn it is waits for that, and tries do.
    released: Notify,
}

/// The owner that has the permits of a queue.
struct PermitHolder {
    owner: Owner,
    /// How many permits it has: an owner gets further ones without waiting.
    permits: usize,
    /// How many of them are of holds that are being released.
    releasing: usize,
}

/// A place in a queue. Dropping it leaves the queue.
pub(super) struct QueueTicket {
    queues: LocalQueues,
    digest: Digest,
    owner: Owner,
    wait_point: Arc<WaitPoint>,
    permitted: Arc<Notify>,
    is_waiting: bool,
}

/// A release that is under way until this is dropped. Attempts of this process wait for it.
pub(super) struct PendingRelease {
    queues: LocalQueues,
    digest: Digest,
    /// Given back before the release ends, so an attempt that waited for the release finds the queue
    /// without a holder.
    permit: Option<QueuePermit>,
    is_awaited: bool,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermitState {
    /// Another caller holds or asks for the key.
    Held,
    /// The release of the last hold has failed, or has not ended.
    Releasing,
}

/// The right to ask the lock for a key. Dropping it lets the next ticket ask.
#[derive(Debug)]
pub(super) struct QueuePermit {
    queues: LocalQueues,
    digest: Digest,
    /// Whether it is of a hold that is being released.
    is_releasing: bool,
}

impl LocalQueues {
    /// Gives a permit if the queue of the key is empty, or if its owner has a permit already.
    /// Otherwise this gives a ticket to wait with.
    pub(super) fn enter(&self, digest: Digest, owner: Owner) -> Result<QueuePermit, QueueTicket> {
        let mut queues = locked(&self.0.queues);
        let queue = queues.entry(digest).or_default();
        if !queue.is_used() {
            queue.holder = Some(PermitHolder { owner, permits: 0, releasing: 0 });
        }
        if queue.permit_again(owner) {
            drop(queues);
            return Ok(self.permit(digest));
        }
        let ours = queue.waiting.entry(owner).or_default();
        ours.count += 1;
        let permitted = Arc::clone(&ours.permitted);
        let wait_point = Arc::clone(queue.wait_point.get_or_insert_with(|| {
            let turns = Semaphore::new(usize::from(queue.holder.is_none()));
            Arc::new(WaitPoint { turns, released: Notify::new() })
        }));
        drop(queues);
        let queues = self.clone();
        Err(QueueTicket { queues, digest, owner, wait_point, permitted, is_waiting: true })
    }

    /// Notes that this process releases what it had of a key, with the permit that it still has.
    /// Attempts wait until this is dropped.
    pub(super) fn releasing(
        &self,
        digest: Digest,
        mut permit: Option<QueuePermit>,
    ) -> PendingRelease {
        let mut queues = locked(&self.0.queues);
        let queue = queues.entry(digest).or_default();
        queue.releases += 1;
        if let (Some(holder), Some(permit)) = (&mut queue.holder, &mut permit) {
            holder.releasing += 1;
            permit.is_releasing = true;
        }
        drop(queues);
        PendingRelease { queues: self.clone(), digest, permit, is_awaited: true }
    }

    /// How many keys have a queue.
    pub(super) fn len(&self) -> usize {
        locked(&self.0.queues).len()
    }

    fn permit(&self, digest: Digest) -> QueuePermit {
        QueuePermit { queues: self.clone(), digest, is_releasing: false }
    }

    /// Changes a queue. Removes it if it is unused now, and wakes the next ticket if the last
    /// permit was given back. Returns what the other tickets wait on.
    fn change(
        &self,
        digest: Digest,
        change: impl FnOnce(&mut LocalQueue),
    ) -> Option<Arc<WaitPoint>> {
        let mut queues = locked(&self.0.queues);
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
        ours.get_mut().count -= 1;
        if ours.get().count == 0 {
            ours.remove();
        }
    }

    /// Counts one permit less.
    fn give_back(&mut self, is_releasing: bool) {
        if let Some(holder) = &mut self.holder {
            holder.permits -= 1;
            holder.releasing -= usize::from(is_releasing);
        }
        self.holder.take_if(|holder| holder.permits == 0);
    }
}

/// Waits until something is so, which it may be after each change.
async fn until_changed(changed: &Notify, mut is_so: impl FnMut() -> bool) {
    loop {
        let mut changed = pin!(changed.notified());
        // Enabled before the check, so that a change after the check is not missed.
        changed.as_mut().enable();
        if is_so() {
            return;
        }
        changed.await;
    }
}

impl QueueTicket {
    /// Waits for the releases that are under way. Then gives a permit if the queue has no holder.
    ///
    /// # Errors
    /// What has the permit instead.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub(super) async fn try_permit(mut self) -> Result<QueuePermit, PermitState> {
        let until = Instant::now() + LONGEST_RELEASE;
        loop {
            self.released(until).await;
            if self.permit_again() {
                return Ok(self.queues.permit(self.digest));
            }
            if self.wait_point.turns.try_acquire().map(SemaphorePermit::forget).is_ok() {
                return Ok(self.take_permit());
            }
            match self.state() {
                Some(state) => return Err(state),
                None if Instant::now() >= until => return Err(PermitState::Releasing),
                None => {}
            }
        }
    }

    /// What has the permit. `None` if it is a release for which attempts wait: it has begun just now.
    fn state(&self) -> Option<PermitState> {
        let queues = locked(&self.queues.0.queues);
        let queue = queues.get(&self.digest);
        let holder = queue.and_then(|queue| queue.holder.as_ref());
        match holder.is_some_and(|holder| holder.permits == holder.releasing) {
            true if queue.is_some_and(|queue| queue.releases > 0) => None,
            true => Some(PermitState::Releasing),
            false => Some(PermitState::Held),
        }
    }

    /// Waits for its turn, and for the releases that are under way then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub(super) async fn permit(mut self) -> Option<QueuePermit> {
        let wait_point = Arc::clone(&self.wait_point);
        let permitted = Arc::clone(&self.permitted);
        tokio::select! {
            biased;
            () = until_changed(&permitted, || self.permit_again()) => {
                Some(self.queues.permit(self.digest))
            }
            turn = wait_point.turns.acquire() => {
                // Dropped during a release, it goes to the next ticket. Turns never close.
                let turn = turn.ok()?;
                self.released(Instant::now() + LONGEST_RELEASE).await;
                turn.forget();
                Some(self.take_permit())
            }
        }
    }

    /// Waits for the releases that are under way, until then at most.
    async fn released(&self, until: Instant) {
        let released = until_changed(&self.wait_point.released, || {
            let queues = locked(&self.queues.0.queues);
            queues.get(&self.digest).is_none_or(|queue| queue.releases == 0)
        });
        // A timeout is no error: the lock itself knows whether the key is free.
        let _ = timeout_at(until, released).await;
    }

    /// Turns this ticket into the first permit of its owner.
    fn take_permit(&mut self) -> QueuePermit {
        self.is_waiting = false;
        let mut has_more_tickets = false;
        self.queues.change(self.digest, |queue| {
            queue.stop_waiting(self.owner);
            queue.holder = Some(PermitHolder { owner: self.owner, permits: 1, releasing: 0 });
            has_more_tickets = queue.waiting.contains_key(&self.owner);
        });
        if has_more_tickets {
            self.permitted.notify_waiters();
        }
        self.queues.permit(self.digest)
    }

    /// Turns this ticket into one more permit if its owner has one already.
    fn permit_again(&mut self) -> bool {
        let mut queues = locked(&self.queues.0.queues);
        let queue = queues.get_mut(&self.digest);
        let queue = queue.and_then(|queue| queue.permit_again(self.owner).then_some(queue));
        let Some(queue) = queue else { return false };
        queue.stop_waiting(self.owner);
        self.is_waiting = false;
        true
    }
}

impl PendingRelease {
    /// Attempts no longer wait for the release. The queue has a holder until it ends.
    pub(super) fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.is_awaited) {
            let wait_point = self.queues.change(self.digest, |queue| queue.releases -= 1);
            wait_point.inspect(|wait_point| wait_point.released.notify_waiters());
        }
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.queues.change(self.digest, |queue| queue.give_back(self.is_releasing));
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
        drop(self.permit.take());
        self.stop_waiting();
    }
}

bellwether::debug_fields! { LocalQueues => |it| keys = it.len() }

/// How long an attempt waits for a release at most: longer than a lock takes to answer.
pub(super) const LONGEST_RELEASE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
