//! Faults: what there is, what was injected when, and what the guides except because of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::{now, seconds};
use crate::floors::Return;
use crate::messages::{Promise, Suspect};

/// How long after the end of a fault its consequences may last: connections come back, re-assertions run.
pub(crate) const SETTLES: u64 = seconds(5);

/// How long after the end of a fault all servers and connections are as before.
const CALMS: u64 = seconds(2);

/// From how long before a loss invalidations are re-asserted.
const WINDOW: u64 = seconds(10);

/// What a fault can lose by the guides, beyond time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Loss {
    /// Nothing: all promises hold.
    Nothing,
    /// Entries and invalidations: a load from before may be stored after.
    Everything,
    /// The same, but the last invalidations are re-asserted, since the connections broke.
    Restart,
    /// The last writes of a primary.
    LastWrites,
}

/// A fault that was injected.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Fault {
    pub(crate) kind: String,
    pub(crate) began: u64,
    /// When it was healed; none while it lasts.
    pub(crate) ended: Option<u64>,
    pub(crate) loss: Loss,
    /// The worker that was killed or stopped.
    pub(crate) worker: Option<u32>,
}

/// All faults of a turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultLog {
    pub(crate) faults: Vec<Fault>,
}

impl FaultLog {
    pub(crate) fn begin(&mut self, kind: &str, loss: Loss, worker: Option<u32>) {
        let began = now();
        self.faults.push(Fault { kind: kind.to_owned(), began, ended: None, loss, worker });
    }

    /// Notes a failover that was not injected, since some moment.
    pub(crate) fn note_failover(&mut self, began: u64) {
        let kind = "failover of a busy machine".to_owned();
        let fault = Fault { kind, began, ended: Some(now()), loss: Loss::LastWrites, worker: None };
        self.faults.push(fault);
    }

    pub(crate) fn end(&mut self) {
        if let Some(fault) = self.faults.last_mut() {
            fault.ended = Some(now());
        }
    }

    /// Whether no fault was on, or had just ended, from one moment to another.
    pub(crate) fn is_calm(&self, from: u64, to: u64) -> bool {
        let reaches = |fault: &Fault| {
            fault.began <= to && fault.ended.is_none_or(|ended| ended + CALMS >= from)
        };
        !self.faults.iter().any(reaches)
    }

    pub(crate) fn by_kind(&self) -> BTreeMap<String, u64> {
        let mut kinds = BTreeMap::new();
        for fault in &self.faults {
            *kinds.entry(fault.kind.clone()).or_default() += 1;
        }
        kinds
    }

    /// Those that were on within 15 s before a read.
    pub(crate) fn around(&self, suspect: &Suspect) -> Vec<Fault> {
        let near = |fault: &&Fault| {
            fault.began <= suspect.ended
                && fault.ended.is_none_or(|ended| ended + seconds(15) >= suspect.began)
        };
        self.faults.iter().filter(near).cloned().collect()
    }

    /// The documented exception that allows what a read was given, if there is one: one that covers all
    /// invalidations that it broke.
    pub(crate) fn excuse(&self, suspect: &Suspect) -> Option<&'static str> {
        use Promise::{Invalidation, NearCopy, Stale};
        if !matches!(suspect.promise, Invalidation | NearCopy | Stale) || suspect.broken.is_empty()
        {
            return None;
        }
        let excuses = suspect.broken.iter().map(|it| self.excuse_of(suspect, it));
        // All of them, or none.
        excuses.collect::<Option<Vec<_>>>()?.first().copied()
    }

    fn excuse_of(&self, suspect: &Suspect, broken: &Return) -> Option<&'static str> {
        self.faults.iter().find_map(|fault| {
            let ended = fault.ended.unwrap_or(u64::MAX / 2);
            let began_before = suspect.load.0 <= ended && suspect.ended >= fault.began;
            let is_lost = !self.is_own(suspect, broken)
                && broken.at + WINDOW >= fault.began
                && broken.at <= ended + SETTLES
                && suspect.ended >= fault.began
                && self.reasserted_by(broken, ended).is_none_or(|until| suspect.began <= until);
            match fault.loss {
                Loss::Everything if began_before && broken.at <= ended => {
                    Some("an invalidation that a flush removed during a load")
                }
                Loss::Restart if began_before && is_lost => Some(
                    "an invalidation that a restart lost during a load, until it is re-asserted",
                ),
                Loss::LastWrites if is_lost => {
                    Some("an invalidation that a failover lost, until it is re-asserted")
                }
                _ => None,
            }
        })
    }

    /// Whether the process that reads has made the invalidation itself. There, one of the last seconds holds in
    /// any case.
    fn is_own(&self, suspect: &Suspect, broken: &Return) -> bool {
        let worker = Some((broken.member / 2) as u32);
        let was_killed = |fault: &Fault| {
            fault.kind == KILLED_WORKER
                && fault.worker == worker
                && (broken.at..=suspect.began).contains(&fault.began)
        };
        broken.member == suspect.member && !self.faults.iter().any(was_killed)
    }

    /// When an invalidation that a fault has lost is re-asserted at the latest: some seconds after the fault,
    /// and after others that followed and that kept its process from it. Never, if that was killed.
    fn reasserted_by(&self, broken: &Return, ended: u64) -> Option<u64> {
        let of_it = Some((broken.member / 2) as u32);
        let mut until = ended + SETTLES;
        for fault in self.faults.iter().filter(|fault| fault.began >= broken.at) {
            let concerns = fault.worker.is_none() || fault.worker == of_it;
            if fault.began > until || !concerns {
                continue;
            }
            if fault.kind == KILLED_WORKER {
                return None;
            }
            until = until.max(fault.ended.unwrap_or(u64::MAX / 2) + SETTLES);
        }
        Some(until)
    }
}

pub(crate) const KILLED_WORKER: &str = "worker killed";
