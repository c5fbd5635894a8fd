//! The protocol with one rule broken, to see that the model notices.

use super::payload::{Drafted, Given, Modelled};
use crate::read_through::step::{Event, Hold, LoadEnd, State, Step, Tell, To};

/// A rule of the table that the model can be run without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    None,
    /// What was found is given to waiters that joined after the question.
    GenerationsForFound,
    GenerationsForStored,
    GenerationsForSuperseded,
    GenerationsForUnacknowledged,
    /// What was loaded without a lease is given to waiters that joined after the load began.
    GenerationsForUnleased,
    GenerationsForStale,
    GenerationsForSpared,
    GenerationsForFallbacks,
    GenerationsForOffers,
    GenerationsForLimits,
    /// A failure of one request is given to all.
    FailuresOfOneRequest,
    PrivateAnswers,
    OwnAnswers,
    /// The load of another process is not waited for.
    Waits,
    /// A lease is not given up when the flight is abandoned.
    ReleaseOfAbandoned,
    ReleaseOfFailed,
    ReleaseOfMarked,
    ReleaseOfUnacknowledged,
    /// The opener is not given its failure.
    AnswersOfOpeners,
}

impl Mutant {
    /// Each, and the first scenario that notices it.
    pub(super) const ALL: [(Self, &str); 19] = [
        (Self::GenerationsForFound, "stale while revalidating"),
        (Self::GenerationsForStored, "stale while revalidating"),
        (Self::GenerationsForSuperseded, "stale while revalidating"),
        (Self::GenerationsForUnacknowledged, "the store fails"),
        (Self::GenerationsForUnleased, "the store fails"),
        (Self::GenerationsForStale, "stale while revalidating"),
        (Self::GenerationsForSpared, "stale after failures"),
        (Self::GenerationsForFallbacks, "stale if error"),
        (Self::GenerationsForOffers, "stale if error, callers are in a hurry"),
        (Self::GenerationsForLimits, "loads fail"),
        (Self::FailuresOfOneRequest, "loads fail"),
        (Self::PrivateAnswers, "private answers"),
        (Self::OwnAnswers, "own answers"),
        (Self::Waits, "loads fail"),
        (Self::ReleaseOfAbandoned, "callers go, and loads are cancelled"),
        (Self::ReleaseOfFailed, "loads fail"),
        (Self::ReleaseOfMarked, "private answers"),
        (Self::ReleaseOfUnacknowledged, "the store and a load fail"),
        (Self::AnswersOfOpeners, "loads fail"),
    ];

    /// Breaks the rule, where this event is what it is for.
    pub(super) fn apply(self, event: &Event<Modelled>, step: &mut Step<Modelled>) {
        if !self.is_about(event) {
            return;
        }
        match self {
            Self::GenerationsForOffers => {
                for tell in &mut step.tell {
                    if let Tell::Offer(asked, ..) = tell {
                        *asked = u8::MAX;
                    }
                }
            }
            Self::Waits => {
                if let State::Waiting { memory, .. } = step.state {
                    step.state = State::Loading { hold: Hold::Nothing, meanwhile: None, memory };
                }
            }
            Self::ReleaseOfAbandoned
            | Self::ReleaseOfFailed
            | Self::ReleaseOfMarked
            | Self::ReleaseOfUnacknowledged => step.state = State::Closed,
            Self::AnswersOfOpeners => step.tell.clear(),
            _ => {
                for tell in &mut step.tell {
                    if let Tell::Complete(to, _) = tell {
                        *to = To::All;
                    }
                }
            }
        }
    }

    fn is_about(self, event: &Event<Modelled>) -> bool {
        match event {
            Event::Found { .. } => self == Self::GenerationsForFound,
            Event::Stored { .. } => self == Self::GenerationsForStored,
            Event::Superseded { .. } => self == Self::GenerationsForSuperseded,
            Event::CommitFailed { .. } => {
                matches!(self, Self::GenerationsForUnacknowledged | Self::ReleaseOfUnacknowledged)
            }
            Event::Busy { .. } => {
                matches!(self, Self::Waits | Self::GenerationsForStale | Self::GenerationsForOffers)
            }
            Event::Led { .. } => {
                matches!(self, Self::GenerationsForStale | Self::GenerationsForOffers)
            }
            Event::Spared { .. } => self == Self::GenerationsForSpared,
            Event::LoadEnded { hold, end, .. } => self.is_about_end(*hold, end),
            _ => false,
        }
    }

    fn is_about_end<L>(self, hold: Hold<L>, end: &LoadEnd<Given, u8, Drafted, u8>) -> bool {
        let is_leased = matches!(hold, Hold::Lease(_));
        match end {
            LoadEnd::Value { .. } => self == Self::GenerationsForUnleased && !is_leased,
            LoadEnd::Private { .. } => {
                self == Self::PrivateAnswers || self == Self::ReleaseOfMarked && is_leased
            }
            LoadEnd::Own { .. } => {
                self == Self::OwnAnswers || self == Self::ReleaseOfMarked && is_leased
            }
            LoadEnd::Failed { fallback: Some(_), .. } => self == Self::GenerationsForFallbacks,
            LoadEnd::Failed { outcome: Given::Failure { took_too_long: Some(_) }, .. } => {
                self == Self::GenerationsForLimits
            }
            LoadEnd::Failed { .. } => {
                matches!(self, Self::FailuresOfOneRequest | Self::AnswersOfOpeners)
                    || self == Self::ReleaseOfFailed && is_leased
            }
            LoadEnd::Abandoned => self == Self::ReleaseOfAbandoned && is_leased,
            LoadEnd::NoRequest => false,
        }
    }
}
