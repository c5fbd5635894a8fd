//! The table of kept invalidations, and the last ones that were acknowledged.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use bellwether::Digest;

/// What is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum ChangeTarget {
    Key(Digest),
    Tag(Digest),
}

/// How a key or a tag is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Change {
    Invalidate,
    /// Its entries become stale: that of a key at once, those of a tag over a time.
    Expire {
        over: Duration,
    },
}

/// An invalidation that is repeated.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct KeptInvalidation {
    change: Change,
    /// When it was called, or acknowledged.
    at: Instant,
    was_acknowledged: bool,
    /// Grows with each invalidation that is kept.
    number: u64,
}

#[derive(Debug)]
pub(super) struct KeptTable {
    most: usize,
    kept: HashMap<ChangeTarget, KeptInvalidation>,
    /// The last invalidations that were acknowledged, in the order of that.
    recent: VecDeque<AcknowledgedInvalidation>,
    numbers: u64,
}

#[derive(Clone, Copy, Debug)]
struct AcknowledgedInvalidation {
    target: ChangeTarget,
    change: Change,
    at: Instant,
}

impl ChangeTarget {
    pub(in super::super) fn digest(&self) -> &Digest {
        let (Self::Key(digest) | Self::Tag(digest)) = self;
        digest
    }
}

impl Change {
    /// Two changes as one. An expiry of a tag within the time of another one makes the entries from
    /// before stale at once.
    pub(in super::super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Expire { .. }, Self::Expire { .. }) => Self::Expire { over: Duration::ZERO },
            _ => Self::Invalidate,
        }
    }
}

impl KeptInvalidation {
    /// What is left to do. Entries that should have become stale by now do so at once.
    pub(in super::super) fn change(&self) -> Change {
        match self.change {
            Change::Invalidate => Change::Invalidate,
            Change::Expire { over } => {
                Change::Expire { over: over.saturating_sub(self.at.elapsed()) }
            }
        }
    }
}

impl KeptTable {
    /// A table of at most this many invalidations, and as many acknowledged ones.
    pub(super) fn new(most: usize) -> Self {
        Self { most, kept: HashMap::new(), recent: VecDeque::new(), numbers: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn of(&self, target: &ChangeTarget) -> Option<KeptInvalidation> {
        self.kept.get(target).copied()
    }

    pub(super) fn all(&self) -> Vec<(ChangeTarget, KeptInvalidation)> {
        self.kept.iter().map(|(target, kept)| (*target, *kept)).collect()
    }

    /// Keeps an invalidation, together with that of the same target. Returns whether it fits.
    pub(super) fn keep(
        &mut self,
        target: ChangeTarget,
        change: Change,
        at: Instant,
        was_acknowledged: bool,
    ) -> bool {
        let former = self.of(&target);
        if former.is_none() && self.kept.len() >= self.most {
            return false;
        }
        self.numbers += 1;
        let number = self.numbers;
        let kept = match former {
            None => KeptInvalidation { change, at, was_acknowledged, number },
            Some(former) => KeptInvalidation {
                change: former.change.and(change),
                at: former.at.max(at),
                was_acknowledged: former.was_acknowledged && was_acknowledged,
                number,
            },
        };
        self.kept.insert(target, kept);
        true
    }

    /// A target was invalidated, and with that `kept`, which was in the table. One that was added
    /// since stays. Returns whether one was removed.
    pub(super) fn executed(
        &mut self,
        target: ChangeTarget,
        change: Change,
        kept: Option<KeptInvalidation>,
        now: Instant,
        is_remembered: bool,
    ) -> bool {
        // One that is repeated keeps its time. Else a connection that breaks again and again would
        // repeat it for ever.
        let at = kept.filter(|kept| kept.was_acknowledged).map_or(now, |kept| kept.at);
        if is_remembered {
            self.remember(AcknowledgedInvalidation { target, change, at }, now);
        }
        let is_it = |known: &KeptInvalidation| kept.is_some_and(|it| it.number == known.number);
        if self.of(&target).is_some_and(|known| is_it(&known)) {
            self.kept.remove(&target);
            return true;
        }
        false
    }

    fn remember(&mut self, acknowledged: AcknowledgedInvalidation, now: Instant) {
        while self.recent.front().is_some_and(|oldest| now.duration_since(oldest.at) > LONGEST)
            || self.recent.len() >= self.most
        {
            self.recent.pop_front();
        }
        self.recent.push_back(acknowledged);
    }

    /// Keeps the acknowledged invalidations of affected targets from `begin` on. Returns their
    /// targets, and how many of them do not fit.
    pub(super) fn reassert(
        &mut self,
        begin: Instant,
        is_affected: &dyn Fn(&Digest) -> bool,
    ) -> (Vec<ChangeTarget>, usize) {
        let is_lost =
            |it: &AcknowledgedInvalidation| it.at >= begin && is_affected(it.target.digest());
        let lost: Vec<_> = self.recent.iter().filter(|it| is_lost(it)).copied().collect();
        self.recent.retain(|it| !is_lost(it));
        let fits = |it: &AcknowledgedInvalidation| self.keep(it.target, it.change, it.at, true);
        let kept = lost.iter().map(fits).filter(|fits| *fits).count();
        (lost.iter().map(|it| it.target).collect(), lost.len() - kept)
    }
}

/// How long an acknowledged invalidation is remembered at most. A server that is out of reach for
/// longer is replaced by then.
const LONGEST: Duration = Duration::from_secs(600);
