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
    /// What the store said of the lease of another process: a message about that lease is judged by
    /// it, and a delay ends with it.
    type Other;
    /// A point in time.
    type Moment: Copy;
}

/// What a flight is doing. Each state names the events that can end it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State<P: Payload> {
    /// Asks the store for the entry or the lease, once it may load: `Found`, `Unreadable`, `PrivateKey`,
    /// `PrivateOnce`, `Uncacheable`, `Queued`, `Abandoned`, `Busy`, `Granted`, `InCooldown`,
    /// `InCooldownStale`, `StoreFailed`.
    Acquiring,
    /// Asks the store for the entry, for the waiters of generation `late` or later: `NoneRemain`,
    /// `Found`, `Gone`.
    LookingUp { late: P::Generation },
    /// Another process has the lease, as the store said to the request that began the generation
    /// `asked`. Waits for a message, for a change of the key or for a delay: `Told`,
    /// `Waited`, `Abandoned`.
    Waiting { asked: P::Generation, other: P::Other },
    /// Calls the loader, and completes each waiter but the opener with `meanwhile`: `LoadEnded`,
    /// `NotLoaded`.
    Loading { hold: LeaseHold<P::Lease>, meanwhile: Option<P::Outcome> },
    /// Stores the value and releases the lease: `Stored`, `Superseded`, `CommitFailed`.
    Committing {
        lease: P::Lease,
        draft: P::Draft,
        /// The generation that began right before the load.
        began: P::Generation,
        outcome: P::Outcome,
    },
    /// Releases the lease, and tells other processes that the answer is private or that the load has
    /// failed. Without one, a lease that may have been granted: `Released`, `Unacknowledged`.
    Releasing { lease: Option<P::Lease>, record: Option<Record<P::Draft, P::Failure>> },
    /// Waits for the end of a cooldown, and completes each waiter that joins with the failure. Without
    /// one, there was a stale fallback. It may not be for a waiter that joins now, so the flight asks
    /// the store again: `JoinedCooldown`, `CooldownEnded`.
    CoolingDown { failure: Option<P::Outcome>, until: P::Moment, hold: LeaseHold<P::Lease> },
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
    /// No lease, and the store is not asked: it is known to be down, or the wait of the callers ran
    /// out.
    NotAsked,
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

/// The answer of a load, after the verdict on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LoadAnswer<O, G, D, F> {
    /// The generation that began right before the load.
    pub(crate) began: G,
    pub(crate) outcome: O,
    pub(crate) share: Share,
    pub(crate) record: Option<Record<D, F>>,
    /// For a failure: an older answer instead, and the generation that asked for it.
    pub(crate) fallback: Option<(O, G)>,
}

/// The answer of a load of a flight with this payload.
pub(crate) type AnswerOf<P> = LoadAnswer<
    <P as Payload>::Outcome,
    <P as Payload>::Generation,
    <P as Payload>::Draft,
    <P as Payload>::Failure,
>;

/// What the store gets of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Record<D, F> {
    /// A value, or a marker instead of a value that callers share.
    Value(D),
    /// A marker that the answer is private.
    Marker(D),
    /// A report of the failure.
    Failure(F),
}

/// What an answer of the loader says, as the codec and the rules of the program classify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AnswerKind {
    /// A value that callers may share.
    Value,
    /// A value that is private to the caller that loaded it, and so are the next ones.
    PrivateKey,
    /// A value that is private to the caller that loaded it this once.
    PrivateOnce,
    /// The source has failed, whatever was asked for.
    SourceFailed,
    /// The source has failed, or only this request. A load of another request can tell.
    Failed,
    /// The same: the load has reached its time limit.
    TimedOut,
    /// A failure of this request, or one that is over at once. Other requests load at once.
    RequestFailed,
    /// A failure of this load: for every request that waits for it, and no later one.
    LoadFailed,
    /// An answer that another one like it has to confirm. No stale answer replaces it.
    Unconfirmed,
}

/// What is known of the key when its load has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KnownOfKey {
    /// How many loads in a row had failed before.
    pub(crate) failures: u32,
    /// The store has a value that a marker would replace, or a failure that a marker would end.
    pub(crate) replaces: bool,
    /// Later callers share failures of this load. Those of a forced refresh and of an uncached load
    /// put no key into cooldown, since both can be repeated at will.
    pub(crate) shares_failures: bool,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Verdict {
    pub(crate) share: Share,
    /// The store gets the value, its marker or the failure.
    pub(crate) is_stored: bool,
    pub(crate) remember: Remember,
}

/// Which callers share an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Share {
    /// Those that had joined before the load; if it is stored, before the commit.
    Joined,
    /// The one whose request was loaded.
    Opener,
    /// The same, and the others load individually.
    PrivateKey,
    /// The same, and those that remain at the end load individually.
    PrivateOnce,
    /// All that wait.
    All,
}

/// What this process remembers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Remember {
    Nothing,
    /// That the source works.
    Success,
    /// A failure that counts for the next one.
    Failure,
    /// A failure that later callers share.
    Cooldown,
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

impl<G: PartialOrd> To<G> {
    /// Whether a waiter that joined in this generation is one of them.
    pub(crate) fn is_for(&self, joined: &G, opener: bool) -> bool {
        match self {
            Self::Before(generation) => joined < generation,
            Self::All => true,
            Self::Opener => opener,
        }
    }
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

/// What became of an attempt to store a value that was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutAttempt {
    Stored,
    /// There was nothing to store, or something newer or an invalidation came between lease and
    /// commit.
    Refused,
    /// Another caller has the lease.
    Busy,
}

/// What a put does after an [`PutAttempt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterPut {
    End,
    /// Invalidates the key, and ends.
    Clear,
    /// Invalidates the key, and attempts it once more.
    ClearAndRetry,
}
