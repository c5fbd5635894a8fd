//! The protocol of a flight, as a table: what has happened, and what to do next.
//!
//! No clock, no randomness and no I/O. What is carried from an event to a later state is inside of
//! them, so what is written here is all there is. The table never looks into what it carries
//! ([`Payload`]), and the model checker runs this very function with a payload of its own.
//!
//! ```text
//!  Acquiring ──found──► complete the waiters that had joined ──► LookingUp, for later ones ──► ..
//!     │                   └─fresh, but due early──► Acquiring          (no waiter is left for it)
//!     ├─busy──► Waiting ──told, or paused──► Acquiring                 (a flat loop)
//!     ├─led───► Loading ──value──► Committing ──stored───► complete who joined before the commit
//!     │            │                  └─superseded───────► complete who joined before the load
//!     │            ├─private──► release waiters ──► Marking
//!     │            ├─own──► complete the opener, release waiters at the end ──► Marking
//!     │            ├─failed──► complete the opener only      (the others load with another request)
//!     │            ├─failed again, or by the source──► complete all
//!     │            ├─took too long──► complete who joined before the load
//!     │            └─abandoned──► Releasing
//!     ├─a load failed a moment ago──► Resting: complete all with the failure, for its window
//!     ├─waited, and the answer is private──► release waiters
//!     ├─waited, and the answer cannot be kept──► Loading without a lease
//!     └─store failed──► Loading without a lease ──► complete who joined before the load
//!
//!  Closed: the remaining waiters look again.
//! ```

mod parts;

pub(crate) use self::parts::{Blame, Hold, Known, LoadEnd, Meanwhile, Memory, Payload, To};

/// What a flight is doing. Each state ends with one of the events that are named with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State<P: Payload> {
    /// Asking the store for the entry or the lease: `Found`, `Unreadable`, `Private`, `Own`,
    /// `Unkept`, `Busy`, `Led`, `Failing`, `Spared`, `StoreFailed`.
    Acquiring { memory: Memory<P::Accept, P::Fallback> },
    /// Asking the store for the entry, for the waiters of a later generation: `NoneRemain`,
    /// `Found`, `Gone`.
    LookingUp { late: P::Generation, memory: Memory<P::Accept, P::Fallback> },
    /// Waiting for a change of the key, or for a pause, while another process has the lease for so
    /// much longer: `Waited`, `Abandoned`.
    Waiting { left: P::Span, memory: Memory<P::Accept, P::Fallback> },
    /// Calling the loader, and completing each other waiter with `meanwhile`: `LoadEnded`.
    Loading {
        hold: Hold<P::Lease>,
        meanwhile: Option<P::Outcome>,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// Storing what was loaded, and giving up the lease: `Stored`,
    /// `Superseded`, `CommitFailed`.
    Committing {
        lease: P::Lease,
        draft: P::Draft,
        /// Drawn before the load.
        began: P::Generation,
        outcome: P::Outcome,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// Giving up the lease, and telling other processes that the answer is not for them: `Released`,
    /// `Unacknowledged`.
    Marking { lease: P::Lease, marker: P::Draft },
    /// Giving up the lease, and telling other processes that the load has failed: `Released`,
    /// `Unacknowledged`.
    Reporting { lease: P::Lease, failure: P::Failure },
    /// Giving up the lease; if there is none, one that may have been granted: `Released`.
    Releasing { lease: Option<P::Lease> },
    /// Waiting for the end of a failure's window, or for a waiter to complete with the failure:
    /// `JoinedFailing`, `Rested`.
    Resting { failure: P::Outcome, until: P::Moment, hold: Hold<P::Lease> },
    /// The same, where the next waiter has to ask for itself what it may have: `JoinedSpared`,
    /// `Rested`.
    Sparing { until: P::Moment, memory: Memory<P::Accept, P::Fallback> },
    /// The flight is over.
    Closed,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event<P: Payload> {
    /// The store has an entry. It may be due to be replaced though it is fresh.
    Found {
        asked: P::Generation,
        outcome: P::Outcome,
        due: Option<P::Accept>,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// The store has an entry that cannot be read.
    Unreadable { accept: P::Accept, memory: Memory<P::Accept, P::Fallback> },
    /// The store has a marker: an answer was for one caller only, and so will the next ones be.
    Private { accept: P::Accept, memory: Memory<P::Accept, P::Fallback> },
    /// The store has a marker: an answer was for one caller only. It says nothing of the next ones.
    Own { accept: P::Accept, memory: Memory<P::Accept, P::Fallback> },
    /// The store has a marker: an answer could not be kept.
    Unkept {
        accept: P::Accept,
        known: Known<P::Outcome, P::Moment>,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// Another process has the lease for so much longer.
    Busy {
        asked: P::Generation,
        left: P::Span,
        meanwhile: Meanwhile<P::Outcome, P::Span>,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// We have the lease. If the load is a probe, other callers are given its failure meanwhile.
    Led {
        asked: P::Generation,
        lease: P::Lease,
        probe: Option<P::Outcome>,
        meanwhile: Meanwhile<P::Outcome, P::Span>,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// A load failed a moment ago, and there is no stale fallback. Without a window, the failure is
    /// for the waiters that are there.
    Failing { failure: P::Outcome, until: Option<P::Moment> },
    /// A load failed a moment ago, and there is a stale fallback.
    Spared {
        asked: P::Generation,
        stale: P::Outcome,
        until: P::Moment,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// The store did not answer.
    StoreFailed {
        error: P::Outcome,
        /// What is known in this process of earlier loads.
        known: Known<P::Outcome, P::Moment>,
        hold: Hold<P::Lease>,
        /// The policy is to load without a lease.
        may_load: bool,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// No waiter remains that joined too late for the last answer.
    NoneRemain,
    /// The store has nothing that may be given to the waiters that remain.
    Gone { accept: P::Accept, can_load: bool, memory: Memory<P::Accept, P::Fallback> },
    /// The wait for another process is over: told, or paused for long enough.
    Waited { memory: Memory<P::Accept, P::Fallback> },
    /// No waiter is left to wait for another process.
    Abandoned,
    /// The load is over.
    LoadEnded {
        hold: Hold<P::Lease>,
        end: LoadEnd<P::Outcome, P::Generation, P::Draft, P::Failure>,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// The value is stored: what was asked by then is answered by it.
    Stored { asked: P::Generation, outcome: P::Outcome, memory: Memory<P::Accept, P::Fallback> },
    /// Something newer, or an invalidation, came between the lease and the commit.
    Superseded { began: P::Generation, outcome: P::Outcome, memory: Memory<P::Accept, P::Fallback> },
    /// The commit was not answered: the value may be stored or not.
    CommitFailed { began: P::Generation, outcome: P::Outcome },
    /// A question that gives up the lease was not answered.
    Unacknowledged,
    /// The lease was given up.
    Released,
    /// A waiter has joined that is to be given the failure.
    JoinedFailing { failure: P::Outcome, until: P::Moment, hold: Hold<P::Lease> },
    /// A waiter has joined that may be given more than the failure.
    JoinedSpared { memory: Memory<P::Accept, P::Fallback> },
    /// The window of a failure is over, or something has changed.
    Rested { hold: Hold<P::Lease> },
}

/// What waiters are told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tell<P: Payload> {
    /// Some are completed with an outcome.
    Complete(To<P::Generation>, P::Outcome),
    /// Those that had joined before a generation may have a stale answer if they do not want to
    /// wait, for so long. Later ones look for themselves.
    Offer(P::Generation, P::Outcome, P::Span),
    /// The flight goes on in the background. Those that joined in a generation or later look for
    /// themselves.
    Detach(P::Generation),
    /// Those that are there load for themselves.
    Release,
    /// Those that are there when the flight is closed load for themselves.
    ReleaseAtClose,
}

/// What to do next: waiters are told, in this order, and then the next state begins.
pub(crate) struct Step<P: Payload> {
    pub(crate) tell: Vec<Tell<P>>,
    pub(crate) state: State<P>,
}

/// What to do next.
pub(crate) fn next<P: Payload>(event: Event<P>) -> Step<P> {
    match event {
        Event::Found { asked, outcome, due, memory } => found(asked, outcome, due, memory),
        Event::Unreadable { accept, memory } | Event::Gone { accept, can_load: true, memory } => {
            ask_again(accept, memory)
        }
        // The answers of those that load from now on may well be for all.
        Event::Private { accept, memory }
        | Event::Own { accept, memory }
        | Event::Unkept { accept, memory, .. }
            if !memory.waited =>
        {
            ask_again(accept, memory)
        }
        Event::Private { .. } => tell(Tell::Release, State::Closed),
        Event::Own { .. } => tell(Tell::ReleaseAtClose, State::Closed),
        Event::Unkept { known, memory, .. } => load_unless_known(Hold::Nothing, known, memory),
        Event::Busy { asked, left, meanwhile, memory } => {
            give(asked, meanwhile, State::Waiting { left, memory })
        }
        Event::Led { asked, lease, probe, meanwhile, memory } => {
            let hold = Hold::Lease(lease);
            give(asked, meanwhile, State::Loading { hold, meanwhile: probe, memory })
        }
        Event::Failing { failure, until: None } => complete(To::All, failure, State::Closed),
        Event::Failing { failure, until: Some(until) } => rest(failure, until, Hold::Nothing),
        Event::Spared { asked, stale, until, memory } => {
            complete(To::Before(asked), stale, State::Sparing { until, memory })
        }
        Event::StoreFailed { may_load: true, known, hold, memory, .. } => {
            load_unless_known(hold, known, memory)
        }
        Event::StoreFailed { known: Known::Cooldown(failure, until), hold, .. } => {
            rest(failure, until, hold)
        }
        Event::StoreFailed { error, hold, .. } => complete(To::All, error, give_up(hold)),
        Event::Waited { memory } | Event::JoinedSpared { memory } => ask(memory),
        Event::LoadEnded { hold, end, memory } => load_ended(hold, end, memory),
        Event::Stored { asked, outcome, memory } => look_up_later(asked, outcome, memory),
        Event::Superseded { began, outcome, memory } => look_up_later(began, outcome, memory),
        Event::CommitFailed { began, outcome } => complete(To::Before(began), outcome, unsure()),
        Event::JoinedFailing { failure, until, hold } => rest(failure, until, hold),
        Event::Rested { hold } => just(give_up(hold)),
        Event::Unacknowledged => just(unsure()),
        Event::NoneRemain | Event::Gone { .. } | Event::Abandoned | Event::Released => {
            just(State::Closed)
        }
    }
}

fn found<P: Payload>(
    asked: P::Generation,
    outcome: P::Outcome,
    due: Option<P::Accept>,
    memory: Memory<P::Accept, P::Fallback>,
) -> Step<P> {
    let Some(accept) = due else {
        return look_up_later(asked, outcome, memory);
    };
    let state = State::Acquiring { memory: Memory { accept, ..memory } };
    Step { tell: vec![Tell::Complete(To::Before(asked), outcome), Tell::Detach(asked)], state }
}

/// Completes the waiters that had joined before, and asks for those that joined later.
fn look_up_later<P: Payload>(
    late: P::Generation,
    outcome: P::Outcome,
    memory: Memory<P::Accept, P::Fallback>,
) -> Step<P> {
    complete(To::Before(late), outcome, State::LookingUp { late, memory })
}

/// With another entry than the one that will not do.
fn ask_again<P: Payload>(accept: P::Accept, memory: Memory<P::Accept, P::Fallback>) -> Step<P> {
    ask(Memory { accept, ..memory })
}

fn ask<P: Payload>(memory: Memory<P::Accept, P::Fallback>) -> Step<P> {
    just(State::Acquiring { memory })
}

fn give<P: Payload>(
    asked: P::Generation,
    meanwhile: Meanwhile<P::Outcome, P::Span>,
    state: State<P>,
) -> Step<P> {
    let tell = match meanwhile {
        Meanwhile::Nothing => vec![],
        Meanwhile::Give(stale) => {
            vec![Tell::Complete(To::Before(asked), stale), Tell::Detach(asked)]
        }
        Meanwhile::Offer(stale, good_for) => vec![Tell::Offer(asked, stale, good_for)],
    };
    Step { tell, state }
}

/// Without a lease: unless it is known that the load would fail.
fn load_unless_known<P: Payload>(
    hold: Hold<P::Lease>,
    known: Known<P::Outcome, P::Moment>,
    memory: Memory<P::Accept, P::Fallback>,
) -> Step<P> {
    let meanwhile = match known {
        Known::Cooldown(failure, until) => return rest(failure, until, hold),
        Known::Probe(failure) => Some(failure),
        Known::Nothing => None,
    };
    just(State::Loading { hold, meanwhile, memory })
}

fn rest<P: Payload>(failure: P::Outcome, until: P::Moment, hold: Hold<P::Lease>) -> Step<P> {
    complete(To::All, failure.clone(), State::Resting { failure, until, hold })
}

/// Once a load is over.
fn load_ended<P: Payload>(
    hold: Hold<P::Lease>,
    end: LoadEnd<P::Outcome, P::Generation, P::Draft, P::Failure>,
    memory: Memory<P::Accept, P::Fallback>,
) -> Step<P> {
    match (end, hold) {
        (LoadEnd::Value { began, outcome, draft }, Hold::Lease(lease)) => {
            just(State::Committing { lease, draft, began, outcome, memory })
        }
        // An invalidation may have happened during the load, so later waiters must not get it.
        (LoadEnd::Value { began, outcome, .. }, Hold::Nothing) => {
            look_up_later(began, outcome, memory)
        }
        (LoadEnd::Value { began, outcome, .. }, hold) => {
            complete(To::Before(began), outcome, give_up(hold))
        }
        (LoadEnd::Private { outcome, marker }, hold) => {
            private(outcome, Tell::Release, mark(hold, Some(marker)))
        }
        (LoadEnd::Own { outcome, marker }, hold) => {
            private(outcome, Tell::ReleaseAtClose, mark(hold, marker))
        }
        (LoadEnd::Failed { began, outcome, blame, fallback, report }, hold) => {
            let state = self::report(hold, report);
            match (fallback, blame) {
                // Later waiters may be given more than this, and ask for it.
                (Some((stale, asked)), _) => complete(To::Before(asked), stale, state),
                (None, Blame::Request) => complete(To::Opener, outcome, state),
                (None, Blame::Limit) => complete(To::Before(began), outcome, state),
                (None, Blame::Source) => complete(To::All, outcome, state),
            }
        }
        (LoadEnd::Abandoned | LoadEnd::NoRequest, hold) => just(give_up(hold)),
    }
}

fn private<P: Payload>(outcome: P::Outcome, release: Tell<P>, state: State<P>) -> Step<P> {
    Step { tell: vec![Tell::Complete(To::Opener, outcome), release], state }
}

fn mark<P: Payload>(hold: Hold<P::Lease>, marker: Option<P::Draft>) -> State<P> {
    match (hold, marker) {
        (Hold::Lease(lease), Some(marker)) => State::Marking { lease, marker },
        (hold, _) => give_up(hold),
    }
}

fn report<P: Payload>(hold: Hold<P::Lease>, failure: Option<P::Failure>) -> State<P> {
    match (hold, failure) {
        (Hold::Lease(lease), Some(failure)) => State::Reporting { lease, failure },
        (hold, _) => give_up(hold),
    }
}

fn give_up<P: Payload>(hold: Hold<P::Lease>) -> State<P> {
    match hold {
        Hold::Lease(lease) => State::Releasing { lease: Some(lease) },
        Hold::Unacknowledged => unsure(),
        Hold::Nothing | Hold::StoreDown => State::Closed,
    }
}

/// Gives up a lease that may be ours.
fn unsure<P: Payload>() -> State<P> {
    State::Releasing { lease: None }
}

fn complete<P: Payload>(to: To<P::Generation>, outcome: P::Outcome, state: State<P>) -> Step<P> {
    tell(Tell::Complete(to, outcome), state)
}

fn tell<P: Payload>(tell: Tell<P>, state: State<P>) -> Step<P> {
    Step { tell: vec![tell], state }
}

fn just<P: Payload>(state: State<P>) -> Step<P> {
    Step { tell: vec![], state }
}

#[cfg(test)]
mod tests;
