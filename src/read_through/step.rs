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
//!     │           ├─error──► Land on all ──► Fail
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
    /// The loader failed, panicked or took too long. Whoever may have a stale value instead was
    /// given it, or there is none.
    LoadFailed { spared: bool },
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
        Event::LoadFailed { spared: false } => Step::Land(On::All),
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
        | Event::LoadFailed { spared: true }
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
mod tests {
    use super::*;

    const EVENTS: [Event; 31] = [
        Event::Opened { store_failed: false },
        Event::Opened { store_failed: true },
        Event::Found,
        Event::Unreadable,
        Event::Private,
        Event::Own,
        Event::Unkept,
        Event::Failing,
        Event::Spared { others: true },
        Event::Spared { others: false },
        Event::Gone,
        Event::Due,
        Event::Busy,
        Event::Led,
        Event::AskFailed,
        Event::Waited,
        Event::Deserted,
        Event::Loaded,
        Event::LoadedPrivate,
        Event::LoadedOwn,
        Event::Dispersed,
        Event::LoadFailed { spared: false },
        Event::LoadFailed { spared: true },
        Event::NoJob,
        Event::Committed(Committed::Stored),
        Event::Committed(Committed::Superseded),
        Event::Committed(Committed::Failed),
        Event::Landed { others: true },
        Event::Landed { others: false },
        Event::Joined,
        Event::Rested,
    ];

    /// The plain standings, in the order of the columns of the table below.
    fn plain() -> impl Iterator<Item = Standing> {
        let of = |leased| {
            let all = [(false, false), (false, true), (true, false), (true, true)];
            all.map(move |(can_load, store_failed)| Standing {
                leased,
                can_load,
                store_failed,
                may_go_around: true,
                load_failed: false,
                is_private: false,
            })
        };
        [Leased::No, Leased::Yes, Leased::Perhaps].into_iter().flat_map(of)
    }

    fn standings() -> impl Iterator<Item = Standing> {
        let flags = (0..8).map(|bits| [1, 2, 4].map(|bit| bits & bit != 0));
        flags.flat_map(|[may_go_around, load_failed, is_private]| {
            plain().map(move |at| Standing { may_go_around, load_failed, is_private, ..at })
        })
    }

    fn row(event: Event, change: impl Fn(Standing) -> Standing) -> String {
        let steps: String = plain().map(|at| letter(next(event, change(at)))).collect();
        [&steps[..4], &steps[4..8], &steps[8..]].join(" ")
    }

    /// A letter for each step, so that the whole table fits on a page.
    fn letter(step: Step) -> char {
        match step {
            Step::Acquire => 'A',
            Step::Look => 'L',
            Step::Wait => 'W',
            Step::Load => 'F',
            Step::Commit => 'C',
            Step::Release => 'R',
            Step::Fail => 'X',
            Step::Disperse => 'D',
            Step::Rest => 'Z',
            Step::Land(On::Asked) => 'a',
            Step::Land(On::BeforeLoad) => 'b',
            Step::Land(On::All) => 'e',
            Step::Land(On::Opener) => 'o',
            Step::Close => '.',
        }
    }

    #[test]
    fn the_whole_protocol_is_this_table() {
        // leased:          no   yes  perhaps
        // can load:        nnyy nnyy nnyy
        // store failed:    nyny nyny nyny
        let table = [
            (Event::Opened { store_failed: false }, "AAAA AAAA AAAA"),
            (Event::Opened { store_failed: true }, "FFFF FFFF FFFF"),
            (Event::Found, "aaaa aaaa aaaa"),
            (Event::Unreadable, "AAAA AAAA AAAA"),
            (Event::Private, "DDDD DDDD DDDD"),
            (Event::Own, "oooo oooo oooo"),
            (Event::Unkept, "..FF RRFF RRFF"),
            (Event::Failing, "ZZZZ ZZZZ ZZZZ"),
            (Event::Spared { others: true }, "AAAA AAAA AAAA"),
            (Event::Spared { others: false }, "ZZZZ ZZZZ ZZZZ"),
            (Event::Gone, "..AA RRAA RRAA"),
            (Event::Due, "..AA RRAA RRAA"),
            (Event::Busy, "WWWW WWWW WWWW"),
            (Event::Led, "..FF RRFF RRFF"),
            (Event::AskFailed, "..FF RRFF RRFF"),
            (Event::Waited, "AAAA AAAA AAAA"),
            (Event::Deserted, ".... RRRR RRRR"),
            (Event::Loaded, "bbbb CCCC bbbb"),
            (Event::LoadedPrivate, "DDDD DDDD DDDD"),
            (Event::LoadedOwn, "oooo oooo oooo"),
            (Event::Dispersed, ".... CCCC RRRR"),
            (Event::LoadFailed { spared: false }, "eeee eeee eeee"),
            (Event::LoadFailed { spared: true }, ".... RRRR RRRR"),
            (Event::NoJob, ".... RRRR RRRR"),
            (Event::Committed(Committed::Stored), "aaaa aaaa aaaa"),
            (Event::Committed(Committed::Superseded), "bbbb bbbb bbbb"),
            (Event::Committed(Committed::Failed), "bbbb bbbb bbbb"),
            (Event::Landed { others: true }, "L.L. RRRR RRRR"),
            (Event::Landed { others: false }, ".... RRRR RRRR"),
            (Event::Joined, "AAAA AAAA AAAA"),
            (Event::Rested, ".... RRRR RRRR"),
        ];
        assert_eq!(table.map(|(event, _)| event), EVENTS, "the table leaves no event out");
        for (event, expected) in table {
            assert_eq!(row(event, |at| at), expected, "after {event:?}");
        }
        assert!(standings().all(|at| next(Event::Released, at) == Step::Close));
    }

    #[test]
    fn where_the_store_must_not_fail_its_failure_is_everybodys_answer() {
        for event in [Event::Opened { store_failed: true }, Event::AskFailed] {
            let row = row(event, |at| Standing { may_go_around: false, ..at });
            assert_eq!(row, "eeee eeee eeee", "after {event:?}");
        }
    }

    #[test]
    fn a_lease_under_which_a_load_failed_is_given_up_with_word_of_that() {
        let failed = |at| Standing { load_failed: true, ..at };
        for others in [false, true] {
            assert_eq!(row(Event::Landed { others }, failed), ".... XXXX RRRR");
        }
        assert_eq!(row(Event::LoadFailed { spared: true }, failed), ".... XXXX RRRR");
    }

    #[test]
    fn whatever_becomes_of_a_marker_those_who_came_meanwhile_look_again() {
        let private = |at| Standing { is_private: true, ..at };
        for committed in [Committed::Stored, Committed::Superseded, Committed::Failed] {
            assert_eq!(row(Event::Committed(committed), private), ".... RRRR RRRR");
        }
    }

    #[test]
    fn nothing_is_closed_while_a_lease_may_be_ours() {
        for standing in standings().filter(|standing| standing.leased != Leased::No) {
            for event in EVENTS {
                assert_ne!(next(event, standing), Step::Close, "{event:?}, {standing:?}");
            }
        }
    }

    #[test]
    fn the_loader_is_called_only_with_a_request_at_hand() {
        let without = standings().filter(|standing| !standing.can_load);
        for (standing, event) in without.flat_map(|at| EVENTS.map(|event| (at, event))) {
            // Who opens a flight brings a request.
            if !matches!(event, Event::Opened { .. }) {
                assert_ne!(next(event, standing), Step::Load, "{event:?}, {standing:?}");
            }
        }
    }

    #[test]
    fn a_value_of_which_it_is_unknown_whether_it_is_current_lands_on_nobody_who_came_later() {
        for event in [Event::Committed(Committed::Superseded), Event::Committed(Committed::Failed)]
        {
            let mut shared = standings().filter(|at| !at.is_private);
            assert!(shared.all(|at| next(event, at) == Step::Land(On::BeforeLoad)));
        }
        let mut unleased = standings().filter(|at| at.leased != Leased::Yes);
        assert!(unleased.all(|at| next(Event::Loaded, at) == Step::Land(On::BeforeLoad)));
    }
}
