//! The history of a run: what was asked and answered, and which promises were broken.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use bellwether::CacheStatus;

use crate::burst::BurstRecord;
use crate::host::Millis;
use crate::locked;
use crate::network::Network;
use crate::promises::{ChangeOf, DataLoss, Incarnation, Required, SourceVersion, Subject};
use crate::recorded::{AppliedChange, RecordedChanges};

/// What all callers and loaders of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) network: Network,
    pub(crate) keys: u64,
    /// How many tags there are. The keys have them in turn.
    pub(crate) tags: u64,
    history: Mutex<History>,
}

/// What has happened, and what may be answered.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The keys, and then the tags.
    subjects: Vec<Subject>,
    number: u64,
    /// From when on no fault has an effect any more. Promises that faults may break hold then.
    pub(crate) calm_since: Option<u64>,
    /// Of each `put`, the version of the tag when it ended. None while it is under way.
    puts: Vec<Option<SourceVersion>>,
    /// The losses while a former primary was in use.
    splits: Vec<DataLoss>,
    /// When a server has last lost something.
    lost_at: Option<Millis>,
    /// For how long each process has stood still.
    pub(crate) paused: BTreeMap<usize, Millis>,
    /// What a database has recorded, and followers apply.
    pub(crate) recorded: RecordedChanges,
    pub(crate) operations: u64,
    pub(crate) under_way: u64,
    pub(crate) loads: u64,
    /// How many operations and loads of each process have not ended.
    running: BTreeMap<Incarnation, u64>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) violations: Vec<String>,
    /// What is kept of a burst.
    pub(crate) burst: Option<BurstRecord>,
}

/// The version of a key and of its tag that a load has read, and which tag that is.
pub(crate) type Loaded = (SourceVersion, SourceVersion, Option<u64>);

/// A request, and what is required of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) key: u64,
    /// Of its key and its tag.
    required: [Required; 2],
    /// The same, if the answer is not one of a near copy.
    strictly: [Required; 2],
    pub(crate) at: Millis,
    paused: Millis,
    pub(crate) is_calm: bool,
}

impl History {
    /// Whether nothing is under way in a process.
    pub(crate) fn is_quiet(&self, process: Incarnation) -> bool {
        self.running.get(&process).is_none_or(|running| *running == 0)
            && !self.recorded.is_held_by(process)
    }

    /// Something begins in a process.
    fn begins(&mut self, process: Incarnation) {
        *self.running.entry(process).or_default() += 1;
    }

    /// Something has ended in a process.
    pub(crate) fn ends(&mut self, process: Incarnation) {
        self.running.entry(process).and_modify(|running| *running -= 1);
    }
}

impl Shared {
    pub(crate) fn new(network: Network, keys: u64, tags: u64, shows_trace: bool) -> Arc<Self> {
        let subjects = (0..keys + tags).map(|_| Subject::default()).collect();
        network.with(|state| state.journal.lines = shows_trace.then(Vec::new));
        let history = Mutex::new(History { subjects, ..History::default() });
        Arc::new(Self { network, keys, tags, history })
    }

    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        change(&mut locked(&self.history))
    }

    /// The key and its tag among the subjects.
    fn subjects_of(&self, key: u64) -> impl Iterator<Item = u64> {
        [Some(key), self.tag_of(key).map(|tag| self.keys + tag)].into_iter().flatten()
    }

    pub(crate) fn subject(&self, what: ChangeOf) -> u64 {
        match what {
            ChangeOf::Key(key) => key,
            ChangeOf::Tag(tag) => self.keys + tag,
        }
    }

    pub(crate) fn tag_of(&self, key: u64) -> Option<u64> {
        (self.tags > 0).then(|| key % self.tags)
    }

    /// Notes that something has happened.
    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let now = self.network.now();
        self.network.with(|state| state.journal.note(now, line));
    }

    /// A promise was broken.
    pub(crate) fn violation(&self, line: fmt::Arguments<'_>) {
        self.note(format_args!("VIOLATION {line}"));
        let now = self.network.now();
        self.with(|history| history.violations.push(format!("at {now} ms: {line}")));
    }

    pub(crate) fn ask(&self, key: u64, process: Incarnation, near: Option<Millis>) -> Asked {
        let now = self.network.now();
        let subjects: Vec<_> = self.subjects_of(key).collect();
        self.with(|history| {
            let [mut required, mut strictly] = [[Required::default(); 2]; 2];
            for (place, subject) in subjects.into_iter().enumerate() {
                let subject = &history.subjects[subject as usize];
                required[place] = subject.required(process, now, near);
                strictly[place] = subject.required(process, now, None);
            }
            history.under_way += 1;
            history.begins(process);
            let paused = history.paused.get(&process.0).copied().unwrap_or_default();
            let is_calm = history.calm_since.is_some();
            Asked { key, required, strictly, at: now, paused, is_calm }
        })
    }

    /// How long a caller has waited while its process ran.
    pub(crate) fn waited(&self, asked: &Asked, process: Incarnation) -> Millis {
        let paused = self.with(|history| history.paused.get(&process.0).copied());
        let paused = paused.unwrap_or_default() - asked.paused;
        (self.network.now() - asked.at).saturating_sub(paused)
    }

    /// Begins a `put`. Returns the value, with a number of its own as the version of the tag: to a change of
    /// the tag that overlaps the call, the order is open.
    pub(crate) fn begin_put(&self, key: u64) -> Loaded {
        let (version, _, tag) = self.versions(key);
        self.with(|history| {
            history.puts.push(None);
            (version, PUT + history.puts.len() as u64, tag)
        })
    }

    /// Ends a `put`, also one that was dropped.
    pub(crate) fn end_put(&self, key: u64, (_, put, _): Loaded) {
        let (_, tag, _) = self.versions(key);
        self.with(|history| history.puts[(put - PUT - 1) as usize] = Some(tag));
    }

    /// The version of a tag in a value, which may be one of a `put`.
    fn version_of_tag(&self, tag: SourceVersion) -> SourceVersion {
        let Some(put) = tag.checked_sub(PUT + 1) else { return tag };
        self.with(|history| history.puts[put as usize]).unwrap_or(SourceVersion::MAX)
    }

    /// What is still required of an answer. A server loses changes also for requests that are under way.
    fn still_required(
        &self,
        asked: &Asked,
        process: Incarnation,
        near: Option<Millis>,
        required: [Required; 2],
    ) -> [Required; 2] {
        let subjects: Vec<_> = self.subjects_of(asked.key).collect();
        self.with(|history| {
            let mut still = required;
            if history.lost_at.is_some_and(|at| at >= asked.at) {
                for (required, subject) in still.iter_mut().zip(subjects) {
                    let subject = &history.subjects[subject as usize];
                    *required = required.or(subject.required(process, asked.at, near));
                }
            }
            still
        })
    }

    /// Checks an answer.
    pub(crate) fn check(
        &self,
        asked: &Asked,
        process: Incarnation,
        near: Option<Millis>,
        (key, tag, _): Loaded,
        status: &CacheStatus,
    ) {
        let tag = self.version_of_tag(tag);
        let is_stale = matches!(status, CacheStatus::Stale { .. });
        let may_be_copy = is_stale || matches!(status, CacheStatus::Hit { .. });
        let (required, near) =
            if may_be_copy { (asked.required, near) } else { (asked.strictly, None) };
        let required = self.still_required(asked, process, near, required);
        let is_permitted =
            |(required, version): (&Required, _)| required.permits(version, is_stale);
        if !required.iter().zip([key, tag]).all(is_permitted) {
            self.violation(format_args!(
                "key {} asked at {} has got {key}/{tag} ({status}), and {required:?} is required",
                asked.key, asked.at
            ));
        }
    }

    pub(crate) fn begin_change(&self, subject: u64) -> Option<SourceVersion> {
        let now = self.network.now();
        self.with(|history| {
            history.number += 1;
            let number = history.number;
            let subject = &mut history.subjects[subject as usize];
            if subject.is_changing {
                return None;
            }
            (subject.is_changing, subject.changed_at) = (true, number);
            subject.began_at = now;
            subject.version += 1;
            history.under_way += 1;
            Some(subject.version)
        })
    }

    /// Ends a change, with what is promised from now on.
    pub(crate) fn end_change(
        &self,
        subject: u64,
        promise: Option<(SourceVersion, bool, Incarnation, bool)>,
    ) {
        let now = self.network.now();
        self.with(|history| {
            history.number += 1;
            history.under_way -= 1;
            let number = history.number;
            let subject = &mut history.subjects[subject as usize];
            (subject.is_changing, subject.changed_at) = (false, number);
            subject.ended_at = now;
            if promise.is_none_or(|(.., is_ok)| !is_ok) {
                subject.repeated_until = now + LATEST_REPETITION;
            }
            if let Some((version, is_expiry, by, is_ok)) = promise {
                let is_lost = history.splits.iter().any(|it| it.befalls(subject.began_at, now));
                subject.changed(version, is_expiry, by, now, is_ok && !is_lost);
            }
        });
    }

    /// A writer that knows no cache changes the source. Its transaction has a row, which is applied this much later.
    pub(crate) fn record(&self, what: ChangeOf, later: Millis) {
        let subject = self.subject(what);
        let Some(version) = self.begin_change(subject) else { return };
        let due_at = self.network.now() + later;
        self.note(format_args!("{what:?} {version} is recorded, and due at {due_at}"));
        self.with(|history| history.recorded.record(subject, what, version, due_at));
    }

    /// A follower has applied a row, so no later request gets what was there before; or it tries again later.
    pub(crate) fn end_recorded(&self, what: ChangeOf, process: Incarnation, is_ok: bool) {
        let (now, subject) = (self.network.now(), self.subject(what));
        if !is_ok {
            return self.with(|history| {
                // The process may repeat it, too.
                history.subjects[subject as usize].repeated_until = now + LATEST_REPETITION;
                history.recorded.failed(subject, now);
            });
        }
        if let Some(row) = self.with(|history| history.recorded.applied(subject, process, now)) {
            self.note(format_args!("{process:?} has applied {what:?} {}", row.version));
            self.end_change(subject, Some((row.version, false, process, true)));
        }
    }

    /// A follower begins to apply a row again. That ends loads that are under way.
    pub(crate) fn begin_again(&self, row: &AppliedChange) -> Millis {
        let (now, subject) = (self.network.now(), self.subject(row.what));
        self.with(|history| {
            let subject = &mut history.subjects[subject as usize];
            subject.repeated_until = subject.repeated_until.max(now + LATEST_REPETITION);
        });
        now
    }

    /// A follower has applied a row again, so no later request gets what was there before it.
    pub(crate) fn end_again(&self, row: &AppliedChange, process: Incarnation, began_at: Millis) {
        let (now, subject) = (self.network.now(), self.subject(row.what));
        self.note(format_args!("{process:?} has applied {:?} {} again", row.what, row.version));
        self.with(|history| {
            history.number += 1;
            let is_lost = history.splits.iter().any(|it| it.befalls(began_at, now));
            let subject = &mut history.subjects[subject as usize];
            (subject.changed_at, subject.ended_at) = (history.number, now);
            subject.changed(row.version, false, process, now, !is_lost);
        });
    }

    /// Followers have had the time to apply all rows of the table again. So each row holds, even if a failover lost it or
    /// the process that applied it has ended.
    pub(crate) fn has_applied_again(&self) {
        let now = self.network.now();
        for row in self.with(|history| history.recorded.retained(now)) {
            let subject = self.subject(row.what) as usize;
            self.with(|history| {
                history.subjects[subject].changed(row.version, false, row.by, now, true);
            });
        }
    }

    pub(crate) fn versions(&self, key: u64) -> Loaded {
        self.with(|history| {
            let mut versions =
                self.subjects_of(key).map(|it| history.subjects[it as usize].version);
            let [of_key, of_tag] = [(); 2].map(|()| versions.next().unwrap_or_default());
            (of_key, of_tag, self.tag_of(key))
        })
    }

    /// A load begins, and may be one beside another. It ends when the result is dropped.
    pub(crate) fn begin_load(
        self: &Arc<Self>,
        key: u64,
        process: Incarnation,
        may_be_second: bool,
    ) -> WatchedLoad {
        let now = self.network.now();
        let (number, is_second) = self.with(|history| {
            history.number += 1;
            history.loads += 1;
            history.begins(process);
            history.burst.iter_mut().for_each(|burst| burst.loads += 1);
            let number = history.number;
            let subjects = self.subjects_of(key).map(|it| &history.subjects[it as usize]);
            let (mut since, mut is_changing, mut may_be_second) = (0, false, may_be_second);
            for subject in subjects {
                may_be_second |= subject.ended_at > 0 && now < subject.ended_at + ROUND_TRIPS;
                since = since.max(subject.changed_at);
                is_changing |= subject.is_changing || now < subject.repeated_until;
            }
            let subject = &mut history.subjects[key as usize];
            let is_second = history
                .calm_since
                .is_some_and(|calm| !is_changing && subject.is_loading_since(since.max(calm)));
            // Nor is one without a lease a reason to begin none, or one whose lease a change has just ended.
            subject.load_begins(number, if may_be_second { 0 } else { number });
            (number, is_second)
        });
        self.note(format_args!("{process:?} begins to load {key}"));
        if is_second && !may_be_second {
            self.violation(format_args!("{process:?} is the second to load key {key}"));
        }
        WatchedLoad { shared: Arc::clone(self), key, process, number }
    }

    /// A caller of a burst has an error. Elsewhere, faults may be the reason.
    pub(crate) fn failed(&self, error: &impl fmt::Display) {
        self.with(|history| {
            if let Some(burst) = &mut history.burst {
                // Without the name of the key.
                let text = error.to_string();
                let text = text.split('`').step_by(2).collect::<Vec<_>>().join("a key");
                *burst.errors.entry(text).or_default() += 1;
            }
        });
    }

    pub(crate) fn lost(&self, loss: DataLoss) {
        let keys = self.keys as usize;
        self.with(|history| {
            history.lost_at = Some(loss.at);
            history.splits.extend(Some(loss).filter(|it| it.until > it.at));
            for (place, subject) in history.subjects.iter_mut().enumerate() {
                subject.lost(loss, place >= keys);
            }
        });
    }

    pub(crate) fn ended(&self, process: Incarnation) {
        self.with(|history| {
            history.recorded.ended(process);
            history.subjects.iter_mut().for_each(|it| it.ended(process));
        });
    }

    /// From now on no fault has an effect.
    pub(crate) fn calm_down(&self) {
        self.with(|history| {
            history.number += 1;
            history.calm_since = Some(history.number);
        });
    }
}

/// A load under way.
#[derive(Debug)]
pub(crate) struct WatchedLoad {
    shared: Arc<Shared>,
    key: u64,
    process: Incarnation,
    number: u64,
}

impl Drop for WatchedLoad {
    fn drop(&mut self) {
        let now = self.shared.network.now();
        self.shared.with(|history| {
            history.ends(self.process);
            history.subjects[self.key as usize].load_ends(self.number, now);
        });
    }
}

/// The tag's version in values of `put` is above this.
const PUT: SourceVersion = 1 << 62;

/// How long after its lease was granted a load begins, where the tags of an entry have to be read first.
const ROUND_TRIPS: Millis = 6;

/// How long after a change was dropped, or has failed, it is executed at the latest. Then it ends the lease of
/// its key.
const LATEST_REPETITION: Millis = 2_000;
