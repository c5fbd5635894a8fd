//! The protocol as a table, and what holds in every row of it.

use crate::step::*;

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
    type Other = &'static str;
    type Moment = u8;
}

type WordMemory = Memory<&'static str, &'static str>;

/// What the flight knows before every row. It has waited for another process, or has not.
fn memory(waited: bool) -> WordMemory {
    Memory { accept: "fresh", waited, fallback: Some("old") }
}

fn to<T>(to: To<u8>, outcome: &'static str, and: impl IntoIterator<Item = WaiterAction<Words>>) -> T
where
    T: FromIterator<WaiterAction<Words>>,
{
    [WaiterAction::Complete(to, outcome)].into_iter().chain(and).collect()
}

fn before<T: FromIterator<WaiterAction<Words>>>(generation: u8, outcome: &'static str) -> T {
    to(To::Before(generation), outcome, [])
}

type Row = (Event<Words>, Vec<WaiterAction<Words>>, State<Words>);

/// The step after an event, and what the flight accepts then.
fn step(event: &Event<Words>, waited: bool) -> (Step<Words>, &'static str) {
    let mut after = memory(waited);
    let step = next(event.clone(), &mut after);
    assert_eq!(Memory { accept: "fresh", ..after }, memory(waited), "after {event:?}");
    (step, after.accept)
}

/// What the store said of the lease of another process.
const LEASED: &str = "other lease";

const LEASE: LeaseHold<&str> = LeaseHold::Lease("lease");
const HOLDS: [LeaseHold<&str>; 4] =
    [LEASE, LeaseHold::Nothing, LeaseHold::NotAsked, LeaseHold::Unacknowledged];

fn released(hold: LeaseHold<&'static str>) -> State<Words> {
    match hold {
        LeaseHold::Lease(lease) => State::Releasing { lease: Some(lease), record: None },
        LeaseHold::Unacknowledged => State::Releasing { lease: None, record: None },
        LeaseHold::Nothing | LeaseHold::NotAsked => State::Closed,
    }
}

/// What the store answers before a load.
fn answers() -> Vec<Row> {
    let asked = 7;
    let accept = "other";
    let found = |due| Event::Found { asked, outcome: "value", due };
    let detached = to(To::Before(7), "value", [WaiterAction::Detach(7)]);
    let busy = |meanwhile| Event::Busy { asked, other: LEASED, meanwhile };
    let queued = |meanwhile| Event::Queued { asked, meanwhile };
    let waiting = || State::Waiting { asked, other: LEASED };
    let granted =
        |meanwhile| Event::Granted { asked, lease: "lease", probe: Some("down"), meanwhile };
    let loading = || State::Loading { hold: LEASE, meanwhile: Some("down") };
    let fallback = || vec![WaiterAction::SetFallback(7, "stale")];
    let detached_stale = || to(To::Before(7), "stale", [WaiterAction::Detach(7)]);
    vec![
        (found(None), before(7, "value"), State::LookingUp { late: 7 }),
        (found(Some("other")), detached, State::Acquiring),
        (Event::Unreadable { accept }, vec![], State::Acquiring),
        (Event::PrivateKey { accept }, vec![], State::Acquiring),
        (Event::PrivateOnce { accept }, vec![], State::Acquiring),
        (Event::Uncacheable { accept, known: KnownFailure::Nothing }, vec![], State::Acquiring),
        (queued(Meanwhile::Nothing), vec![], State::Acquiring),
        (queued(Meanwhile::Give("stale")), detached_stale(), State::Acquiring),
        (queued(Meanwhile::Fallback("stale")), fallback(), State::Acquiring),
        (busy(Meanwhile::Nothing), vec![], waiting()),
        (busy(Meanwhile::Give("stale")), detached_stale(), waiting()),
        (busy(Meanwhile::Fallback("stale")), fallback(), waiting()),
        (granted(Meanwhile::Nothing), vec![], loading()),
        (granted(Meanwhile::Give("stale")), detached_stale(), loading()),
        (granted(Meanwhile::Fallback("stale")), fallback(), loading()),
    ]
}

/// What the store answers in a cooldown, and what ends a wait.
fn cooldowns() -> Vec<Row> {
    let asked = 7;
    let accept = "other";
    let cooling_down = |hold| State::CoolingDown { failure: Some("down"), until: 5, hold };
    let gone = |can_load| Event::Gone { accept, can_load };
    vec![
        (
            Event::InCooldown { failure: "down", until: Some(5) },
            to(To::All, "down", []),
            cooling_down(LeaseHold::Nothing),
        ),
        (
            Event::InCooldown { failure: "down", until: None },
            to(To::All, "down", []),
            State::Closed,
        ),
        (
            Event::InCooldownStale { asked, stale: "stale", until: 5 },
            before(7, "stale"),
            State::CoolingDown { failure: None, until: 5, hold: LeaseHold::Nothing },
        ),
        (Event::NoneRemain, vec![], State::Closed),
        (gone(true), vec![], State::Acquiring),
        (gone(false), vec![], State::Closed),
        (Event::Told { asked, outcome: "value" }, before(7, "value"), State::LookingUp { late: 7 }),
        (Event::Waited, vec![], State::Acquiring),
        (Event::Abandoned, vec![], State::Closed),
        (
            Event::JoinedCooldown { failure: None, until: 5, hold: LeaseHold::Nothing },
            vec![],
            State::Acquiring,
        ),
        (
            Event::JoinedCooldown {
                failure: Some("down"),
                until: 5,
                hold: LeaseHold::Unacknowledged,
            },
            to(To::All, "down", []),
            cooling_down(LeaseHold::Unacknowledged),
        ),
    ]
}

/// The markers that other processes leave for waiters.
fn markers() -> Vec<Row> {
    let accept = "other";
    let uncacheable = |known| Event::Uncacheable { accept, known };
    let loading = |meanwhile| State::Loading { hold: LeaseHold::Nothing, meanwhile };
    let cooling_down =
        State::CoolingDown { failure: Some("down"), until: 5, hold: LeaseHold::Nothing };
    vec![
        (Event::PrivateKey { accept }, vec![WaiterAction::Release], State::Closed),
        (Event::PrivateOnce { accept }, vec![WaiterAction::ReleaseAtClose], State::Closed),
        (uncacheable(KnownFailure::Nothing), vec![], loading(None)),
        (uncacheable(KnownFailure::Probe("down")), vec![], loading(Some("down"))),
        (uncacheable(KnownFailure::Cooldown("down", 5)), to(To::All, "down", []), cooling_down),
    ]
}

/// The store does not answer.
fn store_failures(hold: LeaseHold<&'static str>) -> Vec<Row> {
    let failed = |may_load, known| Event::StoreFailed { error: "lost", known, hold, may_load };
    let loading = |meanwhile| State::Loading { hold, meanwhile };
    let cooling_down = || State::CoolingDown { failure: Some("down"), until: 5, hold };
    let cooldown = || KnownFailure::Cooldown("down", 5);
    let all = |outcome| to(To::All, outcome, []);
    vec![
        (failed(true, KnownFailure::Nothing), vec![], loading(None)),
        (failed(true, KnownFailure::Probe("down")), vec![], loading(Some("down"))),
        (failed(true, cooldown()), all("down"), cooling_down()),
        (failed(false, KnownFailure::Nothing), all("lost"), released(hold)),
        (failed(false, KnownFailure::Probe("down")), all("lost"), released(hold)),
        (failed(false, cooldown()), all("down"), cooling_down()),
        (Event::CooldownEnded { hold }, vec![], released(hold)),
    ]
}

type Answer = AnswerOf<Words>;

fn loaded(share: Share, record: Option<Record<&'static str, &'static str>>) -> Answer {
    LoadAnswer { began: 4, outcome: "own", share, record, fallback: None }
}

const REPORT: Option<Record<&str, &str>> = Some(Record::Failure("report"));

/// A load has ended.
fn ends(hold: LeaseHold<&'static str>) -> Vec<Row> {
    let ended = |answer| Event::LoadEnded { hold, answer };
    let value = loaded(Share::Joined, Some(Record::Value("draft")));
    let (told, state) = match hold {
        LeaseHold::Lease(lease) => {
            let draft = "draft";
            (vec![], State::Committing { lease, draft, began: 4, outcome: "own" })
        }
        LeaseHold::Nothing => (before(4, "own"), State::LookingUp { late: 4 }),
        LeaseHold::NotAsked | LeaseHold::Unacknowledged => (before(4, "own"), released(hold)),
    };
    let telling = |record| match hold {
        LeaseHold::Lease(lease) => State::Releasing { lease: Some(lease), record },
        _ => released(hold),
    };
    let marker = Some(Record::Marker("marker"));
    let (marking, reporting) = (telling(marker), telling(REPORT));
    let private = |share, record| ended(loaded(share, record));
    let release = to(To::Opener, "own", [WaiterAction::Release]);
    let release_at_close = || to(To::Opener, "own", [WaiterAction::ReleaseAtClose]);
    let failed = |share| ended(loaded(share, REPORT));
    let unreported = ended(loaded(Share::All, None));
    let instead = LoadAnswer { fallback: Some(("stale", 2)), ..loaded(Share::All, REPORT) };
    let opener = to(To::Opener, "own", []);
    let all = || to(To::All, "own", []);
    vec![
        (ended(value), told, state),
        (private(Share::PrivateKey, marker), release, marking.clone()),
        (private(Share::PrivateOnce, marker), release_at_close(), marking),
        (private(Share::PrivateOnce, None), release_at_close(), released(hold)),
        (failed(Share::Opener), opener, reporting.clone()),
        (failed(Share::Joined), before(4, "own"), reporting.clone()),
        (failed(Share::All), all(), reporting.clone()),
        (ended(instead), before(2, "stale"), reporting),
        (unreported, all(), released(hold)),
        (Event::NotLoaded { hold }, vec![], released(hold)),
    ]
}

/// A lease was released, or was not.
fn commits() -> Vec<Row> {
    let asked = 8;
    let began = 4;
    let outcome = "value";
    let stored = Event::Stored { asked, outcome };
    let superseded = Event::Superseded { began, outcome };
    let unacknowledged = || State::Releasing { lease: None, record: None };
    let uncached = State::Loading { hold: LeaseHold::NotAsked, meanwhile: None };
    vec![
        (Event::WaitRanOut, vec![], uncached),
        (stored, before(8, "value"), State::LookingUp { late: 8 }),
        (superseded, before(4, "value"), State::LookingUp { late: 4 }),
        (Event::CommitFailed { began, outcome }, before(4, "value"), unacknowledged()),
        (Event::Unacknowledged, vec![], unacknowledged()),
        (Event::Released, vec![], State::Closed),
    ]
}

/// All rows, and whether the flight has waited.
fn table() -> Vec<(bool, Row)> {
    let failures = HOLDS.into_iter().skip(2).flat_map(store_failures);
    let before = answers().into_iter().chain(cooldowns()).chain(failures);
    let ends = HOLDS.into_iter().flat_map(ends);
    let after = markers().into_iter().chain(commits()).chain(ends);
    before.map(|row| (false, row)).chain(after.map(|row| (true, row))).collect()
}

/// A new event does not compile before it is counted here.
fn number(event: &Event<Words>) -> usize {
    match event {
        Event::Found { .. } => 0,
        Event::Unreadable { .. } => 1,
        Event::PrivateKey { .. } => 2,
        Event::PrivateOnce { .. } => 3,
        Event::Uncacheable { .. } => 4,
        Event::Busy { .. } => 5,
        Event::Granted { .. } => 6,
        Event::InCooldown { .. } => 7,
        Event::InCooldownStale { .. } => 8,
        Event::StoreFailed { .. } => 9,
        Event::NoneRemain => 10,
        Event::Gone { .. } => 11,
        Event::Waited => 12,
        Event::Abandoned => 13,
        Event::LoadEnded { .. } => 14,
        Event::Stored { .. } => 15,
        Event::Superseded { .. } => 16,
        Event::CommitFailed { .. } => 17,
        Event::Unacknowledged => 18,
        Event::Released => 19,
        Event::JoinedCooldown { .. } => 20,
        Event::CooldownEnded { .. } => 21,
        Event::Told { .. } => 22,
        Event::WaitRanOut => 23,
        Event::NotLoaded { .. } => 24,
        Event::Queued { .. } => 25,
    }
}

#[test]
fn the_whole_protocol_is_this_table() {
    let mut left_out: Vec<_> = (0..26).collect();
    for (waited, (event, told, state)) in table() {
        left_out.retain(|left| *left != number(&event));
        let (step, accept) = step(&event, waited);
        let accepted = match event {
            Event::Found { due: Some(accept), .. } => accept,
            Event::Unreadable { accept }
            | Event::PrivateKey { accept }
            | Event::PrivateOnce { accept }
            | Event::Uncacheable { accept, .. }
            | Event::Gone { accept, .. }
                if state == State::Acquiring =>
            {
                accept
            }
            _ => "fresh",
        };
        assert_eq!((step.actions, step.state, accept), (told, state, accepted), "after {event:?}");
    }
    assert!(left_out.is_empty(), "{left_out:?}: the table leaves no event out");
}

#[test]
fn if_the_policy_is_to_fail_every_waiter_gets_the_failure_of_the_store() {
    for hold in HOLDS {
        let error = "lost";
        let known = KnownFailure::Nothing;
        let may_load = false;
        let (step, _) = step(&Event::StoreFailed { error, known, hold, may_load }, false);
        assert_eq!(step.actions, [WaiterAction::Complete(To::All, "lost")], "{hold:?}");
    }
}

#[test]
fn a_load_without_a_lease_begins_only_for_callers() {
    for (hold, is_awaited) in HOLDS.into_iter().flat_map(|hold| [(hold, true), (hold, false)]) {
        assert_eq!(begins(&hold, true, || is_awaited), is_awaited || hold == LEASE, "{hold:?}");
        assert!(!begins(&hold, false, || is_awaited), "without a request to load with");
    }
}

#[test]
fn nothing_is_closed_while_a_lease_may_be_ours() {
    for hold in [LEASE, LeaseHold::Unacknowledged] {
        for (event, ..) in ends(hold).into_iter().chain(store_failures(hold)) {
            assert_ne!(step(&event, false).0.state, State::Closed, "{event:?}");
        }
    }
}

#[test]
fn a_failed_load_releases_its_lease_with_a_report() {
    for share in [Share::Opener, Share::Joined, Share::All] {
        for fallback in [None, Some(("stale", 2))] {
            let answer = LoadAnswer { fallback, ..loaded(share, REPORT) };
            let ended = Event::LoadEnded { hold: LEASE, answer };
            let (step, _) = step(&ended, false);
            assert_eq!(step.state, State::Releasing { lease: Some("lease"), record: REPORT });
        }
    }
}

#[test]
fn a_value_that_may_be_outdated_completes_no_later_waiter() {
    let began = 4;
    let outcome = "value";
    let superseded = Event::Superseded { began, outcome };
    let unleased =
        [LeaseHold::Nothing, LeaseHold::NotAsked, LeaseHold::Unacknowledged].map(|hold| {
            let value = loaded(Share::Joined, Some(Record::Value("draft")));
            let answer = LoadAnswer { outcome, ..value };
            Event::LoadEnded { hold, answer }
        });
    let events = [superseded, Event::CommitFailed { began, outcome }].into_iter().chain(unleased);
    for event in events {
        let (step, _) = step(&event, false);
        assert_eq!(step.actions, [WaiterAction::Complete(To::Before(4), "value")], "{event:?}");
    }
}

fn shared(said: AnswerKind, failures: u32) -> (Share, Remember) {
    let known = KnownOfKey { failures, replaces: false, shares_failures: true };
    let Verdict { share, remember, .. } = verdict(said, known);
    (share, remember)
}

#[test]
fn a_second_failure_confirms_the_first() {
    for said in [AnswerKind::Failed, AnswerKind::Unconfirmed, AnswerKind::TimedOut] {
        assert_eq!(shared(said, 0).1, Remember::Failure, "{said:?}");
        assert_eq!(shared(said, 1).0, Share::All, "{said:?}");
    }
    assert_eq!(shared(AnswerKind::Failed, 0).0, Share::Opener);
    assert_eq!(shared(AnswerKind::TimedOut, 0).0, Share::Joined);
    assert_eq!(shared(AnswerKind::Failed, 1).1, Remember::Cooldown);
}

#[test]
fn an_answer_that_was_given_begins_no_cooldown() {
    assert_eq!(shared(AnswerKind::Unconfirmed, 9).1, Remember::Failure);
}

#[test]
fn a_failure_of_one_load_or_request_is_not_remembered() {
    assert_eq!(shared(AnswerKind::RequestFailed, 9), (Share::Opener, Remember::Nothing));
    assert_eq!(shared(AnswerKind::LoadFailed, 0), (Share::All, Remember::Nothing));
}

#[test]
fn a_failure_that_can_be_repeated_at_will_is_not_stored() {
    let known = KnownOfKey { failures: 1, replaces: true, shares_failures: false };
    assert!(!verdict(AnswerKind::SourceFailed, known).is_stored);
    assert!(!verdict(AnswerKind::PrivateOnce, known).is_stored, "the marker would replace a value");
    assert!(verdict(AnswerKind::PrivateKey, known).is_stored);
}
