//! Locks: the right to a key, held for as long as the holder needs it.
//!
//! The [guide](mod@guide) helps to choose one, and says when no lock helps.
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether_lock::{LocalLock, LockErrorKind, LockWait, Locks};
//! use bellwether::Key;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::new(LocalLock::new()); // or another of those below
//! let stock = Key::of("stock").with("berlin").with(42);
//!
//! let held = locks.lock(&stock).await?; // waits 5 s at most
//! let busy = locks.try_lock(&stock).await; // does not wait
//! assert_eq!(busy.unwrap_err().kind(), LockErrorKind::Busy);
//! drop(held); // by whatever ends its scope
//!
//! // Or around a future, which is dropped if the lock is lost meanwhile:
//! let patient = locks.clone().wait(LockWait::at_most(Duration::from_secs(60)));
//! let left = patient.run(&stock, async { 41 }).await?;
//! # assert_eq!(left, 41);
//! # Ok(())
//! # }
//! ```
//!
//! [`Locks`] is the policy, the same for every lock: how it is waited for, kept, and given up.
//! [`LockLayer`] puts it around a service, and the attribute `#[locked]` around a function.
//! [`Guarded`] makes a lock part of the leases of a [store](bellwether::store).
//!
//! # What a lock is good for
//! To **save work**, any of them will do: now and then it is done twice. To **keep data right**, no
//! lock is enough: a holder may be stopped between the moment it makes sure that it holds the key
//! and the moment its write arrives, and by then somebody else may hold it. What helps is a resource
//! that refuses a [fence](Held::fence) below the largest it has seen.
//!
//! # Which lock guarantees what
//! | lock | feature | ends with | fence | line | woken by | taken again | take-over |
//! |---|---|---|---|---|---|---|---|
//! | [`LocalLock`] | | lease | yes, of this process | no | this process | no | yes |
//! | `RedisLock` | `redis` | lease | yes | no | the server, all who wait | no | yes |
//! | `ReentrantLock` | `redis` | lease | yes | no | the server, all who wait | yes | no |
//! | `FairLock` | `redis` | lease | yes | yes | the server, the first | no | no |
//! | `Redlock` | `redis` | lease | no | no | the servers, all who wait | no | no |
//! | `ZooKeeperLock` | `zookeeper` | session | yes, of the ensemble | yes | the servers | no | no |
//! | `MySqlLock` | `mysql` | session | yes, of a counter | of the server, nearly in order | the server | no | no |
//! | `MySqlRowLock` | `mysql` | session | yes, of a counter | of the server, in no order | the server | no | no |
//! | `PostgresLock` | `postgres` | session | yes, of a sequence | of the server, nearly in order | the server | no | no |
//!
//! Each says on its page what it does not survive. There is none for etcd: its client is built with
//! `protoc`, which a fresh machine lacks.
//!
//! A holder whose key was deleted, taken over, or lost with the server's memory is told within about a
//! round trip by `LocalLock`, the locks in Redis, `ZooKeeperLock` and `PostgresLock` (whose server
//! tells that a session has ended); in the first 0.1 s after its grant, at their end. Where a Redis
//! server refuses to tell of changes, it is told with the next renewal, a third of the lease later; by
//! the locks in MySQL, with the next question of the session, a third of its timeout later.
//!
//! "Ends with a lease": a holder that is not heard of for that long has lost the key, by the clock of
//! the server. "With a session": with the connection, or when the server has not heard of it for the
//! time that was agreed on. In the line are those of different processes; those of one process wait
//! for each other in the order of arrival with every lock.
//!
//! # What is promised for all
//! - One holder at a time, as far as the lock keeps its word; a holder that lost it is told.
//! - It is given up by whatever ends its holder: a drop, an early return, a panic, a cancelled future,
//!   a [shutdown](Locks::shutdown). What is cut off while asking is given up too.
//! - What runs under it ([`Locks::run`], [`LockLayer`], `#[locked]`) has released it when it returns,
//!   and what was dropped is released before the next attempt of this process asks.
//! - A holder whose process stood still for longer than its lease or session knows that it may have
//!   lost the key when it looks, before any task has run.
//! - A wait is never longer than was said, and a release between a look and a wait is not missed.
//! - Nothing is kept for keys that nobody holds or waits for.
//!
//! # The contract
//! 1. At most one claim holds a key at a time. Only its token can renew it or release it.
//! 2. The claim is chosen before anybody is asked. Every operation may be dropped at any await, or
//!    be answered after the caller has gone: a claim whose grant was never heard of can be released.
//! 3. [`release`](Lock::release) is safe for a claim that was never granted, and the second time.
//!    It never frees what somebody else holds, and it also leaves the queue, if there is one.
//! 4. [`renew`](Lock::renew) never gives back what was lost.
//! 5. Who holds by a [lease](Term::Lease) and is not heard of loses the key when the lease ends, by
//!    the clock of the server. Who holds by a [session](Term::Session) loses it with the session,
//!    and is told.
//! 6. Fences of one key grow with every grant, for locks that are [`Fenced`].
//! 7. Nothing is kept for a key that nobody holds and nobody waits for, but what its fences need to
//!    grow, and that not for ever.
//!
//! What a lock cannot do, its type does not offer: [`Fenced`], [`Reentrant`] and [`TakeOver`] are
//! traits of their own.
#![doc = ""]
#![doc = include_str!("cases.md")]

#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod attribute;
#[cfg(feature = "test-util")]
pub mod conformance;
mod drift;
mod error;
mod gates;
mod grant;
mod guarded;
mod held;
mod keeper;
mod layer;
mod local;
mod lock_wait;
mod locks;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod release;
mod renewal;
mod running;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod session;
mod waiting;
mod young;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[doc = include_str!("guide.md")]
pub mod guide {}

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::Key;

#[cfg(feature = "macros")]
pub use attribute::locked;
pub use error::{LockError, LockErrorKind};
pub use grant::{Attempt, Busy, Grant, Holder, Owner, Released, Request, Session, Term};
pub use guarded::Guarded;
pub use held::{Held, Standing};
pub use layer::{LockLayer, Locked};
pub use local::LocalLock;
pub use lock_wait::LockWait;
pub use locks::Locks;
#[cfg(feature = "mysql")]
pub use mysql::{MySqlLock, MySqlOptions, MySqlRowLock};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresLock, PostgresOptions};
pub use running::{LockedError, WhenLost};
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeperLock, ZooKeeperOptions};

#[cfg(feature = "redis")]
pub use self::redis::{FairLock, RedisLock, Redlock, ReentrantLock};
pub use bellwether::store::{Claim, Renew, Token, Watch, Watchers};

/// The future of an operation of a lock. It borrows nothing, and ends with a result or a
/// [`StoreError`](bellwether::StoreError).
pub type LockFuture<T> = bellwether::store::StoreFuture<T>;

/// Who holds what. See the [contract](self) for what implementors promise.
///
/// Operations take what they need by value and answer with a future that borrows nothing. A lock
/// is a cheap handle: clones share one state.
pub trait Lock: fmt::Debug + Send + Sync + 'static {
    /// Hints that a key may be free.
    ///
    /// A watch that was made before [`acquire`](Lock::acquire) was asked tells of every release
    /// after it that this process hears of. It may miss any, and may tell of none at all; nothing
    /// depends on it but speed.
    fn watch(&self, _: &Key) -> Watch {
        Watch::silent()
    }

    /// Takes the key, if nobody has it.
    ///
    /// Asking again by the same claim renews what it was granted, so a grant whose answer was lost
    /// is not in the way of who it was for; and it keeps the claim's place in the queue.
    fn acquire(&self, request: Request) -> LockFuture<Attempt>;

    /// Starts the lease anew, if the claim still holds the key. For a session: asks whether it
    /// still does.
    fn renew(&self, claim: &Claim, lease: Duration) -> LockFuture<Renew>;

    /// Asks whether the claim still holds the key, without prolonging anything, and has
    /// [`watch`](Lock::watch) tell of the next change of it from then on.
    ///
    /// It is for locks that hear of their own claims: a holder verifies its hold a moment after the
    /// grant and when its watch tells it something, so it hears at once of a key that was deleted or
    /// taken over. It must not be told of the verification itself. A lock that hears nothing gives
    /// `None`, which is the default; its holders hear with the next [renewal](Lock::renew).
    fn verify(&self, _: &Claim) -> Option<LockFuture<Renew>> {
        None
    }

    /// Gives up the key and the place in the queue.
    fn release(&self, claim: Claim) -> LockFuture<Released>;
}

/// A lock whose grants carry a number that grows: a resource that remembers the largest it has seen
/// can refuse who has lost the key and does not know it yet.
///
/// Every [`Grant`] of such a lock has a fence.
pub trait Fenced: Lock {}

/// A lock that its [owner](Request::owner) may take again while it holds it. It is free when it has
/// been released as often as it was taken.
///
/// Each claim is a hold of its own; a claim is counted once, however often it is asked for. All
/// holds of one owner have one fence.
pub trait Reentrant: Lock {}

/// A lock that can be taken from a holder that does not renew it any more.
pub trait TakeOver: Lock {
    /// Takes the key from exactly this holder, or if it is free. Of any number that try, one is
    /// granted it.
    fn take_over(&self, request: Request, from: Holder) -> LockFuture<Attempt>;
}

impl<L: Lock + ?Sized> Lock for Arc<L> {
    fn watch(&self, key: &Key) -> Watch {
        (**self).watch(key)
    }

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        (**self).acquire(request)
    }

    fn renew(&self, claim: &Claim, lease: Duration) -> LockFuture<Renew> {
        (**self).renew(claim, lease)
    }

    fn verify(&self, claim: &Claim) -> Option<LockFuture<Renew>> {
        (**self).verify(claim)
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        (**self).release(claim)
    }
}

impl<L: Fenced + ?Sized> Fenced for Arc<L> {}

impl<L: Reentrant + ?Sized> Reentrant for Arc<L> {}

impl<L: TakeOver + ?Sized> TakeOver for Arc<L> {
    fn take_over(&self, request: Request, from: Holder) -> LockFuture<Attempt> {
        (**self).take_over(request, from)
    }
}

/// A lock is used as `dyn Lock`.
#[allow(dead_code, reason = "compiling it is the check")]
fn is_object_safe(_: &dyn Lock) {}
