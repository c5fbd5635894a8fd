//! What the states and the events of a flight are made of.

/// What the table carries and never looks into.
pub(crate) trait Payload: Sized {
    /// What waiters are given.
    type Outcome: Clone;
    /// Separates the waiters that had joined when a question was asked from later ones.
    type Generation: Copy;
    /// Which entry makes a lease needless.
    type Accept: Copy;
    /// A lease of ours.
    type Lease;
    /// What a commit stores.
    type Draft;
    /// What the store is told of a failed load.
    type Failure;
    /// An entry that may be given out if no better is to be had.
    type Fallback;
    /// A length of time.
    type Span: Copy;
    /// A point in time.
    type Moment: Copy;
}

/// What a flight knows of its key while it asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory<A, F> {
    pub(crate) accept: A,
    /// It has waited for the load of another process.
    pub(crate) waited: bool,
    /// What the store answered last, if it was not good enough.
    pub(crate) fallback: Option<F>,
}

/// What is held in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hold<L> {
    Lease(L),
    /// Nothing, and nothing is wrong with that.
    Nothing,
    /// Nothing: the store is known to be down, and was not asked.
    StoreDown,
    /// A lease may have been granted: the answer of the store was lost.
    Unacknowledged,
}

/// What this process knows of earlier loads of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Known<O, M> {
    Nothing,
    /// They failed, and this load is a probe: other callers are given the failure.
    Probe(O),
    /// They failed, and no caller is to try again before a moment.
    Cooldown(O, M),
}

/// What the waiters that asked may have while a load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Meanwhile<O, S> {
    Nothing,
    /// A stale answer, at once.
    Give(O),
    /// A stale answer, if they have waited in vain, for so long.
    Offer(O, S),
}

/// How a load ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LoadEnd<O, G, D, F> {
    /// With a value. `began` is drawn before the load.
    Value { began: G, outcome: O, draft: D },
    /// With an answer that is for the opener only, and so will the next ones be.
    Private { outcome: O, marker: D },
    /// With an answer that is for the opener only. It says nothing of the next ones. There is no
    /// marker if one would replace something better.
    Own { outcome: O, marker: Option<D> },
    /// The loader failed, panicked or took too long.
    Failed {
        began: G,
        outcome: O,
        blame: Blame,
        /// A stale fallback, and the generation that asked for it.
        fallback: Option<(O, G)>,
        /// What the store is told of it.
        report: Option<F>,
    },
    /// No waiter was left, and the policy is not to go on then.
    Abandoned,
    /// There was nothing to load with: the caller that opened the flight took its request back.
    NoRequest,
}

/// Where the fault of a failed load lies, as far as that decides which callers are given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Blame {
    /// Perhaps with its request: no other load has failed.
    Request,
    /// The same, and it took as long as a load may: the callers that have waited for all of it
    /// would have waited as long for a load of their own.
    Limit,
    /// With the source: the load of another request has failed too, or it is certain without that.
    Source,
}

/// Which waiters are completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum To<G> {
    /// Those that had joined before a generation. A value may be older than the others.
    Before(G),
    /// All. For errors, which are no value that could be out of date.
    All,
    /// The opener of the flight, for what is its own: an answer, or an error that may be the fault
    /// of its request.
    Opener,
}
