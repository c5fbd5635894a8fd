//! The protocol as a table, and what holds in all of it.

use super::*;

const EVENTS: [Event; 33] = [
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
    Event::LoadFailed(Blame::Spared),
    Event::LoadFailed(Blame::Request),
    Event::LoadFailed(Blame::Limit),
    Event::LoadFailed(Blame::Source),
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
        Step::Fail => 'x',
        Step::Disperse => 'D',
        Step::Rest => 'Z',
        Step::Land(On::Asked) => 'a',
        Step::Land(On::BeforeLoad) => 'b',
        Step::Land(On::All) => 'e',
        Step::Land(On::Opener) => 'o',
        Step::Land(On::Requester) => 'r',
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
        (Event::LoadFailed(Blame::Spared), ".... RRRR RRRR"),
        (Event::LoadFailed(Blame::Request), "rrrr rrrr rrrr"),
        (Event::LoadFailed(Blame::Limit), "bbbb bbbb bbbb"),
        (Event::LoadFailed(Blame::Source), "eeee eeee eeee"),
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
        assert_eq!(row(Event::Landed { others }, failed), ".... xxxx RRRR");
    }
    assert_eq!(row(Event::LoadFailed(Blame::Spared), failed), ".... xxxx RRRR");
}

#[test]
fn whatever_becomes_of_a_marker_those_who_came_meanwhile_load_for_themselves() {
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
        // The opener of a flight brings a request.
        if !matches!(event, Event::Opened { .. }) {
            assert_ne!(next(event, standing), Step::Load, "{event:?}, {standing:?}");
        }
    }
}

#[test]
fn a_value_of_which_it_is_unknown_whether_it_is_current_lands_on_nobody_who_came_later() {
    for event in [Event::Committed(Committed::Superseded), Event::Committed(Committed::Failed)] {
        let mut shared = standings().filter(|at| !at.is_private);
        assert!(shared.all(|at| next(event, at) == Step::Land(On::BeforeLoad)));
    }
    let mut unleased = standings().filter(|at| at.leased != Leased::Yes);
    assert!(unleased.all(|at| next(Event::Loaded, at) == Step::Land(On::BeforeLoad)));
}
