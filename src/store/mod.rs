//! Stores: where entries and leases live.
//!
//! # The contract
//! 1. At most one unexpired lease per key. Only its token can abandon it, and only its token and its
//!    fence can renew it or commit by it. A claim that asks again while its lease holds is granted
//!    that lease, and later one with a new fence: a copy of its request may arrive late.
//! 2. An [invalidation](Withdrawal::Invalidate) ends the lease, so a commit whose lease still holds may
//!    store. A lease that has lapsed or was taken over stores under three conditions: its fence is
//!    above the watermark, its fence is above the stored entry's fence, and it is younger than
//!    ten minutes. Without this, a load slower than its lease would never be stored. Such a
//!    commit leaves the lease of another holder alone. Every other commit is
//!    [`Superseded`](Settled::Superseded). The commit of a draft that is an
//!    [invalidation](Draft::invalidates) raises the watermark to its fence.
//! 3. Fencing tokens grow per key, across expiry and restarts. A new one is the largest of the
//!    watermark + 1, the stored entry's fence + 1, and the store's clock in microseconds.
//! 4. Time is the store's. No client's clock takes part in a decision about a lease. Whether an
//!    entry is fresh depends on what is left of its life in the store.
//! 5. Everything that a store writes expires. A [failure](End::Fail) is remembered for its
//!    [life](Failure::life), and the next commit or invalidation removes it.
//! 6. Every operation is one atomic step. A caller may drop it at any await, or may be gone when
//!    the answer comes. The token is chosen before the request is sent, so a lease can be abandoned
//!    even if the answer that granted it was lost.
//!
//! # Tags
//! A store with tags gives each tag an [epoch](TagEpoch), and keeps with an entry the epochs under
//! which it was loaded. It promises:
//!
//! 7. After an [invalidation](Withdrawal::Invalidate) of a tag has returned, an operation that begins later
//!    finds no entry with that tag whose load began before it, whatever the store has forgotten.
//!    After an [expiry](Withdrawal::Expire), it finds such an entry only as stale.
//! 8. A commit that begins after either of them is superseded if its lease was granted before. For
//!    tags of the [claim](Claim::tags) this holds whatever the store has forgotten. For tags of the
//!    [draft](Draft::tagged), it holds as long as the store has not forgotten the invalidation.
//! 9. The epochs of a lease are read before the grant or with it. Those of a commit are compared
//!    when it begins, and those of an entry at each lookup. So no step touches an entry and a tag
//!    at once, and they can be on different servers.
//!
//! A store without tags refuses to invalidate one, and stores entries without their tags.
//!
//! The crate `bellwether-test` checks this contract, for stores of your own. It also has a store that
//! fails on request, for tests of your services.

mod clock;
mod entry;
mod failure;
mod lease;
pub(crate) mod memory;
mod outage;
mod standing;
mod watch;
mod withdrawal;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::box_future::BoxFuture;

pub use entry::{Draft, Entry, Marker, TagEpoch, Value};
pub use failure::Failure;
pub use lease::{Claim, Lease, OtherLease, Token};
pub use watch::{Watch, Watchers};
pub use withdrawal::{Withdrawal, WithdrawalTarget};

pub use self::memory::MemoryOptions;
pub use self::outage::OutageStore;
pub use crate::error::StoreErrorKind;
pub use crate::key::Digest;
pub use crate::tag::Tags;

// For the stores and locks of this project, which are released with it.
#[doc(hidden)]
pub use self::clock::{Clock, Moment};
#[doc(hidden)]
pub use self::standing::{Spread, Standing, TagState};
#[doc(hidden)]
pub use crate::key::KeyPart;

use crate::error::StoreError;
use crate::key::Key;
use crate::trace::TraceParent;

/// Where entries and leases live. See the [contract](self) for what implementors promise.
///
/// Operations take what they need by value and return a future that borrows nothing, so a caller
/// can keep the future next to the store. A store is a cheap handle: clones share one state.
///
/// # Cancel safety
/// A dropped operation may have been executed, or may be executed later. See point 6 of the
/// [contract](self).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no store",
    label = "no store",
    note = "stores are `MemoryStore`, `RedisStore`, an `Arc<dyn Store>`, or a type of your own with `impl Store`; \
            `RedisStore::connect(..)` is a future of a `Result`"
)]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What this process knows of a key without a request to a server.
    ///
    /// A store in the memory of the process answers here. Such a hit costs no future, no task and
    /// no round trip. The default knows nothing.
    fn peek(&self, _: &Key) -> Peek {
        Peek::Unknown
    }

    /// Hints that a key has changed.
    ///
    /// A watch reports the changes of the key after its creation that this process learns of. It
    /// may miss changes: only speed depends on it. The default never reports any.
    ///
    /// With the change by a commit, it may give the entry that was stored. Then the commit's lease
    /// held until it stored, so an [`acquire`](Store::acquire) that was told of [that
    /// lease](OtherLease::has_stored) may be answered with the entry, however late it comes: no
    /// invalidation came between the lease's grant and the acquire. The store gives no entry over an
    /// invalidation that it has begun to repeat since.
    fn watch(&self, _: &Key) -> Watch {
        Watch::silent()
    }

    /// Reads the entry of a key, for a request with these tags. Takes no lease.
    ///
    /// An entry that lacks one of the tags counts as none: it was stored before the program gave it
    /// that tag, and invalidations of the tag do not reach it. A remote store reads their epochs in
    /// the same round trip. Tags that only the entry has cost another one, unless the store remembers
    /// them. A store without tags ignores them.
    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>>;

    /// Reads the entry, and takes the lease if the entry is not acceptable and no other claim holds
    /// the lease. From then on, changes of the key are reported to its [`watch`](Store::watch).
    ///
    /// A claim that already holds the lease is granted it again. So a lost answer does not block
    /// the caller that repeats its request.
    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire>;

    /// Makes the lease end this long from now, if it still holds. The term may differ from the one
    /// that was granted.
    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew>;

    /// Ends a lease as its [`End`] says, and notifies the watches. One step does both: stores the
    /// entry or the failure, and gives the lease up.
    fn settle(&self, end: End) -> StoreFuture<Settled>;

    /// Makes what is stored of a key or of a tag invalid or stale, and notifies the watches of a
    /// key. Returns whether there was an entry of the key, fresh or stale; for a tag, `false`.
    ///
    /// Of a key, it also ends the lease, and raises the watermark to the highest fence given so far
    /// or above. Of a tag, it ends the epoch: loads that began before it are
    /// [`Superseded`](Settled::Superseded).
    ///
    /// # Errors
    /// A store without tags gives [`Unsupported`](crate::store::StoreErrorKind::Unsupported) for a tag.
    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool>;
}

/// How a lease ends. See [`Store::settle`].
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "a store handles each of them")]
pub enum End {
    /// The entry is stored: a commit.
    ///
    /// An entry without a life is not kept, and it removes the entry that was there before. The
    /// result is still [`Superseded`](Settled::Superseded) if a newer entry or an invalidation came
    /// in between.
    ///
    /// A draft that [invalidates](Draft::invalidating) promises the same as [`Withdrawal::Invalidate`] after it
    /// has returned, in a store that repeats invalidations that a server has lost.
    Commit(Lease, Draft),
    /// The load has failed: if the lease still holds, the failure is remembered.
    ///
    /// Within its window, [`acquire`](Store::acquire) answers [`Failed`](Acquire::Failed): always
    /// during its cooldown, and after that if another caller holds the lease. With the lease free
    /// and the cooldown over, it grants the lease as a [probe](Acquire::Lead::probe). A probe that
    /// outlives the window keeps the failure shared until the probe or the failure's life ends. A
    /// lease granted after the window ends the failure, and only the number of failures is kept.
    ///
    /// A failure without a window is never given to callers. The next commit or invalidation
    /// removes it.
    Fail(Lease, Failure),
    /// The lease is given up, if it was granted and still holds.
    Abandon(Claim),
}

impl End {
    /// The claim whose lease ends.
    pub fn claim(&self) -> &Claim {
        match self {
            Self::Commit(lease, _) | Self::Fail(lease, _) => &lease.claim,
            Self::Abandon(claim) => claim,
        }
    }
}

/// The future of an operation of a store. It borrows nothing, and ends with a result or a
/// [`StoreError`].
pub type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;

/// What a process knows of a key without a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Peek {
    /// The entry.
    Found(Entry),
    /// There is no entry, and a lookup would not find one.
    Gone,
    /// Only a lookup can tell.
    Unknown,
}

/// Which entries a caller accepts instead of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a store handles each of them")]
pub enum Accept {
    /// A fresh one.
    Fresh,
    /// None: the entry is to be replaced, and a remembered failure is ignored.
    Nothing,
    /// A fresh one with another fence than this: the entry with this fence could not be read.
    Other {
        /// The fence of the entry that is not acceptable.
        than: u64,
    },
}

impl Accept {
    /// Whether the caller accepts this entry.
    pub fn admits(self, entry: &Entry) -> bool {
        entry.is_fresh()
            && match self {
                Self::Fresh => true,
                Self::Nothing => false,
                Self::Other { than } => entry.fence() != than,
            }
    }
}

/// The outcome of an [`acquire`](Store::acquire).
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "a store handles each of them")]
pub enum Acquire {
    /// Another claim holds the lease.
    Busy {
        /// That lease. A message about it is judged by this.
        other: OtherLease,
        /// What is left of that lease if its holder does not renew it.
        remaining: Duration,
        /// The entry that was not acceptable, stale or fresh.
        stale: Option<Entry>,
        /// The [trace](Claim::trace) of the claim that holds it, if the store knows it.
        trace: Option<TraceParent>,
    },
    /// A recent load failed, and this caller must not load yet.
    Failed {
        /// The remembered failure.
        failure: Failure,
        /// What is left of its cooldown; or of the probe's lease, if the holder does not renew it.
        remaining: Duration,
        /// The entry that was not acceptable, stale or fresh.
        stale: Option<Entry>,
    },
    /// An acceptable entry was stored after the caller's lookup.
    Found(Entry),
    /// The caller has the lease and loads.
    Lead {
        /// The right to load.
        lease: Lease,
        /// The entry that was not acceptable, stale or fresh.
        stale: Option<Entry>,
        /// How many loads in a row have failed before this one, as far as that is remembered.
        failures: u32,
        /// Set if this load is a probe, which tests whether the source works again. Until it ends,
        /// every other caller is given this failure.
        probe: Option<Failure>,
    },
}

/// The outcome of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a claim holds its key or it does not")]
pub enum Renew {
    /// It holds for the requested term from now on.
    Held,
    /// It has lapsed, was taken over, or was ended by an invalidation.
    Lost,
}

/// The outcome of a [`settle`](Store::settle).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settled {
    /// The lease has ended as its [`End`] says. Of a commit: the entry is stored, and its watches are
    /// notified.
    Done,
    /// A newer entry or an invalidation came before the commit. Nothing was stored.
    Superseded,
    /// Of a commit: the store has no room for an entry of this size. The lease has ended, and no entry is
    /// stored any more.
    TooLarge,
}

/// A store behind an `Arc` is a store, whatever its type. So a program can choose its store when it
/// starts, as an `Arc<dyn Store>`:
///
/// ```
/// use std::sync::Arc;
///
/// use bellwether::store::Store;
/// use bellwether::{Cache, MemoryStore};
///
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new(10_000)); // or a `RedisStore`
/// let items: Cache<u64, String> = Cache::builder("item", store).coalesce_only().build()?;
/// # let _ = items;
/// # Ok::<_, bellwether::ConfigError>(())
/// ```
impl<S: Store + ?Sized> Store for Arc<S> {
    fn peek(&self, key: &Key) -> Peek {
        (**self).peek(key)
    }

    fn watch(&self, key: &Key) -> Watch {
        (**self).watch(key)
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        (**self).lookup(key, tags)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        (**self).acquire(claim, term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        (**self).renew(lease, term)
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        (**self).settle(end)
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        (**self).withdraw(target, change)
    }
}

/// A store that holds the [`Value`]s that it is given, and gives back those very
/// values: in the memory of this process, for this process only. So it can hold what is never
/// encoded: see [`Cache::in_process`](crate::Cache::in_process).
///
/// Implement it for a store of your own if each entry that it finds is one that a commit of this
/// process has brought. A value that is made again, of its bytes, is a miss.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may be shared with other processes, so it cannot hold values that are never encoded",
    label = "not a store of this process alone",
    note = "a `MemoryStore` is one; for a shared store, `Cache::builder` and `ReadThroughLayer::builder` encode values"
)]
pub trait InProcessStore: Store {}

impl<S: InProcessStore + ?Sized> InProcessStore for Arc<S> {}

/// How long a watermark is kept after an invalidation: 10 minutes. A lapsed lease that is older
/// stores nothing, because the watermarks of its time are gone.
#[doc(hidden)]
pub const WATERMARK_TTL: Duration = Duration::from_secs(600);
