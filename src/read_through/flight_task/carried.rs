//! What the protocol carries in a running flight.

use std::time::Duration;

use tokio::time::Instant;

use crate::flight::Generation;
use crate::read_through::outcome::{Outcome, StaleFallback};
use crate::read_through::step::{self, LeaseHold, Memory, Payload};
use crate::stats::LoadReason;
use crate::store::{Accept, Draft, Failure, Lease, OtherLease};

pub(super) struct Carried;

impl Payload for Carried {
    type Outcome = Outcome;
    type Generation = Generation;
    type Accept = Accept;
    type Lease = GrantedLease;
    type Draft = Draft;
    type Failure = Failure;
    type Fallback = AskedFallback;
    type Other = OtherLease;
    type Span = Duration;
    type Moment = Instant;
}

pub(super) type TaskState = step::State<Carried>;
pub(super) type TaskEvent = step::Event<Carried>;
pub(super) type FlightMemory = Memory<Accept, AskedFallback>;
pub(super) type FlightHold = LeaseHold<GrantedLease>;

/// A lease, and what the store said when it granted it.
pub(super) struct GrantedLease {
    pub(super) lease: Lease,
    /// When it was granted.
    pub(super) at: Instant,
    /// How many loads in a row had failed before.
    pub(super) failures: u32,
    /// The store has a value that a marker would replace, or a failure that a marker would end.
    pub(super) replaces: bool,
}

/// A stale fallback, and the generation of the request that found it. Later waiters must not get it.
pub(super) type AskedFallback = (Generation, StaleFallback);

/// What a flight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To answer its waiters.
    Answer,
    /// To replace the stored entry and answer its waiters with the new one: a forced refresh.
    ForceRefresh,
    /// To replace an entry in the background: no caller waits for it.
    Refresh(Accept),
    /// To answer callers whose wait for another load ran out. The answer is not stored: without a
    /// lease, an invalidation during the load cannot be detected.
    Uncached,
}

impl Purpose {
    pub(super) fn memory(self) -> FlightMemory {
        let accept = match self {
            Self::Answer | Self::Uncached => Accept::Fresh,
            Self::ForceRefresh => Accept::Nothing,
            Self::Refresh(accept) => accept,
        };
        Memory { accept, waited: false, fallback: None }
    }

    /// Why it loads, if it is for no caller.
    pub(super) fn background(self) -> Option<LoadReason> {
        match self {
            Self::Answer | Self::ForceRefresh | Self::Uncached => None,
            Self::Refresh(Accept::Fresh) => Some(LoadReason::Revalidation),
            Self::Refresh(_) => Some(LoadReason::Early),
        }
    }
}
