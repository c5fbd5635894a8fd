//! Mutants: the protocol with one rule broken each. The model has to notice.

use super::payload::{Given, Grant, ModelAnswer, Modelled};
use crate::step::{Event, LeaseHold, Share, State, Step, To, WaiterAction};

/// A rule of the protocol that a walk can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    None,
    /// A found entry is given to waiters that joined after the request.
    GenerationsForFound,
    GenerationsForStored,
    GenerationsForSuperseded,
    GenerationsForUnacknowledged,
    /// A value loaded without a lease is given to waiters that joined after the load began.
    GenerationsForUnleased,
    GenerationsForStale,
    GenerationsForQueued,
    GenerationsForCooldowns,
    GenerationsForFallbacks,
    GenerationsForSetFallbacks,
    GenerationsForLimits,
    /// A failure of one request is given to all.
    FailuresOfOneRequest,
    /// One of an uncached load is.
    FailuresOfUncached,
    /// A private answer of an uncached load is given to all.
    PrivateAnswersOfUncached,
    PrivateKeyAnswers,
    PrivateOnceAnswers,
    /// No flight waits for the load of another process.
    Waits,
    /// The value of a message is given to waiters that joined after the request.
    GenerationsForTold,
    /// An abandoned flight does not release its lease.
    ReleaseOfAbandoned,
    ReleaseOfFailed,
    ReleaseOfMarked,
    ReleaseOfUnacknowledged,
    /// The opener does not get its failure.
    AnswersOfOpeners,
    /// A load without a lease begins for no caller.
    LoadsForWaiters,
}

impl Mutant {
    /// Each mutant, and the first scenario that notices it.
    pub(super) const ALL: [(Self, &str); 28] = [
        (Self::GenerationsForFound, "stale while revalidating"),
        (Self::GenerationsForTold, "messages"),
        (Self::GenerationsForTold, "messages of a put"),
        (Self::GenerationsForStored, "stale while revalidating"),
        (Self::GenerationsForStored, "a tag expires"),
        (Self::GenerationsForFound, "a put and an invalidation"),
        (Self::GenerationsForSuperseded, "stale while revalidating"),
        (Self::GenerationsForUnacknowledged, "the store fails"),
        (Self::GenerationsForUnleased, "the store fails"),
        (Self::GenerationsForStale, "stale while revalidating"),
        (Self::GenerationsForCooldowns, "stale after failures"),
        (Self::GenerationsForFallbacks, "stale if error"),
        (Self::GenerationsForSetFallbacks, "stale if error, callers are in a hurry"),
        (Self::GenerationsForQueued, "a flight queues, stale while revalidating"),
        (Self::GenerationsForLimits, "loads fail"),
        (Self::FailuresOfOneRequest, "loads fail"),
        (Self::GenerationsForUnleased, "waits run out"),
        (Self::FailuresOfUncached, "waits run out, and loads fail"),
        (Self::PrivateAnswersOfUncached, "waits run out, and answers are private"),
        (Self::PrivateKeyAnswers, "private answers"),
        (Self::PrivateOnceAnswers, "answers private once"),
        (Self::Waits, "loads fail"),
        (Self::ReleaseOfAbandoned, "callers go, and loads are cancelled"),
        (Self::ReleaseOfFailed, "loads fail"),
        (Self::ReleaseOfMarked, "private answers"),
        (Self::ReleaseOfUnacknowledged, "the store and a load fail"),
        (Self::AnswersOfOpeners, "loads fail"),
        (Self::LoadsForWaiters, "due early"),
    ];

    /// Breaks the rule in the step after an event, if the rule is about that event.
    pub(super) fn apply(self, event: &Event<Modelled>, step: &mut Step<Modelled>) {
        if !self.is_about(event) {
            return;
        }
        match self {
            Self::GenerationsForSetFallbacks => {
                for action in &mut step.actions {
                    if let WaiterAction::SetFallback(asked, ..) = action {
                        *asked = u8::MAX;
                    }
                }
            }
            Self::Waits => {
                if let State::Waiting { .. } = step.state {
                    step.state = State::Loading { hold: LeaseHold::Nothing, meanwhile: None };
                }
            }
            Self::ReleaseOfAbandoned
            | Self::ReleaseOfFailed
            | Self::ReleaseOfMarked
            | Self::ReleaseOfUnacknowledged => step.state = State::Closed,
            Self::AnswersOfOpeners => step.actions.clear(),
            _ => {
                for action in &mut step.actions {
                    if let WaiterAction::Complete(to, _) = action {
                        *to = To::All;
                    }
                }
            }
        }
    }

    fn is_about(self, event: &Event<Modelled>) -> bool {
        match event {
            Event::Found { .. } => self == Self::GenerationsForFound,
            Event::Told { .. } => self == Self::GenerationsForTold,
            Event::Stored { .. } => self == Self::GenerationsForStored,
            Event::Superseded { .. } => self == Self::GenerationsForSuperseded,
            Event::CommitFailed { .. } => {
                matches!(self, Self::GenerationsForUnacknowledged | Self::ReleaseOfUnacknowledged)
            }
            Event::Busy { .. } => {
                matches!(
                    self,
                    Self::Waits | Self::GenerationsForStale | Self::GenerationsForSetFallbacks
                )
            }
            Event::Queued { .. } => self == Self::GenerationsForQueued,
            Event::Granted { .. } => {
                matches!(self, Self::GenerationsForStale | Self::GenerationsForSetFallbacks)
            }
            Event::InCooldownStale { .. } => self == Self::GenerationsForCooldowns,
            Event::NotLoaded { hold: LeaseHold::Lease(_) } => self == Self::ReleaseOfAbandoned,
            Event::LoadEnded { hold, answer, .. } => self.is_about_end(*hold, answer),
            _ => false,
        }
    }

    fn is_about_end(self, hold: LeaseHold<Grant>, answer: &ModelAnswer) -> bool {
        let is_leased = matches!(hold, LeaseHold::Lease(_));
        match (answer.outcome, answer.share) {
            (Given::Value { .. }, Share::PrivateKey) => match self {
                Self::PrivateAnswersOfUncached => !is_leased,
                Self::ReleaseOfMarked => is_leased,
                _ => self == Self::PrivateKeyAnswers,
            },
            (Given::Value { .. }, Share::PrivateOnce) => {
                self == Self::PrivateOnceAnswers || self == Self::ReleaseOfMarked && is_leased
            }
            (Given::Value { .. }, _) => self == Self::GenerationsForUnleased && !is_leased,
            _ if answer.fallback.is_some() => self == Self::GenerationsForFallbacks,
            (_, Share::Joined) => self == Self::GenerationsForLimits,
            _ => match self {
                Self::FailuresOfUncached => !is_leased,
                Self::ReleaseOfFailed => is_leased,
                _ => matches!(self, Self::FailuresOfOneRequest | Self::AnswersOfOpeners),
            },
        }
    }
}
