//! The protocol as a table, and what holds in all of it.

use super::*;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Words;

impl Payload for Words {
    type Outcome = &'static str;
    type Generation = u8;
    type Accept = &'static str;
    type Lease = &'static str;
    type Draft = &'static str;
    type Failure = &'static str;
    type Fallback = &'static str;
    type Span = u8;
    type Moment = u8;
}

type Of = Memory<&'static str, &'static str>;

/// What the flight knows in every row: it has waited, or has not.
fn memory(waited: bool) -> Of {
    Memory { accept: "fresh", waited, fallback: Some("old") }
}

fn other(waited: bool) -> Of {
    Memory { accept: "other", ..memory(waited) }
}

fn to<T>(to: To<u8>, outcome: &'static str, and: impl IntoIterator<Item = Tell<Words>>) -> T
where
    T: FromIterator<Tell<Words>>,
{
    [Tell::Complete(to, outcome)].into_iter().chain(and).collect()
}

fn before<T: FromIterator<Tell<Words>>>(generation: u8, outcome: &'static str) -> T {
    to(To::Before(generation), outcome, [])
}

type Row = (Event<Words>, Vec<Tell<Words>>, State<Words>);

const LEASE: Hold<&str> = Hold::Lease("lease");
const HOLDS: [Hold<&str>; 4] = [LEASE, Hold::Nothing, Hold::StoreDown, Hold::Unacknowledged];

fn given_up(hold: Hold<&'static str>) -> State<Words> {
    match hold {
        Hold::Lease(lease) => State::Releasing { lease: Some(lease) },
        Hold::Unacknowledged => State::Releasing { lease: None },
        Hold::Nothing | Hold::StoreDown => State::Closed,
    }
}

/// What the store answers before a load.
fn answers() -> Vec<Row> {
    let (asked, memory, accept) = (7, memory(false), "other");
    let found = |due| Event::Found { asked, outcome: "value", due, memory };
    let detached = to(To::Before(7), "value", [Tell::Detach(7)]);
    let busy = |meanwhile| Event::Busy { asked, left: 9, meanwhile, memory };
    let waiting = || State::Waiting { left: 9, memory };
    let led =
        |meanwhile| Event::Led { asked, lease: "lease", probe: Some("down"), meanwhile, memory };
    let loading = || State::Loading { hold: LEASE, meanwhile: Some("down"), memory };
    let offered = || vec![Tell::Offer(7, "stale", 3)];
    let given = || to(To::Before(7), "stale", [Tell::Detach(7)]);
    let resting = |hold| State::Resting { failure: "down", until: 5, hold };
    let again = || State::Acquiring { memory: other(false) };
    let gone = |can_load| Event::Gone { accept, can_load, memory };
    vec![
        (found(None), before(7, "value"), State::LookingUp { late: 7, memory }),
        (found(Some("other")), detached, again()),
        (Event::Unreadable { accept, memory }, vec![], again()),
        (Event::Private { accept, memory }, vec![], again()),
        (Event::Own { accept, memory }, vec![], again()),
        (Event::Unkept { accept, known: Known::Nothing, memory }, vec![], again()),
        (busy(Meanwhile::Nothing), vec![], waiting()),
        (busy(Meanwhile::Give("stale")), given(), waiting()),
        (busy(Meanwhile::Offer("stale", 3)), offered(), waiting()),
        (led(Meanwhile::Nothing), vec![], loading()),
        (led(Meanwhile::Give("stale")), given(), loading()),
        (led(Meanwhile::Offer("stale", 3)), offered(), loading()),
        (
            Event::Failing { failure: "down", until: Some(5) },
            to(To::All, "down", []),
            resting(Hold::Nothing),
        ),
        (Event::Failing { failure: "down", until: None }, to(To::All, "down", []), State::Closed),
        (
            Event::Spared { asked, stale: "stale", until: 5, memory },
            before(7, "stale"),
            State::Sparing { until: 5, memory },
        ),
        (Event::NoneRemain, vec![], State::Closed),
        (gone(true), vec![], again()),
        (gone(false), vec![], State::Closed),
        (Event::Waited { memory }, vec![], State::Acquiring { memory }),
        (Event::Abandoned, vec![], State::Closed),
        (Event::JoinedSpared { memory }, vec![], State::Acquiring { memory }),
        (
            Event::JoinedFailing { failure: "down", until: 5, hold: Hold::Unacknowledged },
            to(To::All, "down", []),
            resting(Hold::Unacknowledged),
        ),
    ]
}

/// The markers that other processes leave for those that wait.
fn markers() -> Vec<Row> {
    let (memory, accept) = (memory(true), "other");
    let unkept = |known| Event::Unkept { accept, known, memory };
    let loading = |meanwhile| State::Loading { hold: Hold::Nothing, meanwhile, memory };
    let resting = State::Resting { failure: "down", until: 5, hold: Hold::Nothing };
    vec![
        (Event::Private { accept, memory }, vec![Tell::Release], State::Closed),
        (Event::Own { accept, memory }, vec![Tell::ReleaseAtClose], State::Closed),
        (unkept(Known::Nothing), vec![], loading(None)),
        (unkept(Known::Probe("down")), vec![], loading(Some("down"))),
        (unkept(Known::Cooldown("down", 5)), to(To::All, "down", []), resting),
    ]
}

/// The store does not answer.
fn store_failures(hold: Hold<&'static str>) -> Vec<Row> {
    let memory = memory(false);
    let failed =
        |may_load, known| Event::StoreFailed { error: "lost", known, hold, may_load, memory };
    let loading = |meanwhile| State::Loading { hold, meanwhile, memory };
    let resting = || State::Resting { failure: "down", until: 5, hold };
    let cooldown = || Known::Cooldown("down", 5);
    let all = |outcome| to(To::All, outcome, []);
    vec![
        (failed(true, Known::Nothing), vec![], loading(None)),
        (failed(true, Known::Probe("down")), vec![], loading(Some("down"))),
        (failed(true, cooldown()), all("down"), resting()),
        (failed(false, Known::Nothing), all("lost"), given_up(hold)),
        (failed(false, Known::Probe("down")), all("lost"), given_up(hold)),
        (failed(false, cooldown()), all("down"), resting()),
        (Event::Rested { hold }, vec![], given_up(hold)),
    ]
}

type End = LoadEnd<&'static str, u8, &'static str, &'static str>;

fn failed(blame: Blame, stale: Option<(&'static str, u8)>, report: Option<&'static str>) -> End {
    LoadEnd::Failed { began: 4, outcome: "down", blame, fallback: stale, report }
}

/// A load has ended.
fn ends(hold: Hold<&'static str>) -> Vec<Row> {
    let memory = memory(true);
    let ended = |end| Event::LoadEnded { hold, end, memory };
    let value = LoadEnd::Value { began: 4, outcome: "value", draft: "draft" };
    let (told, state) = match hold {
        Hold::Lease(lease) => {
            let (draft, began, outcome) = ("draft", 4, "value");
            (vec![], State::Committing { lease, draft, began, outcome, memory })
        }
        Hold::Nothing => (before(4, "value"), State::LookingUp { late: 4, memory }),
        Hold::StoreDown | Hold::Unacknowledged => (before(4, "value"), given_up(hold)),
    };
    let marking = match hold {
        Hold::Lease(lease) => State::Marking { lease, marker: "marker" },
        _ => given_up(hold),
    };
    let reporting = match hold {
        Hold::Lease(lease) => State::Reporting { lease, failure: "report" },
        _ => given_up(hold),
    };
    let (outcome, marker) = ("own", "marker");
    let release = to(To::Opener, "own", [Tell::Release]);
    let release_at_close = || to(To::Opener, "own", [Tell::ReleaseAtClose]);
    let failed = |blame, stale| ended(failed(blame, stale, Some("report")));
    let unreported = ended(self::failed(Blame::Source, None, None));
    let own = |marker| ended(LoadEnd::Own { outcome, marker });
    let opener = to(To::Opener, "down", []);
    let all = || to(To::All, "down", []);
    vec![
        (ended(value), told, state),
        (ended(LoadEnd::Private { outcome, marker }), release, marking.clone()),
        (own(Some("marker")), release_at_close(), marking),
        (own(None), release_at_close(), given_up(hold)),
        (failed(Blame::Request, None), opener, reporting.clone()),
        (failed(Blame::Limit, None), before(4, "down"), reporting.clone()),
        (failed(Blame::Source, None), all(), reporting.clone()),
        (failed(Blame::Source, Some(("stale", 2))), before(2, "stale"), reporting),
        (unreported, all(), given_up(hold)),
        (ended(LoadEnd::Abandoned), vec![], given_up(hold)),
        (ended(LoadEnd::NoRequest), vec![], given_up(hold)),
    ]
}

/// A lease was given up, or was not.
fn commits() -> Vec<Row> {
    let (asked, began, outcome, memory) = (8, 4, "value", memory(true));
    let stored = Event::Stored { asked, outcome, memory };
    let superseded = Event::Superseded { began, outcome, memory };
    let unsure = || State::Releasing { lease: None };
    vec![
        (stored, before(8, "value"), State::LookingUp { late: 8, memory }),
        (superseded, before(4, "value"), State::LookingUp { late: 4, memory }),
        (Event::CommitFailed { began, outcome }, before(4, "value"), unsure()),
        (Event::Unacknowledged, vec![], unsure()),
        (Event::Released, vec![], State::Closed),
    ]
}

fn table() -> Vec<Row> {
    let failures = HOLDS.into_iter().skip(2).flat_map(store_failures);
    let ends = HOLDS.into_iter().flat_map(ends);
    let rows = answers().into_iter().chain(markers()).chain(commits());
    rows.chain(failures).chain(ends).collect()
}

/// A new event does not compile before it is counted here.
fn number(event: &Event<Words>) -> usize {
    match event {
        Event::Found { .. } => 0,
        Event::Unreadable { .. } => 1,
        Event::Private { .. } => 2,
        Event::Own { .. } => 3,
        Event::Unkept { .. } => 4,
        Event::Busy { .. } => 5,
        Event::Led { .. } => 6,
        Event::Failing { .. } => 7,
        Event::Spared { .. } => 8,
        Event::StoreFailed { .. } => 9,
        Event::NoneRemain => 10,
        Event::Gone { .. } => 11,
        Event::Waited { .. } => 12,
        Event::Abandoned => 13,
        Event::LoadEnded { .. } => 14,
        Event::Stored { .. } => 15,
        Event::Superseded { .. } => 16,
        Event::CommitFailed { .. } => 17,
        Event::Unacknowledged => 18,
        Event::Released => 19,
        Event::JoinedFailing { .. } => 20,
        Event::JoinedSpared { .. } => 21,
        Event::Rested { .. } => 22,
    }
}

#[test]
fn the_whole_protocol_is_this_table() {
    let mut left_out: Vec<_> = (0..23).collect();
    for (event, told, state) in table() {
        left_out.retain(|left| *left != number(&event));
        let step = next(event.clone());
        assert_eq!((step.tell, step.state), (told, state), "after {event:?}");
    }
    assert!(left_out.is_empty(), "{left_out:?}: the table leaves no event out");
}

#[test]
fn where_the_store_must_not_fail_its_failure_is_the_answer_of_every_waiter() {
    for hold in HOLDS {
        let (error, known, may_load) = ("lost", Known::Nothing, false);
        let step = next::<Words>(Event::StoreFailed {
            error,
            known,
            hold,
            may_load,
            memory: memory(false),
        });
        assert_eq!(step.tell, [Tell::Complete(To::All, "lost")], "{hold:?}");
    }
}

#[test]
fn nothing_is_closed_while_a_lease_may_be_ours() {
    for hold in [LEASE, Hold::Unacknowledged] {
        for (event, ..) in ends(hold).into_iter().chain(store_failures(hold)) {
            assert_ne!(next(event.clone()).state, State::Closed, "{event:?}");
        }
    }
}

#[test]
fn a_lease_under_which_a_load_failed_is_given_up_with_word_of_that() {
    for blame in [Blame::Request, Blame::Limit, Blame::Source] {
        for stale in [None, Some(("stale", 2))] {
            let end = failed(blame, stale, Some("report"));
            let step = next::<Words>(Event::LoadEnded { hold: LEASE, end, memory: memory(false) });
            assert_eq!(step.state, State::Reporting { lease: "lease", failure: "report" });
        }
    }
}

#[test]
fn a_value_of_which_it_is_unknown_whether_it_is_current_completes_no_later_waiter() {
    let (began, outcome, memory) = (4, "value", memory(false));
    let superseded = Event::Superseded { began, outcome, memory };
    let unleased = [Hold::Nothing, Hold::StoreDown, Hold::Unacknowledged].map(|hold| {
        let end = LoadEnd::Value { began, outcome, draft: "draft" };
        Event::LoadEnded { hold, end, memory }
    });
    let events = [superseded, Event::CommitFailed { began, outcome }].into_iter().chain(unleased);
    for event in events {
        let step = next::<Words>(event.clone());
        assert_eq!(step.tell, [Tell::Complete(To::Before(4), "value")], "{event:?}");
    }
}
