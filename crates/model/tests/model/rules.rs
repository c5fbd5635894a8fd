//! The fixed rules of a scenario.

use super::payload::Drafted;
use super::stored::{Age, StoredEntry};

/// The fixed rules of a scenario.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// What an entry may become when it ages. `None`: it is gone.
    pub(super) ages: &'static [Option<Age>],
    pub(super) stale: Serves,
    /// The answers that the loader may give.
    pub(super) answers: &'static [Drafted],
    /// Abandoned loads are cancelled.
    pub(super) cancels: bool,
    /// Flights load when the store fails.
    pub(super) may_load: bool,
    /// The writer invalidates a tag of the key instead of the key.
    pub(super) is_tagged: bool,
    /// The writer lets the key or its tag expire instead of invalidating it.
    pub(super) expires: bool,
    /// Invalidations may fail, and the process of the writer keeps those that do.
    pub(super) keeps: bool,
    /// A caller whose wait runs out loads without a lease.
    pub(super) hurries: bool,
    /// A commit tells the processes that wait for its lease, and the message carries the value.
    pub(super) tells: bool,
    pub(super) without: Without,
}

impl Rules {
    /// What is left of an entry that expires.
    pub(super) fn expired(&self, entry: StoredEntry) -> Option<StoredEntry> {
        let age = match self.without {
            Without::AgesOfExpired => entry.age,
            _ => Age::Stale,
        };
        (self.stale != Serves::Never).then_some(StoredEntry { age, ..entry })
    }
}

/// When stale entries are served.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Serves {
    Never,
    WhileRevalidating,
    IfError,
}

/// A rule of the store or the loader that a scenario can go without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    Nothing,
    Watermarks,
    SecondWitnesses,
    /// A lease holds for its token, whatever its fence.
    FencesOfLeases,
    /// A commit does not compare the epoch of the tag.
    EpochsAtCommits,
    /// An acquire does not compare it with that of an entry.
    EpochsAtAcquires,
    /// A lookup does not.
    EpochsAtLookups,
    /// The epoch is read after the load instead of before it.
    EpochsBeforeLoads,
    /// A tag that was forgotten begins with its first epoch.
    NewEpochs,
    /// An invalidation that fails is not kept.
    KeptInvalidations,
    /// A lookup does not have the pending invalidation repeated before it.
    ReplaysBeforeLookups,
    /// An acquire does not.
    ReplaysBeforeAcquires,
    /// A commit does not.
    ReplaysBeforeCommits,
    /// The reply to a replay removes whatever is kept by then.
    NumbersOfKept,
    /// A message answers the waiters of the last request that was answered, whatever lease that
    /// found.
    FencesOfMessages,
    /// A message answers the waiters of the last request, before that is answered.
    AnswersBeforeMessages,
    /// A caller that has looked up counts as one that had asked before its flight was opened.
    OrderOfLookups,
    /// The epochs of a message's entry are not compared.
    EpochsOfMessages,
    /// A put commits whatever has happened since its lease was granted.
    FencesOfPuts,
    /// The lease of a put does not outdate loads whose leases have lapsed.
    WatermarksOfPuts,
    /// The epoch of a put's tag is not read before its lease is granted.
    EpochsOfPuts,
    /// A put that stores nothing leaves what is stored, and the lease of a load.
    ClearingOfPuts,
    /// An expired entry is as fresh as before.
    AgesOfExpired,
    /// An expiry does not end the lease of a load under way.
    LeasesAtExpiries,
}
