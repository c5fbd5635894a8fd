//! The protocol of a flight, as a table: what has happened, and what to do next.
//!
//! No clock, no randomness and no I/O, so that what ships can be tested as a table.
//!
//! ```text
//!  Acquire ──found──► Land ──others came later──► Look ──found──► Land ..
//!     ├─busy──► Wait ──told, or paused──► Acquire                 (a flat loop)
//!     ├─lead──► Load ──value──► Commit ──stored────────► Land on those who joined before it
//!     │           │               └─superseded──────────► Land on those who joined before the load
//!     │           ├─error──► Land on all ──► Release
//!     │           └─nobody waits any more──► Release
//!     └─failed─► Load without a lease ──► Land on those who joined before the load
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
    /// A look for those who remain found nothing to give them.
    Gone,
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
    /// The loader failed, panicked or took too long.
    LoadFailed,
    /// There is nothing left to load with: the caller who opened the flight took its request back.
    NoJob,
    /// Whether the value is kept.
    Committed(Committed),
    /// An answer was landed. Others, who joined too late for it, may remain.
    Landed { others: bool },
    /// The lease was given up.
    Released,
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
}

/// What to do next.
pub(crate) fn next(event: Event, standing: Standing) -> Step {
    let Standing { leased, can_load, store_failed } = standing;
    match event {
        Event::Opened { store_failed: false } | Event::Waited | Event::Unreadable => Step::Acquire,
        Event::Opened { store_failed: true } => Step::Load,
        Event::Found => Step::Land(On::Asked),
        Event::Gone if can_load => Step::Acquire,
        Event::Busy => Step::Wait,
        Event::Led | Event::AskFailed if can_load => Step::Load,
        Event::Loaded if leased == Leased::Yes => Step::Commit,
        Event::Loaded => Step::Land(On::BeforeLoad),
        Event::LoadFailed => Step::Land(On::All),
        Event::Committed(Committed::Stored) => Step::Land(On::Asked),
        Event::Committed(Committed::Superseded | Committed::Failed) => Step::Land(On::BeforeLoad),
        Event::Landed { others: true } if leased == Leased::No && !store_failed => Step::Look,
        Event::Gone
        | Event::Led
        | Event::AskFailed
        | Event::Deserted
        | Event::NoJob
        | Event::Landed { .. } => end(leased),
        Event::Released => Step::Close,
    }
}

fn end(leased: Leased) -> Step {
    match leased {
        Leased::No => Step::Close,
        Leased::Perhaps | Leased::Yes => Step::Release,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 18] = [
        Event::Opened { store_failed: false },
        Event::Opened { store_failed: true },
        Event::Found,
        Event::Unreadable,
        Event::Gone,
        Event::Busy,
        Event::Led,
        Event::AskFailed,
        Event::Waited,
        Event::Deserted,
        Event::Loaded,
        Event::LoadFailed,
        Event::NoJob,
        Event::Committed(Committed::Stored),
        Event::Committed(Committed::Superseded),
        Event::Committed(Committed::Failed),
        Event::Landed { others: true },
        Event::Landed { others: false },
    ];

    /// All standings, in the order of the columns of the table below.
    fn standings() -> impl Iterator<Item = Standing> {
        let of = |leased| {
            [(false, false), (false, true), (true, false), (true, true)]
                .map(move |(can_load, store_failed)| Standing { leased, can_load, store_failed })
        };
        [Leased::No, Leased::Yes, Leased::Perhaps].into_iter().flat_map(of)
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
            Step::Land(On::Asked) => 'a',
            Step::Land(On::BeforeLoad) => 'b',
            Step::Land(On::All) => 'e',
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
            (Event::Gone, "..AA RRAA RRAA"),
            (Event::Busy, "WWWW WWWW WWWW"),
            (Event::Led, "..FF RRFF RRFF"),
            (Event::AskFailed, "..FF RRFF RRFF"),
            (Event::Waited, "AAAA AAAA AAAA"),
            (Event::Deserted, ".... RRRR RRRR"),
            (Event::Loaded, "bbbb CCCC bbbb"),
            (Event::LoadFailed, "eeee eeee eeee"),
            (Event::NoJob, ".... RRRR RRRR"),
            (Event::Committed(Committed::Stored), "aaaa aaaa aaaa"),
            (Event::Committed(Committed::Superseded), "bbbb bbbb bbbb"),
            (Event::Committed(Committed::Failed), "bbbb bbbb bbbb"),
            (Event::Landed { others: true }, "L.L. RRRR RRRR"),
            (Event::Landed { others: false }, ".... RRRR RRRR"),
        ];
        assert_eq!(table.map(|(event, _)| event), EVENTS, "the table leaves no event out");
        for (event, row) in table {
            let steps: String = standings().map(|at| letter(next(event, at))).collect();
            assert_eq!(steps, row.replace(' ', ""), "after {event:?}");
        }
        assert!(standings().all(|at| next(Event::Released, at) == Step::Close));
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
            assert!(standings().all(|at| next(event, at) == Step::Land(On::BeforeLoad)));
        }
        let mut unleased = standings().filter(|at| at.leased != Leased::Yes);
        assert!(unleased.all(|at| next(Event::Loaded, at) == Step::Land(On::BeforeLoad)));
    }
}
