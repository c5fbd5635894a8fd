//! What the protocol carries in the model: small numbers instead of values, leases and errors.

use crate::step::{AnswerOf, Event, Memory, Payload, State};

/// The payload of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Modelled;

impl Payload for Modelled {
    type Outcome = Given;
    type Generation = u8;
    type Accept = Wanted;
    type Lease = Grant;
    type Draft = Drafted;
    type Failure = u8;
    type Fallback = ModelFallback;
    type Other = OtherLease;
    type Moment = ();
}

pub(super) type Version = u8;

pub(super) type ModelAnswer = AnswerOf<Modelled>;

pub(super) type ModelMemory = Memory<Wanted, ModelFallback>;

/// What a flight is for. A process has one of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Answer,
    Forced,
    /// For callers whose wait for another load ran out.
    Uncached,
}

/// What waiters get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Given {
    Value {
        version: Version,
        is_private: bool,
        is_fresh: bool,
    },
    /// The failure of a load. If it reached the time limit: the generation that began with it.
    Failure {
        took_too_long: Option<u8>,
    },
    StoreFailed,
}

impl Given {
    pub(super) const FAILURE: Self = Self::Failure { took_too_long: None };

    pub(super) fn value(version: Version) -> Self {
        Self::Value { version, is_private: false, is_fresh: true }
    }

    pub(super) fn stale(version: Version) -> Self {
        Self::Value { version, is_private: false, is_fresh: false }
    }
}

/// Which stored entries answer a flight, so that it needs no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wanted {
    Fresh,
    Nothing,
    Other(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) fence: u8,
    /// How many loads had failed in a row when it was granted.
    pub(super) before: u8,
    /// A marker would replace a value or end a failure.
    pub(super) replaces: bool,
    /// The epoch of the tag, read before the grant.
    pub(super) epoch: u8,
}

/// What the store said of the lease of another flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OtherLease {
    pub(super) fence: u8,
    /// The epoch of the tag, read before that request.
    pub(super) epoch: u8,
}

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Drafted {
    Value(Version),
    /// A value that another program wrote.
    Unreadable,
    /// Nothing: the value is not stored, and the entry is removed.
    Nothing,
    PrivateKey,
    PrivateOnce,
    Uncacheable,
}

impl Drafted {
    pub(super) fn version(self) -> Option<Version> {
        match self {
            Self::Value(version) => Some(version),
            _ => None,
        }
    }
}

/// A stale fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelFallback {
    pub(super) version: Version,
    pub(super) asked: u8,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ModelFlight {
    pub(super) id: u8,
    pub(super) process: u8,
    pub(super) kind: Kind,
    pub(super) memory: ModelMemory,
    /// How many generations have begun.
    pub(super) generations: u8,
    /// There is a request to load with.
    pub(super) job: bool,
    pub(super) callers_look_up: bool,
    pub(super) is_in_background: bool,
    pub(super) is_releasing_at_close: bool,
    /// A request that releases its lease was lost, or one that takes it came again, so the lease has
    /// to lapse.
    pub(super) is_release_lost: bool,
    /// The stale fallback of the waiters that joined before a generation.
    pub(super) fallback: Option<(u8, Version)>,
    /// What its load has read from the source.
    pub(super) read: Option<Version>,
    /// The epoch that the request under way has read.
    pub(super) seen: Option<u8>,
    /// For the request under way, the pending invalidation was repeated, or there was none.
    pub(super) is_settled: bool,
    pub(super) doing: Doing,
}

impl ModelFlight {
    /// What the store sees of it: its token, and its process.
    pub(super) fn asker(&self) -> (u8, u8) {
        (self.id, self.process)
    }

    /// The request under way, the load or the wait ends with this.
    pub(super) fn happen(&mut self, event: Event<Modelled>) {
        self.read = None;
        self.seen = None;
        self.is_settled = false;
        self.doing = Doing::Happened(event);
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    /// An event has happened, and the flight has not acted on it yet.
    Happened(Event<Modelled>),
    /// A request is under way, a load runs, or the flight waits.
    Acting(State<Modelled>),
}
