//! The protocol of a flight as a pure function: [`next`] takes what has happened and gives what to
//! do.
//!
//! It has no clock, no randomness and no I/O. States and events carry all that it needs, as a
//! [`Payload`] that it never looks into; a [`Memory`] is what lasts from one request to the next. So the flight task and the model checker run the same
//! function.
//!
//! A flight is in one [`State`] at a time. Each state ends with an [`Event`], and each event leads
//! to actions on the waiters and to the next state:
//!
//! ```text
//!  state         event                  action on the waiters             next state
//!  ────────────  ─────────────────────  ────────────────────────────────  ───────────────────────
//!  Acquiring     Found                  complete those before the request LookingUp (later ones)
//!                Found, due early       the same; go to the background    Acquiring
//!                Queued (for a permit)                                    Acquiring
//!                Busy                                                     Waiting
//!                Granted                                                  Loading
//!                InCooldown             complete all with the failure     CoolingDown
//!                Uncacheable (waited)                                     Loading without a lease
//!                PrivateKey (waited)    release                           Closed
//!                StoreFailed                                              Loading without a lease
//!  Waiting       Told (the value)       complete those before the request LookingUp (later ones)
//!                Waited (hint, delay)                                     Acquiring
//!  none          WaitRanOut                                               Loading without a lease
//!  Loading       a value, leased                                          Committing
//!                a value, no lease      complete those before the load    LookingUp (later ones)
//!                a private answer       complete the opener; release      Releasing
//!                a first failure        complete the opener               Releasing
//!                a confirmed failure    complete all                      Releasing
//!                over the time limit    complete those before the load    Releasing
//!                NotLoaded                                                Releasing
//!  Committing    Stored                 complete those before the commit  LookingUp (later ones)
//!                Superseded             complete those before the load    LookingUp (later ones)
//!  LookingUp     NoneRemain                                               Closed
//!  CoolingDown   a waiter joined        complete all with the failure     CoolingDown
//!                CooldownEnded                                            Closed
//! ```
//!
//! When a flight is `Closed`, its remaining waiters ask again. "Release" tells waiters to load
//! individually. What an answer of the loader is worth to others is the [`verdict`] on it. `crates/model` tests every row.

mod states;

pub(crate) use self::states::{
    AfterPut, AnswerKind, AnswerOf, KnownFailure, KnownOfKey, LeaseHold, LoadAnswer, Meanwhile,
    Memory, Payload, PutAttempt, Record, Remember, Share, State, To, Verdict, WaiterAction,
};

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event<P: Payload> {
    /// The store has a fresh entry. `due` is set if it is time for an early refresh.
    Found { asked: P::Generation, outcome: P::Outcome, due: Option<P::Accept> },
    /// The store has an entry that cannot be read.
    Unreadable { accept: P::Accept },
    /// The store has a marker: an answer was private, and so are probably the next ones.
    PrivateKey { accept: P::Accept },
    /// The store has a marker: an answer was private once.
    PrivateOnce { accept: P::Accept },
    /// The store has a marker: an answer could not be stored. Or the cache is off.
    Uncacheable { accept: P::Accept, known: KnownFailure<P::Outcome, P::Moment> },
    /// As many loads are under way as may be, so the flight queues before its request for the lease. The
    /// store has this meanwhile.
    Queued { asked: P::Generation, meanwhile: Meanwhile<P::Outcome> },
    /// Another process has the lease.
    Busy { asked: P::Generation, other: P::Other, meanwhile: Meanwhile<P::Outcome> },
    /// This flight has the lease. If the load is a probe, the other waiters get the failure
    /// meanwhile.
    Granted {
        asked: P::Generation,
        lease: P::Lease,
        probe: Option<P::Outcome>,
        meanwhile: Meanwhile<P::Outcome>,
    },
    /// The key is in cooldown, and there is no stale fallback. Without `until`, the failure is only
    /// for the waiters that have joined by now.
    InCooldown { failure: P::Outcome, until: Option<P::Moment> },
    /// The key is in cooldown, and there is a stale fallback.
    InCooldownStale { asked: P::Generation, stale: P::Outcome, until: P::Moment },
    /// The store did not answer.
    StoreFailed {
        error: P::Outcome,
        /// What this process knows of earlier loads.
        known: KnownFailure<P::Outcome, P::Moment>,
        hold: LeaseHold<P::Lease>,
        /// The policy is to load without a lease then.
        may_load: bool,
    },
    /// No waiter remains that joined after the last request.
    NoneRemain,
    /// The store has no entry for the waiters that remain.
    Gone { accept: P::Accept, can_load: bool },
    /// A message has the value that the other process stored under its lease. It answers the waiters
    /// that had joined before the request which found *that* lease: while the lease held, no
    /// invalidation came, so its load began after all that returned before they joined. A message
    /// about another lease is a hint only, even an earlier one: it may be older than an invalidation
    /// that returned before the last request.
    Told { asked: P::Generation, outcome: P::Outcome },
    /// The wait for another process is over: the key has changed, or the delay has passed.
    Waited,
    /// The last waiter left during a wait for another process, or in the queue before a load.
    Abandoned,
    /// The load has ended.
    LoadEnded {
        hold: LeaseHold<P::Lease>,
        answer: LoadAnswer<P::Outcome, P::Generation, P::Draft, P::Failure>,
    },
    /// The load does not [begin](begins), or was cancelled, since all waiters had left.
    NotLoaded { hold: LeaseHold<P::Lease> },
    /// The wait of callers for another load ran out, and they load without a lease (an uncached
    /// load). This begins a flight.
    WaitRanOut,
    /// The value is stored. It answers the waiters that had joined before the commit.
    Stored { asked: P::Generation, outcome: P::Outcome },
    /// The value is not stored: something newer or an invalidation came between lease and commit. Or it is
    /// stored for this process only.
    Superseded { began: P::Generation, outcome: P::Outcome },
    /// The reply to the commit was lost: the value may be stored or not.
    CommitFailed { began: P::Generation, outcome: P::Outcome },
    /// The reply to a request that releases the lease was lost.
    Unacknowledged,
    /// The lease is released.
    Released,
    /// A waiter has joined during a cooldown. Without a failure, there was a stale fallback.
    JoinedCooldown { failure: Option<P::Outcome>, until: P::Moment, hold: LeaseHold<P::Lease> },
    /// The cooldown is over, or the key has changed.
    CooldownEnded { hold: LeaseHold<P::Lease> },
}

/// What to do next: the actions, in this order, and then the next state.
pub(crate) struct Step<P: Payload> {
    pub(crate) actions: Vec<WaiterAction<P>>,
    pub(crate) state: State<P>,
}

/// The step after an event, for a flight that knows this of its key.
pub(crate) fn next<P: Payload>(
    event: Event<P>,
    memory: &mut Memory<P::Accept, P::Fallback>,
) -> Step<P> {
    match event {
        Event::Found { asked, outcome, due: Some(accept) } => {
            memory.accept = accept;
            serve_meanwhile(asked, Meanwhile::Give(outcome), State::Acquiring)
        }
        Event::Found { asked, outcome, .. }
        | Event::Told { asked, outcome }
        | Event::Stored { asked, outcome }
        | Event::Superseded { began: asked, outcome } => {
            complete(To::Before(asked), outcome, State::LookingUp { late: asked })
        }
        Event::Unreadable { accept } | Event::Gone { accept, can_load: true } => {
            memory.accept = accept;
            go(State::Acquiring)
        }
        // The marker was there before this flight began. Its own load may give a shared answer.
        Event::PrivateKey { accept }
        | Event::PrivateOnce { accept }
        | Event::Uncacheable { accept, .. }
            if !memory.waited =>
        {
            memory.accept = accept;
            go(State::Acquiring)
        }
        Event::PrivateKey { .. } => act(WaiterAction::Release, State::Closed),
        Event::PrivateOnce { .. } => act(WaiterAction::ReleaseAtClose, State::Closed),
        Event::Uncacheable { known, .. } => load_unless_known(LeaseHold::Nothing, known),
        Event::Queued { asked, meanwhile } => serve_meanwhile(asked, meanwhile, State::Acquiring),
        Event::Busy { asked, other, meanwhile } => {
            serve_meanwhile(asked, meanwhile, State::Waiting { asked, other })
        }
        Event::Granted { asked, lease, probe, meanwhile } => {
            let hold = LeaseHold::Lease(lease);
            serve_meanwhile(asked, meanwhile, State::Loading { hold, meanwhile: probe })
        }
        Event::WaitRanOut => go(State::Loading { hold: LeaseHold::NotAsked, meanwhile: None }),
        Event::Waited | Event::JoinedCooldown { failure: None, .. } => go(State::Acquiring),
        Event::LoadEnded { hold, answer } => load_ended(hold, answer),
        event => without_answer(event),
    }
}

/// The step after a failure, or after an event that ends the flight.
fn without_answer<P: Payload>(event: Event<P>) -> Step<P> {
    match event {
        Event::InCooldown { failure, until: Some(until) } => {
            cool_down(failure, until, LeaseHold::Nothing)
        }
        // The failure is for no later waiter.
        Event::InCooldown { failure, until: None } => complete(To::All, failure, State::Closed),
        Event::InCooldownStale { asked, stale, until } => {
            let (failure, hold) = (None, LeaseHold::Nothing);
            complete(To::Before(asked), stale, State::CoolingDown { failure, until, hold })
        }
        Event::StoreFailed { error, known, hold, may_load } => match known {
            known if may_load => load_unless_known(hold, known),
            KnownFailure::Cooldown(failure, until) => cool_down(failure, until, hold),
            _ => complete(To::All, error, release(hold, None)),
        },
        Event::CommitFailed { began, outcome } => {
            complete(To::Before(began), outcome, release_unacknowledged())
        }
        Event::JoinedCooldown { failure: Some(failure), until, hold } => {
            cool_down(failure, until, hold)
        }
        Event::NotLoaded { hold } | Event::CooldownEnded { hold } => go(release(hold, None)),
        Event::Unacknowledged => go(release_unacknowledged()),
        _ => go(State::Closed),
    }
}

fn serve_meanwhile<P: Payload>(
    asked: P::Generation,
    meanwhile: Meanwhile<P::Outcome>,
    state: State<P>,
) -> Step<P> {
    let actions = match meanwhile {
        Meanwhile::Nothing => vec![],
        Meanwhile::Give(stale) => {
            vec![WaiterAction::Complete(To::Before(asked), stale), WaiterAction::Detach(asked)]
        }
        Meanwhile::Fallback(stale) => vec![WaiterAction::SetFallback(asked, stale)],
    };
    Step { actions, state }
}

/// Loads without a lease, unless the key is in cooldown in this process.
fn load_unless_known<P: Payload>(
    hold: LeaseHold<P::Lease>,
    known: KnownFailure<P::Outcome, P::Moment>,
) -> Step<P> {
    let meanwhile = match known {
        KnownFailure::Cooldown(failure, until) => return cool_down(failure, until, hold),
        KnownFailure::Probe(failure) => Some(failure),
        KnownFailure::Nothing => None,
    };
    go(State::Loading { hold, meanwhile })
}

fn cool_down<P: Payload>(with: P::Outcome, until: P::Moment, hold: LeaseHold<P::Lease>) -> Step<P> {
    let failure = Some(with.clone());
    complete(To::All, with, State::CoolingDown { failure, until, hold })
}

fn load_ended<P: Payload>(hold: LeaseHold<P::Lease>, answer: AnswerOf<P>) -> Step<P> {
    let LoadAnswer { began, outcome, share, record, fallback } = answer;
    let state = match (hold, record) {
        (LeaseHold::Lease(lease), Some(Record::Value(draft))) => {
            return go(State::Committing { lease, draft, began, outcome });
        }
        // An invalidation may have happened during the load, so later waiters must not get it.
        (LeaseHold::Nothing, Some(Record::Value(_))) => State::LookingUp { late: began },
        (hold, record) => release(hold, record),
    };
    let completed = match (fallback, share) {
        // The fallback may be too old for later waiters, so they ask again.
        (Some((stale, asked)), _) => WaiterAction::Complete(To::Before(asked), stale),
        (None, Share::Joined) => WaiterAction::Complete(To::Before(began), outcome),
        (None, Share::All) => WaiterAction::Complete(To::All, outcome),
        (None, Share::Opener | Share::PrivateKey | Share::PrivateOnce) => {
            WaiterAction::Complete(To::Opener, outcome)
        }
    };
    let released = match share {
        Share::PrivateKey => Some(WaiterAction::Release),
        Share::PrivateOnce => Some(WaiterAction::ReleaseAtClose),
        Share::Joined | Share::Opener | Share::All => None,
    };
    Step { actions: [completed].into_iter().chain(released).collect(), state }
}

/// The verdict on an answer of the loader: which callers share it, what the store gets, and what is
/// remembered.
pub(crate) fn verdict(kind: AnswerKind, known: KnownOfKey) -> Verdict {
    let repeated = known.failures > 0;
    let (share, remember) = match kind {
        AnswerKind::Value => (Share::Joined, Remember::Success),
        AnswerKind::PrivateKey => (Share::PrivateKey, Remember::Success),
        AnswerKind::PrivateOnce => (Share::PrivateOnce, Remember::Success),
        AnswerKind::SourceFailed => (Share::All, Remember::Cooldown),
        AnswerKind::Failed | AnswerKind::TimedOut if repeated => (Share::All, Remember::Cooldown),
        AnswerKind::Unconfirmed if repeated => (Share::All, Remember::Failure),
        AnswerKind::Failed | AnswerKind::Unconfirmed => (Share::Opener, Remember::Failure),
        // A load of their own would have taken them no less.
        AnswerKind::TimedOut => (Share::Joined, Remember::Failure),
        AnswerKind::RequestFailed => (Share::Opener, Remember::Nothing),
        AnswerKind::LoadFailed => (Share::All, Remember::Nothing),
    };
    let is_stored = match remember {
        Remember::Success => kind != AnswerKind::PrivateOnce || !known.replaces,
        Remember::Failure | Remember::Cooldown => known.shares_failures,
        Remember::Nothing => false,
    };
    Verdict { share, is_stored, remember }
}

/// What a put does after an attempt to store its value; without one, if the store has failed. Unless
/// the value is stored, what is stored may be older, so the put clears the key.
pub(crate) fn after_put(attempt: Option<PutAttempt>, is_first: bool) -> AfterPut {
    match attempt {
        Some(PutAttempt::Stored) => AfterPut::End,
        // Perhaps a load, which may have read the source before it changed. The clearing ends it.
        Some(PutAttempt::Busy) if is_first => AfterPut::ClearAndRetry,
        _ => AfterPut::Clear,
    }
}

/// Whether a load begins. Without a lease its answer is not stored, so it is for waiters only: a
/// refresh that no caller waits for ends when the store fails.
pub(crate) fn begins<L>(
    hold: &LeaseHold<L>,
    can_load: bool,
    is_awaited: impl FnOnce() -> bool,
) -> bool {
    can_load && (matches!(hold, LeaseHold::Lease(_)) || is_awaited())
}

/// Releases a lease that this flight has, or may have.
fn release<P: Payload>(
    hold: LeaseHold<P::Lease>,
    record: Option<Record<P::Draft, P::Failure>>,
) -> State<P> {
    match hold {
        LeaseHold::Lease(lease) => State::Releasing { lease: Some(lease), record },
        LeaseHold::Unacknowledged => release_unacknowledged(),
        LeaseHold::Nothing | LeaseHold::NotAsked => State::Closed,
    }
}

/// Releases a lease that may be ours, because its grant was not acknowledged.
fn release_unacknowledged<P: Payload>() -> State<P> {
    State::Releasing { lease: None, record: None }
}

fn complete<P: Payload>(to: To<P::Generation>, outcome: P::Outcome, state: State<P>) -> Step<P> {
    act(WaiterAction::Complete(to, outcome), state)
}

fn act<P: Payload>(action: WaiterAction<P>, state: State<P>) -> Step<P> {
    Step { actions: vec![action], state }
}

fn go<P: Payload>(state: State<P>) -> Step<P> {
    Step { actions: vec![], state }
}
