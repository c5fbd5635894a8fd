//! The protocol of a flight, as a table: what has happened, and what to do next.
//!
//! No clock, no randomness and no I/O, so that what ships can be tested as a table.
//!
//! ```text
//!  Acquire ──found──► Land ──others came later──► Look ──found──► Land ..
//!     │                 └─fresh, but due──► Acquire             (nobody waits for it)
//!     ├─busy──► Wait ──told, or paused──► Acquire                 (a flat loop)
//!     ├─lead──► Load ──value──► Commit ──stored────────► Land on those who joined before it
//!     │           │               └─superseded──────────► Land on those who joined before the load
//!     │           ├─not to be shared──► Disperse ──► Commit (a marker)
//!     │           ├─of this caller only──► Land on who opened it ──► Release
//!     │           ├─error──► Land on who opened it ──► Fail    (the others load with a request of theirs)
//!     │           ├─error again, or of the source──► Land on all ──► Fail
//!     │           ├─took too long──► Land on those who joined before the load ──► Fail
//!     │           └─nobody waits any more──► Release
//!     ├─a load failed a moment ago──► Rest: land the failure on all, until its window is over
//!     ├─waited, and it is not to be shared──► Disperse
//!     ├─waited, and it was of one caller only──► Land on who opened it: all load for themselves
//!     ├─waited, and it could not be kept──► Load without a lease
//!     └─store failed──► Load without a lease ──► Land on those who joined before the load
//!
//!  Close: whoever is still there looks again.
//! ```

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// The flight was opened, by a caller whose look failed or not.
    Opened { store_failed: bool },
    /// The store answered that there is an entry.
    Found,
    /// The store answered that there is an entry, but it is not one that we can read.
    Unreadable,
    /// The store answered that what was waited for was for one caller only.
    Private,
    /// The same, but it says nothing of the answers of others.
    Own,
    /// The store answered that what was waited for could not be kept.
    Unkept,
    /// The store answered that a load failed a moment ago, and there is nothing to give instead.
    Failing,
    /// The same, but those whom the answer was for were given a stale value. Others may have come.
    Spared { others: bool },
    /// A look for those who remain found nothing to give them.
    Gone,
    /// What was landed is due to be loaded anew, though it is fresh.
    Due,
    /// Somebody else has the lease.
    Busy,
    /// We have the lease.
    Led,
    /// The store did not answer.
    AskFailed,
    /// The wait for somebody else's load is over: told, or paused for long enough.
    Waited,
    /// Nobody waits any more.
    Deserted,
    /// The loader gave a value.
    Loaded,
    /// The loader gave an answer that is for the caller who opened the flight, and nobody else.
    LoadedPrivate,
    /// The same, but it says nothing of the answers of others.
    LoadedOwn,
    /// Those for whom it was not were told to load for themselves.
    Dispersed,
    /// The loader failed, panicked or took too long.
    LoadFailed(Blame),
    /// There is nothing left to load with: the caller who opened the flight took its request back.
    NoJob,
    /// Whether the value is kept.
    Committed(Committed),
    /// An answer was landed. Others, who joined too late for it, may remain.
    Landed { others: bool },
    /// The lease was given up.
    Released,
    /// Somebody has joined who may be given more than the failure.
    Joined,
    /// The window of a failure is over, or something has changed.
    Rested,
}

/// Where the fault of a failed load lies, as far as that decides which callers are given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Blame {
    /// It does not matter: the callers that may have a stale value were given it.
    Spared,
    /// Perhaps with its request: no other load has failed.
    Request,
    /// The same, and it took as long as a load may: the callers that have waited for all of it
    /// would have waited as long for a load of their own.
    Limit,
    /// With the source: the load of another request has failed too, or it is certain without that.
    Source,
}

/// What came of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Committed {
    Stored,
    Superseded,
    Failed,
}

/// What matters of all that happened before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    /// Whether there is a lease of ours in the store.
    pub(crate) leased: Leased,
    /// There is a request to load with.
    pub(crate) can_load: bool,
    /// The store has failed us in this flight.
    pub(crate) store_failed: bool,
    /// It may be loaded without a lease then.
    pub(crate) may_go_around: bool,
    /// The load has failed in this flight.
    pub(crate) load_failed: bool,
    /// What was loaded is for nobody else.
    pub(crate) is_private: bool,
}

/// Whether there is a lease of ours in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Leased {
    No,
    /// It was granted and not given up.
    Yes,
    /// A question was sent that grants or ends one, and its answer was not heard.
    Perhaps,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Ask the store for the entry or the lease.
    Acquire,
    /// Ask the store for the entry, for those who remain.
    Look,
    /// Wait for a change of this key, or for a pause.
    Wait,
    /// Call the loader.
    Load,
    /// Store what was loaded and give up the lease.
    Commit,
    /// Give up the lease.
    Release,
    /// Give up the lease, and leave word that the load has failed.
    Fail,
    /// Tell those who wait to load for themselves.
    Disperse,
    /// Give the failure to whoever comes, until its window is over.
    Rest,
    /// Give the answer to some.
    Land(On),
    /// End the flight.
    Close,
}

/// On whom an answer lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum On {
    /// Who had joined before the store was asked last.
    Asked,
    /// Who had joined before the load began. For answers of which it is not known that nothing
    /// came between: they are good for nobody who came later.
    BeforeLoad,
    /// Everybody. For errors, which are no value that could be out of date.
    All,
    /// The opener of the flight, for an error that may be the fault of its request. The others look
    /// again once the flight is closed, and the first to do so leads the next load.
    Requester,
    /// Who opened the flight. Everybody else is told once nothing is left to be given up, as they
    /// may ask again.
    Opener,
}

/// What to do next.
pub(crate) fn next(event: Event, standing: Standing) -> Step {
    let Standing { leased, can_load, store_failed, may_go_around, .. } = standing;
    match event {
        Event::Opened { store_failed: false }
        | Event::Waited
        | Event::Unreadable
        | Event::Joined
        | Event::Spared { others: true } => Step::Acquire,
        Event::Opened { store_failed: true } | Event::AskFailed if !may_go_around => {
            Step::Land(On::All)
        }
        Event::Opened { store_failed: true } => Step::Load,
        Event::Found => Step::Land(On::Asked),
        Event::Private | Event::LoadedPrivate => Step::Disperse,
        Event::Own | Event::LoadedOwn => Step::Land(On::Opener),
        Event::Failing | Event::Spared { others: false } => Step::Rest,
        Event::Gone | Event::Due if can_load => Step::Acquire,
        Event::Busy => Step::Wait,
        Event::Led | Event::AskFailed | Event::Unkept if can_load => Step::Load,
        Event::Loaded | Event::Dispersed if leased == Leased::Yes => Step::Commit,
        Event::Loaded => Step::Land(On::BeforeLoad),
        Event::LoadFailed(Blame::Request) => Step::Land(On::Requester),
        Event::LoadFailed(Blame::Limit) => Step::Land(On::BeforeLoad),
        Event::LoadFailed(Blame::Source) => Step::Land(On::All),
        Event::Committed(_) if standing.is_private => end(standing),
        Event::Committed(Committed::Stored) => Step::Land(On::Asked),
        Event::Committed(Committed::Superseded | Committed::Failed) => Step::Land(On::BeforeLoad),
        Event::Landed { others: true } if is_clear(standing) && !store_failed => Step::Look,
        Event::Gone
        | Event::Due
        | Event::Led
        | Event::AskFailed
        | Event::Unkept
        | Event::Deserted
        | Event::NoJob
        | Event::Dispersed
        | Event::LoadFailed(Blame::Spared)
        | Event::Rested
        | Event::Landed { .. } => end(standing),
        Event::Released => Step::Close,
    }
}

/// Whether nothing is left to be given up.
fn is_clear(standing: Standing) -> bool {
    standing.leased == Leased::No && !standing.load_failed
}

fn end(standing: Standing) -> Step {
    match standing.leased {
        Leased::No => Step::Close,
        Leased::Yes if standing.load_failed => Step::Fail,
        Leased::Perhaps | Leased::Yes => Step::Release,
    }
}

#[cfg(test)]
mod tests;
