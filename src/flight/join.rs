//! How callers get their part in a flight: they look up alone, join, or open one.

use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use super::abandoned::CancelledLoad;
use super::leader::Leader;
use super::state::lock;
use super::table::{Flights, Full, Shard, Slot};
use super::waiter::{Joining, Waiter};
use crate::key::{Digest, Key};
use crate::tag::Tags;
use crate::trace::CallerSpan;

/// The part of a caller in a flight.
#[derive(Debug)]
pub(crate) enum Role<L> {
    /// It opened the flight: it spawns a task with the leader, and polls the waiter.
    Opened(Leader<L>, Waiter<L>),
    /// Another caller opened it.
    Joined(Waiter<L>),
    /// None, because a bound is reached.
    Refused(Full),
}

impl<L> Flights<L> {
    /// Lets a caller read the store itself, without a task, if no other caller asks for this key.
    /// `None` if another one does: then the caller joins, so that a burst is one request.
    pub(crate) fn look_up_alone(self: &Arc<Self>, key: &Key) -> Option<LoneLookup<L>> {
        let digest = key.digest();
        let mut shard = self.shard(&digest);
        let Shard { slots, lookups } = &mut *shard;
        match slots.entry(digest) {
            Entry::Occupied(slot) => match slot.get() {
                // No caller has to wait for it.
                Slot::Flight(flight) if lock(&flight.state).callers_look_up => {
                    Some(LoneLookup { flights: Arc::clone(self), digest, id: None })
                }
                _ => None,
            },
            Entry::Vacant(slot) => {
                *lookups += 1;
                slot.insert(Slot::Lookup(*lookups));
                Some(LoneLookup { flights: Arc::clone(self), digest, id: Some(*lookups) })
            }
        }
    }

    /// Joins the flight of this key, or opens one for requests with these tags. A waiter that
    /// `fails_fast` is also woken when the phase of the flight changes. The span of a waiter is
    /// linked to the load that it waits for.
    ///
    /// A caller that has looked up alone gives the [number](LoneLookup::number) of that. It has asked
    /// before a flight that was opened since, so each answer of that flight is for it.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: &Key,
        tags: &Tags,
        looked_up: Option<u64>,
        fails_fast: bool,
        span: &CallerSpan,
    ) -> Role<L> {
        let digest = key.digest();
        let mut shard = self.shard(&digest);
        if let Some(Slot::Flight(flight)) = shard.slots.get(&digest) {
            let most = self.bounds.waiters;
            let is_first = looked_up.is_some_and(|lookup| lookup <= flight.opened_after);
            let as_who = if is_first { Joining::Before } else { Joining::Now };
            let joined = Waiter::register(flight, tags, fails_fast, as_who, most, span);
            drop(shard);
            let Some((waiter, load)) = joined else { return Role::Refused(Full::Waiters) };
            load.inspect(|load| load.link(span));
            return Role::Joined(waiter);
        }
        let Some((flight, cancelled)) = self.open(&mut shard, digest, tags) else {
            return Role::Refused(Full::Flights);
        };
        let most = self.bounds.waiters;
        let waiter = Waiter::register(&flight, tags, fails_fast, Joining::Opener, most, span);
        drop(shard);
        cancelled.into_iter().for_each(CancelledLoad::tell);
        let leader = Leader::new(Arc::clone(self), key.clone(), flight);
        match waiter {
            Some((waiter, _)) => Role::Opened(leader, waiter),
            None => Role::Refused(Full::Waiters),
        }
    }

    /// Opens a flight in the background, without a waiter. `None` if the key has a flight, or if
    /// there are as many flights as there may be.
    pub(crate) fn open_in_background(
        self: &Arc<Self>,
        key: &Key,
        tags: &Tags,
    ) -> Option<Leader<L>> {
        let digest = key.digest();
        let mut shard = self.shard(&digest);
        if matches!(shard.slots.get(&digest), Some(Slot::Flight(_))) {
            return None;
        }
        let (flight, cancelled) = self.open(&mut shard, digest, tags)?;
        drop(shard);
        cancelled.into_iter().for_each(CancelledLoad::tell);
        let leader = Leader::new(Arc::clone(self), key.clone(), flight);
        leader.run_in_the_background();
        Some(leader)
    }
}

/// A caller that reads the store alone. Dropping it frees its slot in the table.
pub(crate) struct LoneLookup<L> {
    flights: Arc<Flights<L>>,
    digest: Digest,
    /// `None`: a flight has the slot.
    id: Option<u64>,
}

impl<L> LoneLookup<L> {
    /// Its number, unless a flight has the slot.
    pub(crate) fn number(&self) -> Option<u64> {
        self.id
    }
}

impl<L> Drop for LoneLookup<L> {
    fn drop(&mut self) {
        if let Some(ours) = self.id {
            self.flights
                .remove(&self.digest, |slot| matches!(slot, Slot::Lookup(id) if *id == ours));
        }
    }
}

impl<L> fmt::Debug for LoneLookup<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoneLookup").field(&self.digest).finish()
    }
}
