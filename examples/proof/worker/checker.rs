//! What a worker checks of each read: by the floors before it, and by the answer.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::{CacheStatus, Error, LoadLocation};

use super::source::{Source, SourceDown};
use crate::clock::{Stalls, now};
use crate::floors::{Bounds, Floor, Floors, Return, Sort, Subject};
use crate::kinds::{LONGEST, RowKey};
use crate::late::{Invalidation, Late, Place};
use crate::locked::locked;
use crate::messages::{Promise, Report, Setup, Suspect};
use crate::row::{Row, Versions};
use crate::tally::{Counts, Tally, Tier};

/// For how long a near copy may be served after an invalidation by another process: 1 s, and the timeout of a
/// request, which is 250 ms.
const NEAR_BOUND: u64 = 1_250_000;

/// What a busy machine may add to a bound of a caller.
const MARGIN: u64 = 1_000_000;
/// What it may add to a stale window, which begins when a commit or an expiry is executed.
const STALE_MARGIN: u64 = 500_000;

const JUST_THEN: u64 = 10_000;

/// The checks of one process.
#[derive(Debug)]
pub(super) struct Checker {
    floors: Floors,
    worker: usize,
    workers: usize,
    source: Source,
    tally: Mutex<Tally>,
    late: Mutex<Late>,
    is_faulty: AtomicBool,
    stalls: Arc<Stalls>,
    /// What was reported, so that it is not reported for each read.
    known: Mutex<HashSet<Known>>,
}

/// The key, the two versions of the row, the store, and the newest version that was broken.
type Known = (u64, u64, u64, usize, u64);

/// What was known before a read.
pub(super) struct Began {
    pub(super) key: RowKey,
    pub(super) store: usize,
    at: u64,
    stalled: u64,
    was_faulty: bool,
    row: Option<(Subject, Bounds)>,
    group: Option<(Subject, Bounds)>,
}

/// An answer, and how it came about.
pub(super) struct Answered {
    pub(super) answer: Result<Row, Error<SourceDown>>,
    /// None if the call does not tell.
    pub(super) status: Option<CacheStatus>,
    pub(super) at_once: bool,
    /// When its caller wanted it.
    pub(super) limit: Option<Duration>,
}

impl Checker {
    pub(super) fn new(floors: Floors, setup: &Setup, source: Source) -> Self {
        Self {
            floors,
            worker: setup.worker as usize,
            workers: setup.workers,
            source,
            tally: Mutex::default(),
            late: Mutex::default(),
            is_faulty: AtomicBool::new(setup.is_faulty),
            stalls: Stalls::watch(),
            known: Mutex::default(),
        }
    }

    pub(super) fn floors(&self) -> &Floors {
        &self.floors
    }

    /// The store of this process among those of all processes.
    pub(super) fn member(&self, store: usize) -> usize {
        2 * self.worker + store
    }

    /// Behind them, what this process has recorded in the database.
    pub(super) fn recorded_member(&self) -> usize {
        2 * self.workers + self.worker
    }

    /// Behind these, what it has committed there, applied or not.
    pub(super) fn committed_member(&self) -> usize {
        3 * self.workers + self.worker
    }

    pub(super) fn set_faulty(&self, is_faulty: bool) {
        self.is_faulty.store(is_faulty, Ordering::Relaxed);
    }

    pub(super) fn count(&self, what: &str) {
        locked(&self.tally).count(what, 1);
    }

    pub(super) fn take_tally(&self) -> Tally {
        std::mem::take(&mut *locked(&self.tally))
    }

    pub(super) fn take_late(&self) -> Vec<(Invalidation, u64)> {
        locked(&self.late).take()
    }

    pub(super) fn flush(&self, counts: &mut Counts) {
        locked(&self.tally).add_reads(counts);
    }

    pub(super) fn stalled(&self) -> u64 {
        self.stalls.total()
    }

    /// Call it right before the read: what has returned before now binds it.
    pub(super) fn begin(&self, key: RowKey, store: usize) -> Began {
        let member = self.member(store);
        let floors = |subject: Subject| (subject, self.floors.bounds(subject, member));
        let group = key.group().map(|group| Subject::group(key.kind, group));
        Began {
            key,
            store,
            stalled: self.stalled(),
            was_faulty: self.is_faulty.load(Ordering::Relaxed),
            row: Subject::row(key).map(floors),
            group: group.map(floors),
            at: now(),
        }
    }

    /// Checks an answer.
    pub(super) fn end(&self, began: &Began, answered: &Answered, counts: &mut Counts) {
        if !answered.at_once {
            self.check_wait(began, answered);
        }
        let row = match &answered.answer {
            Ok(row) => row,
            Err(error) => return self.count_error(began, error),
        };
        let tier = tier(began.store, answered);
        self.check_value(began, tier, row, answered);
        let newest =
            [began.row, began.group].into_iter().flatten().map(|(_, it)| it.newest(Sort::Soft));
        let newest = newest.max_by_key(|floor| floor.at).unwrap_or_default();
        let reads = &mut counts.0[tier as usize];
        reads.all += 1;
        reads.bound += u64::from(newest.version > 0);
        reads.just_then += u64::from(newest.at + JUST_THEN > began.at);
        let parts = [(began.row, row.versions.row), (began.group, row.versions.group)];
        for ((subject, bounds), got) in parts.into_iter().filter_map(|(it, got)| Some((it?, got))) {
            self.look_for_old(began, (subject, bounds, got));
            if bounds.newest(Sort::Soft).version > got {
                self.check_older(began, tier, (subject, bounds, got), row, answered);
            }
        }
        if let Some(CacheStatus::Collapsed { .. }) = answered.status {
            self.measure_lag(began, tier, row);
        }
    }

    /// Notes the invalidations that this read looks for: each that has returned just then, and each that the answer
    /// is older than.
    fn look_for_old(&self, began: &Began, (subject, bounds, got): (Subject, Bounds, u64)) {
        let places = if began.store == NEAR {
            [Place::OwnNear, Place::OtherNear, Place::NearByFollower]
        } else {
            [Place::Redis, Place::Redis, Place::RedisByFollower]
        };
        let note = |version, at, place, micros| {
            locked(&self.late).note(Invalidation { subject, version, at, place }, micros);
        };
        let newest = [bounds.own[0], bounds.other_stores, bounds.committed];
        for (Floor { version, at }, place) in newest.into_iter().zip(places) {
            if at + JUST_THEN > began.at {
                note(version, at, place, 0);
            }
        }
        let member = self.member(began.store);
        let is_older = [bounds.newest(Sort::Hard), bounds.committed].map(|it| it.version > got);
        for is_recorded in [false, true].into_iter().filter(|it| is_older[usize::from(*it)]) {
            for it in self.floors.timed(subject, got, began.at, is_recorded) {
                let place = if is_recorded { 2 } else { usize::from(it.member != member) };
                note(it.version, it.at, places[place], (began.at - it.at).max(1));
            }
        }
    }

    /// An answer that is older than some invalidation: within which bound, if any?
    fn check_older(
        &self,
        began: &Began,
        tier: Tier,
        (subject, bounds, got): (Subject, Bounds, u64),
        row: &Row,
        answered: &Answered,
    ) {
        let is_stale = tier == Tier::Stale;
        let is_near =
            began.store == NEAR && matches!(tier, Tier::Near | Tier::NearLookup | Tier::Stale);
        let member = self.member(began.store);
        let (mut returns, is_cut) = self.floors.outdated_by(subject, got, began.at);
        returns.extend(pending(&bounds, got, member));
        // An expiry of a row ends its stale window. An expiry of a tag begins it again, for entries that the
        // expiry before has made stale, so only the life of the entry bounds that.
        let kind = began.key.kind;
        let window = if subject.is_group() { kind.life() } else { kind.stale_window() };
        let window = window.as_micros() as u64 + STALE_MARGIN;
        let bound = |it: &Return| {
            let near = if is_near && it.member != member { NEAR_BOUND } else { 0 };
            let stale = if is_stale && it.sort == Sort::Soft { window } else { 0 };
            near + stale
        };
        let first = returns.iter().filter(|it| it.at > 0).map(|it| it.at).min();
        if let Some(first) = first {
            locked(&self.tally).measure(staleness_of(tier, subject), began.at - first);
        }
        let exceeds = |it: &Return| it.at == 0 && bound(it) == 0 || it.at + bound(it) < began.at;
        let broken: Vec<_> =
            returns.into_iter().filter(|it| it.at > 0 || bound(it) == 0).filter(exceeds).collect();
        if broken.is_empty() && !is_cut {
            return;
        }
        let promise = promise_of(tier);
        let newest = broken.iter().map(|it| it.version).max().unwrap_or(0);
        let Versions { row: version, group } = row.versions;
        let known = (row.key, version, group, began.store, newest);
        self.count(&format!("suspected: {promise:?}"));
        if locked(&self.known).insert(known) {
            let suspect = Suspect {
                broken,
                is_undecided: is_cut,
                ..suspect(promise, began, tier, row, answered, member)
            };
            self.source.report(Report::Suspect(Box::new(suspect)));
        }
    }

    fn check_value(&self, began: &Began, tier: Tier, row: &Row, answered: &Answered) {
        if row.key == began.key.id() && row.is_whole() {
            return;
        }
        let detail = format!("a row of {}", RowKey::name_of(row.key));
        let suspect = suspect(Promise::Value, began, tier, row, answered, self.member(began.store));
        self.source.report(Report::Suspect(Box::new(Suspect { detail, ..suspect })));
    }

    /// Whether a caller waited for longer than it had to, while this process ran.
    fn check_wait(&self, began: &Began, answered: &Answered) {
        let took = now() - began.at;
        let limit = answered.limit.unwrap_or(LONGEST).as_micros() as u64;
        let ran = took.saturating_sub(self.stalled().saturating_sub(began.stalled));
        let mut tally = locked(&self.tally);
        tally.count("waits", 1);
        if answered.limit.is_some() {
            tally.count("waits with a deadline", 1);
            tally.measure("answer after its deadline", took.saturating_sub(limit));
        }
        tally.measure(if began.was_faulty { "latency, faults" } else { "latency, no fault" }, took);
        drop(tally);
        if ran > limit + MARGIN {
            let row = Row::new(began.key.id(), Versions::default(), (0, 0), 0);
            let tier = tier(began.store, answered);
            let row = answered.answer.as_ref().unwrap_or(&row);
            let suspect =
                suspect(Promise::Wait, began, tier, row, answered, self.member(began.store));
            let detail =
                format!("took {took} us, of which this process ran {ran}, with a limit of {limit}");
            self.source.report(Report::Suspect(Box::new(Suspect { detail, ..suspect })));
        }
    }

    /// How long after the end of its load a waiter was answered.
    fn measure_lag(&self, began: &Began, tier: Tier, row: &Row) {
        if row.ended < began.at {
            return;
        }
        let faults = began.was_faulty || self.is_faulty.load(Ordering::Relaxed);
        let what = match (tier, faults) {
            (Tier::WaitedHere, false) => "lag: same process, no fault",
            (Tier::WaitedHere, true) => "lag: same process, faults",
            (_, false) => "lag: another process, no fault",
            (_, true) => "lag: another process, faults",
        };
        locked(&self.tally).measure(what, now() - row.ended);
    }

    fn count_error(&self, began: &Began, error: &Error<SourceDown>) {
        let kind = match error {
            Error::Load(_) => "the source fails".to_owned(),
            Error::Cache(error) => format!("{:?}", error.kind()),
        };
        let when = if began.was_faulty { "faults" } else { "no fault" };
        self.count(&format!("error, {when}: {kind}"));
    }
}

/// The store of a process that has near copies; the other one has none.
pub(super) const NEAR: usize = 1;

/// What an answer of a tier breaks if it is too old.
fn promise_of(tier: Tier) -> Promise {
    match tier {
        Tier::Near | Tier::NearLookup => Promise::NearCopy,
        Tier::Stale => Promise::Stale,
        _ => Promise::Invalidation,
    }
}

fn staleness_of(tier: Tier, subject: Subject) -> &'static str {
    match tier {
        Tier::Near => "staleness: near copy",
        Tier::NearLookup => "staleness: hit beside near copies",
        Tier::Stale if subject.is_group() => "staleness: stale answer, tags",
        Tier::Stale => "staleness: stale answer",
        _ => "staleness: others",
    }
}

fn tier(store: usize, answered: &Answered) -> Tier {
    match &answered.status {
        Some(CacheStatus::Stale { .. }) => Tier::Stale,
        Some(CacheStatus::Led { .. }) => Tier::Load,
        Some(CacheStatus::Collapsed { place: LoadLocation::Local, .. }) => Tier::WaitedHere,
        Some(CacheStatus::Collapsed { .. }) => Tier::WaitedElsewhere,
        Some(CacheStatus::Bypass(_)) => Tier::Bypass,
        _ if store != NEAR => Tier::Store,
        _ if answered.at_once => Tier::Near,
        _ => Tier::NearLookup,
    }
}

fn suspect(
    promise: Promise,
    began: &Began,
    tier: Tier,
    row: &Row,
    answered: &Answered,
    member: usize,
) -> Suspect {
    let status = match (&answered.answer, &answered.status) {
        (Err(error), _) => error.to_string(),
        (Ok(_), Some(status)) => status.to_string(),
        (Ok(_), None) => String::new(),
    };
    Suspect {
        promise,
        key: began.key.id(),
        tier: tier.name().to_owned(),
        status,
        member,
        began: began.at,
        ended: now(),
        got: row.versions,
        load: (row.began, row.ended),
        loader: row.loader,
        broken: Vec::new(),
        is_undecided: false,
        detail: String::new(),
    }
}

/// Pending invalidations of newer versions: they have not returned, and bind their own store all the same.
fn pending(bounds: &Bounds, got: u64, member: usize) -> impl Iterator<Item = Return> {
    let own = [Sort::Hard, Sort::Soft].into_iter().zip(bounds.own);
    own.filter(move |(_, floor)| floor.at == 0 && floor.version > got)
        .map(move |(sort, floor)| Return { version: floor.version, at: 0, member, sort })
}
