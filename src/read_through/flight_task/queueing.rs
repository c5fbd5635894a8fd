//! The queue before a load: a flight waits here for its permit.

use std::sync::Arc;

use futures_util::future::OptionFuture;
use tokio::time::Instant;

use crate::flight::{Leader, Phase};
use crate::loads::{LoadPermit, LoadRank, Loads};
use crate::read_through::load_group::{GroupOfItem, LoadGroup};
use crate::read_through::outcome::Outcome;

/// What lets a flight ask for the lease and load. It is kept until the load has ended, and given back if
/// the flight waits for another process.
pub(super) enum LoadAdmission {
    /// There is no bound, or a load that may hold a permit waits for this one.
    Free,
    /// For an item of a batch, its group has it too.
    Permit(Arc<LoadPermit>),
}

impl LoadAdmission {
    /// Its load began then and has ended.
    pub(super) fn note(&self, began: Instant) {
        if let Self::Permit(permit) = self {
            permit.note(began);
        }
    }
}

/// A flight, as far as its place in the queue needs it.
pub(super) struct Queueing<'a> {
    pub(super) leader: &'a Leader<Outcome>,
    pub(super) bound: Option<&'a Loads>,
    pub(super) group_of: Option<&'a GroupOfItem>,
    /// It has waited for the load of another process.
    pub(super) has_waited: bool,
}

impl Queueing<'_> {
    /// Without a wait, if that is possible.
    pub(super) fn at_once(&self) -> Option<LoadAdmission> {
        let group = self.group();
        let group = group.as_deref();
        self.unqueued(group).or_else(|| Some(admission(group, self.bound?.try_permit()?)))
    }

    /// Without a permit of its own, if it needs none.
    fn unqueued(&self, group: Option<&LoadGroup>) -> Option<LoadAdmission> {
        if self.bound.is_none() || self.leader.passes() {
            return Some(LoadAdmission::Free);
        }
        group.and_then(LoadGroup::permit).map(LoadAdmission::Permit)
    }

    /// Waits for its turn. `None` if all callers have left.
    ///
    /// # Cancel safety
    /// Dropping it gives the place up, and a permit that was handed to it goes to the next flight.
    pub(super) async fn wait(&self) -> Option<LoadAdmission> {
        let Some(bound) = self.bound else { return Some(LoadAdmission::Free) };
        let mut ticket = bound.queue(self.rank());
        let group = self.group();
        let group = group.as_deref();
        loop {
            // Before the permit is looked for: it may be shared meanwhile.
            let shared = group.map(LoadGroup::shared);
            if let Some(admission) = self.unqueued(group) {
                return Some(admission);
            }
            // Each time: when its group shared a permit, the batch expected this item to go on.
            self.leader.enter(Phase::Queueing);
            ticket.move_to(self.rank());
            tokio::select! {
                biased;
                () = self.leader.abandoned() => return None,
                permit = &mut ticket => return Some(admission(group, permit)),
                () = self.leader.has_joined() => {}
                Some(()) = OptionFuture::from(shared) => {}
            }
        }
    }

    fn group(&self) -> Option<Arc<LoadGroup>> {
        self.group_of.map(|group_of| group_of())
    }

    fn rank(&self) -> LoadRank {
        match self.leader.is_awaited() {
            false => LoadRank::Background,
            true if self.has_waited => LoadRank::Asked,
            true => LoadRank::Awaited,
        }
    }
}

fn admission(group: Option<&LoadGroup>, permit: LoadPermit) -> LoadAdmission {
    LoadAdmission::Permit(match group {
        Some(group) => group.share(permit),
        None => Arc::new(permit),
    })
}
