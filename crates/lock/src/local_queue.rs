//! Local queues: one caller of this process at a time asks the lock for a key. The others wait
//! here, and cost the lock nothing.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::adapter::locked;
use bellwether::store::Digest;
use tokio::sync::{Notify, oneshot};
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
    holder: Option<PermitHolder>,
    /// The owners that wait, in the order of arrival, and what gives each of their tickets a permit.
    waiting: BTreeMap<u64, (Owner, Vec<oneshot::Sender<QueuePermit>>)>,
    places: HashMap<Owner, u64>,
    /// How many owners have waited.
    arrived: u64,
    /// Notified when a release has ended. Only tries and a ticket with a permit wait for that, and make it. They
    /// keep the queue in use.
    released: Option<Arc<Notify>>,
    /// How many releases are under way.
    releases: usize,
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
    place: u64,
    given: oneshot::Receiver<QueuePermit>,
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
        if let Some(holder) = queue.holder.as_mut().filter(|holder| holder.owner == owner) {
            holder.permits += 1;
            drop(queues);
            return Ok(self.permit(digest));
        }
        let (give, given) = oneshot::channel();
        let place = queue.wait(owner, give);
        drop(queues);
        // A queue may have no holder, but a release.
        self.change(digest, |_| {});
        Err(QueueTicket { queues: self.clone(), digest, place, given })
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

    /// Changes a queue. Gives permits to the next owner if it has no holder then, and removes it if it
    /// is unused.
    fn change(&self, digest: Digest, change: impl FnOnce(&mut LocalQueue)) {
        let mut queues = locked(&self.0.queues);
        let Entry::Occupied(mut queue) = queues.entry(digest) else { return };
        change(queue.get_mut());
        let next = queue.get_mut().next();
        if !queue.get().is_used() {
            queue.remove();
        }
        drop(queues);
        for ticket in next {
            // A ticket that was dropped just now gives its permit back.
            drop(ticket.send(self.permit(digest)));
        }
    }

    /// Waits for the releases of a key that are under way, until then at most.
    async fn released(&self, digest: Digest, until: Instant) {
        let released = async {
            while let Some(released) = self.end_of_release(digest) {
                let mut ended = pin!(released.notified());
                // Enabled before the check, so that an end after the check is not missed.
                ended.as_mut().enable();
                if self.end_of_release(digest).is_none() {
                    return;
                }
                ended.await;
            }
        };
        // A timeout is no error: the lock itself knows whether the key is free.
        let _ = timeout_at(until, released).await;
    }

    /// What is notified when a release of a key has ended, if one is under way.
    fn end_of_release(&self, digest: Digest) -> Option<Arc<Notify>> {
        let mut queues = locked(&self.0.queues);
        let queue = queues.get_mut(&digest).filter(|queue| queue.releases > 0)?;
        Some(Arc::clone(queue.released.get_or_insert_default()))
    }
}

impl LocalQueue {
    fn is_used(&self) -> bool {
        self.holder.is_some() || !self.waiting.is_empty() || self.releases > 0
    }

    /// Adds a ticket. All tickets of an owner have one place.
    fn wait(&mut self, owner: Owner, ticket: oneshot::Sender<QueuePermit>) -> u64 {
        self.arrived += 1;
        let place = *self.places.entry(owner).or_insert(self.arrived);
        self.waiting.entry(place).or_insert_with(|| (owner, Vec::new())).1.push(ticket);
        place
    }

    /// Removes the tickets of a place that were dropped.
    fn stop_waiting(&mut self, place: u64) {
        let Some((owner, tickets)) = self.waiting.get_mut(&place) else { return };
        tickets.retain(|ticket| !ticket.is_closed());
        if tickets.is_empty() {
            self.places.remove(owner);
            self.waiting.remove(&place);
        }
    }

    /// The tickets of the next owner, which has the permits from now on, if there was no holder.
    fn next(&mut self) -> Vec<oneshot::Sender<QueuePermit>> {
        let next = if self.holder.is_none() { self.waiting.pop_first() } else { None };
        let Some((_, (owner, tickets))) = next else { return Vec::new() };
        self.places.remove(&owner);
        self.holder = Some(PermitHolder { owner, permits: tickets.len(), releasing: 0 });
        tickets
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
            self.queues.released(self.digest, until).await;
            if let Ok(permit) = self.given.try_recv() {
                return Ok(permit);
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
    /// Dropping the future leaves the queue. A permit that it was given goes to the next ticket.
    pub(super) async fn permit(mut self) -> Option<QueuePermit> {
        // A ticket is not dropped without a permit while it waits.
        let permit = (&mut self.given).await.ok()?;
        self.queues.released(self.digest, Instant::now() + LONGEST_RELEASE).await;
        Some(permit)
    }
}

impl PendingRelease {
    /// Attempts no longer wait for the release. The queue has a holder until it ends.
    pub(super) fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.is_awaited) {
            let mut released = None;
            self.queues.change(self.digest, |queue| {
                queue.releases -= 1;
                released = queue.released.clone();
            });
            released.inspect(|released| released.notify_waiters());
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
        self.given.close();
        self.queues.change(self.digest, |queue| queue.stop_waiting(self.place));
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
