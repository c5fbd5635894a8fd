//! The states of a flight, and the parts of its states, events and actions.

/// What the protocol carries and never looks into.
pub(crate) trait Payload: Sized {
    /// What waiters get.
    type Outcome: Clone;
    /// Separates the waiters that had joined before a request to the store from later ones.
    type Generation: Copy;
    /// Which stored entries answer the flight, so that it needs no lease.
    type Accept: Copy;
    /// A lease that this flight has.
    type Lease;
    /// What a commit stores.
    type Draft;
    /// The report of a failed load to the store.
    type Failure;
    /// An older entry that may be served instead of an error or a wait.
    type Fallback;
    /// What the store said of the lease of another process. A message about that lease is judged by
    /// it.
    type Other;
    /// A length of time.
    type Span: Copy;
    /// A point in time.
    type Moment: Copy;
}

/// What a flight is doing. Each state names the events that can end it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State<P: Payload> {
    /// Asks the store for the entry or the lease: `Found`, `Unreadable`, `PrivateKey`,
    /// `PrivateOnce`, `Uncacheable`, `Busy`, `Granted`, `InCooldown`, `InCooldownStale`,
    /// `StoreFailed`.
    Acquiring { memory: Memory<P::Accept, P::Fallback> },
    /// Asks the store for the entry, for the waiters of generation `late` or later: `NoneRemain`,
    /// `Found`, `Gone`.
    LookingUp { late: P::Generation, memory: Memory<P::Accept, P::Fallback> },
    /// Another process has the lease for `left` longer, as the store said to the request that began
    /// the generation `asked`. Waits for a message, for a change of the key or for a delay: `Told`,
    /// `Waited`, `Abandoned`.
    Waiting {
        asked: P::Generation,
        other: P::Other,
        left: P::Span,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// Calls the loader, and completes each waiter but the opener with `meanwhile`: `LoadEnded`.
    Loading {
        hold: LeaseHold<P::Lease>,
        meanwhile: Option<P::Outcome>,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// Stores the value and releases the lease: `Stored`, `Superseded`, `CommitFailed`.
    Committing {
        lease: P::Lease,
        draft: P::Draft,
        /// The generation that began right before the load.
        began: P::Generation,
        outcome: P::Outcome,
        memory: Memory<P::Accept, P::Fallback>,
    },
    /// Releases the lease, with a marker for other processes that the answer is private:
    /// `Released`, `Unacknowledged`.
    Marking { lease: P::Lease, marker: P::Draft },
    /// Releases the lease, and reports the failure to other processes: `Released`,
    /// `Unacknowledged`.
    Reporting { lease: P::Lease, failure: P::Failure },
    /// Releases the lease. Without one, a lease that may have been granted: `Released`.
    Releasing { lease: Option<P::Lease> },
    /// Waits for the end of a cooldown, and completes each waiter that joins with the failure:
    /// `JoinedCooldown`, `CooldownEnded`.
    CoolingDown { failure: P::Outcome, until: P::Moment, hold: LeaseHold<P::Lease> },
    /// The same with a stale fallback. It may not be for a waiter that joins now, so the flight
    /// asks the store again: `JoinedCooldownStale`, `CooldownEnded`.
    CoolingDownStale { until: P::Moment, memory: Memory<P::Accept, P::Fallback> },
    /// The flight is over.
    Closed,
}

/// What a flight knows of its key between its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory<A, F> {
    /// Which entries answer the next request.
    pub(crate) accept: A,
    /// It has waited for the load of another process.
    pub(crate) waited: bool,
    /// The stale entry of the store's last answer.
    pub(crate) fallback: Option<F>,
}

/// What a flight holds in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LeaseHold<L> {
    Lease(L),
    /// No lease, and the store is healthy.
    Nothing,
    /// No lease: the store is known to be down, and was not asked.
    StoreDown,
    /// Perhaps a lease: the reply of the store was lost.
    Unacknowledged,
}

/// What this process knows of earlier failures of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KnownFailure<O, M> {
    Nothing,
    /// Loads failed, and this one is a probe: the other waiters get this failure.
    Probe(O),
    /// Loads failed, and the key is in cooldown until a moment.
    Cooldown(O, M),
}

/// What the waiters may have while a load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Meanwhile<O> {
    Nothing,
    /// A stale answer, at once.
    Give(O),
    /// A stale answer, but only if their wait runs out.
    Fallback(O),
}

/// How a load ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LoadEnd<O, G, D, F> {
    /// With a value. The generation `began` right before the load.
    Value { began: G, outcome: O, draft: D },
    /// With an answer that is private to the opener, and so are probably the next ones.
    PrivateKey { outcome: O, marker: D },
    /// With an answer that is private to the opener this once. There is no marker if one would
    /// replace a stored value or end a failure.
    PrivateOnce { outcome: O, marker: Option<D> },
    /// The loader failed, panicked or took too long.
    Failed {
        began: G,
        outcome: O,
        blame: Blame,
        /// A stale fallback, and the generation that asked for it.
        fallback: Option<(O, G)>,
        /// The report to the store. `None` if other processes do not share the failure.
        report: Option<F>,
    },
    /// All waiters had left, and it was cancelled.
    Abandoned,
    /// There was no request to load with: the opener took its own back.
    NoRequest,
}

/// The likely cause of a failed load. It decides which callers get the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Blame {
    /// Perhaps its request: no other load has failed.
    Request,
    /// The time limit. The callers that have waited for all of the load share the failure, since a
    /// load of their own would have taken them no less.
    Limit,
    /// The source: the load of another request has failed too, or the layer knows such errors.
    Source,
}

/// Which waiters are completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum To<G> {
    /// The waiters that had joined before a generation. Later ones may have begun after an
    /// invalidation that the value has missed.
    Before(G),
    /// All waiters. For errors, which cannot be out of date.
    All,
    /// The opener of the flight: for a private answer, or for an error that its request may have
    /// caused.
    Opener,
}

/// An action on the waiters of a flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WaiterAction<P: Payload> {
    /// Completes some with an outcome.
    Complete(To<P::Generation>, P::Outcome),
    /// Sets a stale fallback for the waiters that had joined before a generation.
    /// Later ones read the store themselves.
    SetFallback(P::Generation, P::Outcome),
    /// Moves the flight to the background. The waiters that joined in a generation or later read
    /// the store themselves.
    Detach(P::Generation),
    /// Releases the waiters: they load individually.
    Release,
    /// Releases the waiters that remain when the flight is closed.
    ReleaseAtClose,
}
