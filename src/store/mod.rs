//! Stores: where entries and leases live.
//!
//! # The contract
//! 1. At most one unexpired lease per key. Only its token can renew it, commit by it or abandon it.
//! 2. [`invalidate`](Store::invalidate) ends the lease, so a commit whose token still holds it may
//!    store. A lease that has lapsed or was taken over stores too (a load slower than its lease
//!    would never be stored otherwise), if its fence is above the watermark and above the stored
//!    entry's fence, and if it is younger than [`WATERMARK_TTL`]; it never ends somebody else's lease.
//!    Everything else is [`Superseded`](Commit::Superseded).
//! 3. Fences grow per key, over expiry and restarts too: a new one is the largest of the watermark + 1,
//!    the stored entry's fence + 1, and the store's clock in microseconds.
//! 4. Time is the store's. No client's clock takes part in a decision about a lease, and whether an
//!    entry is fresh is judged by what is left of its life in the store.
//! 5. Nothing that a store writes lives for ever.
//!    A [failure](Store::fail) is remembered for its [life](Failure::life), and forgotten with the
//!    next commit or invalidation.
//! 6. Every operation is one atomic step. It may be dropped at any await, or be answered after the
//!    caller has gone; the token is chosen before the question is sent, so that a lease whose grant
//!    was never heard of can still be abandoned.
//!
//! The module [`conformance`] (feature `test-util`) has this as checks, for stores of your own, and
//! [`faulty`] a store that fails as told, for services of your own.

mod clock;
#[cfg(feature = "test-util")]
pub mod conformance;
mod entry;
mod failure;
#[cfg(feature = "test-util")]
pub mod faulty;
mod lease;
mod memory;
mod watch;

#[cfg(feature = "redis")]
pub(crate) mod redis;

use std::fmt;
use std::time::Duration;

use crate::BoxFuture;

pub use clock::{Clock, Moment};
pub use entry::{Draft, Entry, Marker, Remaining, Value};
pub use failure::Failure;
#[cfg(feature = "test-util")]
pub use faulty::{FaultyStore, Operation};
pub use lease::Lease;
pub use memory::MemoryStore;
#[cfg(feature = "redis")]
pub use redis::{RedisOptions, RedisStats, RedisStore};
pub use watch::{Watch, Watchers};

pub use crate::claim::{Claim, Token};
pub use crate::error::FailureCause;
use crate::error::StoreError;
use crate::key::Key;
pub use crate::lifetimes::Lifetimes;

/// Where entries and leases live. See the [contract](self) for what implementors promise.
///
/// Operations take what they need by value and answer with a future that borrows nothing, so that
/// a caller can keep it beside the store. A store is a cheap handle: clones share one state.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What this process knows of a key without asking anybody.
    ///
    /// A store within the process answers here, and a hit on it costs no future, no task and no
    /// round trip.
    fn peek(&self, _: &Key) -> Peek {
        Peek::Unknown
    }

    /// Hints that a key has changed.
    ///
    /// A watch tells of every change of the key after its creation that this process hears of. It
    /// may miss any; nothing depends on it but speed.
    fn watch(&self, _: &Key) -> Watch {
        Watch::silent()
    }

    /// What is kept for a key. Takes no lease.
    fn lookup(&self, key: Key) -> StoreFuture<Option<Entry>>;

    /// Looks, and takes the lease if nothing acceptable is there and nobody has it. From then on
    /// changes of the key are told to its [`watch`](Store::watch).
    ///
    /// Asking again by the same claim renews what it was granted, so a grant whose answer was lost
    /// is not in the way of who it was for.
    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire>;

    /// Has the lease end this long from now instead, if it still holds. The term may be another one
    /// than that for which it was granted.
    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew>;

    /// Stores an entry, gives up the lease and tells the watchers.
    ///
    /// An entry without a life is not kept, and what was there before it is removed. The answer
    /// still says whether it could have been: whether nothing newer and no invalidation came
    /// between.
    fn commit(&self, lease: Lease, draft: Draft) -> StoreFuture<Commit>;

    /// Gives up a lease, if it still holds, remembers why its load failed, and tells the watchers.
    ///
    /// Within its window, [`acquire`](Store::acquire) answers [`Failed`](Acquire::Failed): always
    /// during its cooldown, and after that if another caller holds the lease. With the lease free
    /// and the cooldown over, it grants the lease as a [probe](Acquire::Lead::probe). A probe that
    /// outlives the window keeps the failure shared until the probe or the failure's life ends. A
    /// lease granted after the window ends the failure, and only tells how often it had failed.
    ///
    /// A failure without a window never answers for the key. The next commit and an invalidation
    /// forget it.
    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<()>;

    /// Gives up a lease, if it was granted and still holds, and tells the watchers.
    fn abandon(&self, claim: Claim) -> StoreFuture<()>;

    /// Removes the entry, ends the lease, raises the watermark above every fence given so far, and
    /// tells the watchers.
    fn invalidate(&self, key: Key) -> StoreFuture<()>;

    /// As [`invalidate`](Store::invalidate), but an entry with a stale window stays, as stale.
    fn expire(&self, key: Key) -> StoreFuture<()>;
}

/// The future of an operation of a store. It borrows nothing, and ends with a result or a
/// [`StoreError`].
pub type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;

/// What a process knows of a key by itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Peek {
    /// There is this entry.
    Found(Entry),
    /// There is none, and asking would not find one.
    Gone,
    /// Only asking can tell.
    Unknown,
}

/// Which entry makes a lease needless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Accept {
    /// A fresh one.
    Fresh,
    /// None: what is there is to be replaced, and whether the last load failed does not matter.
    Nothing,
    /// A fresh one, but not that of this fence, which could not be read.
    Other {
        /// The fence of the entry that will not do.
        than: u64,
    },
}

impl Accept {
    /// Whether an entry that was found makes a lease needless.
    pub fn admits(self, entry: &Entry) -> bool {
        entry.is_fresh()
            && match self {
                Self::Fresh => true,
                Self::Nothing => false,
                Self::Other { than } => entry.fence() != than,
            }
    }
}

/// What came of asking to load a key.
#[derive(Debug)]
#[non_exhaustive]
pub enum Acquire {
    /// Somebody else is loading it.
    Busy {
        /// What is left of their lease if they do not renew it.
        remaining: Duration,
        /// What is there and was not acceptable, stale or fresh.
        stale: Option<Entry>,
    },
    /// A load failed a moment ago, and this caller is not to try again yet.
    Failed {
        /// What is remembered of it.
        failure: Failure,
        /// What is left of its cooldown; or of the probe's lease, if the holder does not renew it.
        remaining: Duration,
        /// What is there and was not acceptable, stale or fresh.
        stale: Option<Entry>,
    },
    /// It was loaded between our miss and this question.
    Found(Entry),
    /// It is ours to load.
    Lead {
        /// The right to do so.
        lease: Lease,
        /// What is there and was not acceptable, stale or fresh.
        stale: Option<Entry>,
        /// How many times in a row its load has failed, as far as that is remembered.
        failures: u32,
        /// This load is a probe: it tries whether the source is back. Until it ends, every other
        /// caller is given this failure.
        probe: Option<Failure>,
    },
}

/// What came of renewing a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a claim holds its key or it does not")]
pub enum Renew {
    /// It holds for the term that was asked for, from now on.
    Held,
    /// It had lapsed, was taken over, or was ended by an invalidation.
    Lost,
}

/// What came of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Commit {
    /// The entry is there, and who waits for it has been told.
    Stored,
    /// Something newer or an invalidation came between, and nothing was stored.
    Superseded,
}

/// How long a watermark is kept after an invalidation: 10 minutes. A lapsed lease older than that
/// stores nothing, since what was invalidated in its time is no longer known.
pub const WATERMARK_TTL: Duration = Duration::from_secs(600);

/// A store is used as `dyn Store`.
#[allow(dead_code, reason = "compiling it is the check")]
fn is_object_safe(_: &dyn Store) {}
