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
        let Some(bound) = self.bound.filter(|_| !self.leader.passes()) else {
            return Some(LoadAdmission::Free);
        };
        let group = self.group();
        let shared = group.as_deref().and_then(LoadGroup::permit);
        shared
            .map(LoadAdmission::Permit)
            .or_else(|| Some(admission(group.as_deref(), bound.try_permit()?)))
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
            if self.leader.passes() {
                return Some(LoadAdmission::Free);
            }
            if let Some(shared) = group.and_then(LoadGroup::permit) {
                return Some(LoadAdmission::Permit(shared));
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
