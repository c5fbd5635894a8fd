//! Locks: the right to a key, held for as long as the holder needs it.
//!
//! The [guide](mod@guide) helps to choose a lock, and says when none helps.
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
//! let guard = locks.lock(&stock).await?; // waits 5 s at most
//! let busy = locks.try_lock(&stock).await; // does not wait
//! assert_eq!(busy.unwrap_err().kind(), LockErrorKind::Busy);
//! drop(guard); // the end of its scope releases the lock
//!
//! // Or run a future under the lock. It is dropped if the lock is lost meanwhile:
//! let patient = locks.clone().wait(LockWait::at_most(Duration::from_secs(60)));
//! let left = patient.run(&stock, async { 41 }).await?;
//! # assert_eq!(left, 41);
//! # Ok(())
//! # }
//! ```
//!
//! [`Locks`] is the policy, the same for every lock: how to wait for it, renew it, and release it.
//! [`LockLayer`] runs each call of a service under a lock, and the attribute `#[locked]` does so
//! for a function.
//!
//! # What a lock is good for
//! To **save work**, any of these locks will do: in rare cases the work is done twice. To **keep
//! data right**, no lock is enough. A holder may be stopped after it checks that it holds the key
//! and before its write arrives; by then another holder may have the key. What helps is a resource
//! that refuses a [fencing token](LockGuard::fence) below the largest it has seen.
//!
//! # Which lock guarantees what
//! | lock | feature | ends with | fence | queue | woken by | reentrant | take-over |
//! |---|---|---|---|---|---|---|---|
//! | [`LocalLock`] | | lease | yes, of this process | no | this process | no | yes |
//! | `RedisLock` | `redis` | lease | yes | no | the server, all waiters | no | yes |
//! | `ReentrantLock` | `redis` | lease | yes | no | the server, all waiters | yes | no |
//! | `FairLock` | `redis` | lease | yes | yes | the server, the first waiter | no | no |
//! | `Redlock` | `redis` | lease | no | no | the servers, all waiters | no | no |
//! | `ZooKeeperLock` | `zookeeper` | session | yes, of the ensemble | yes | the servers | no | no |
//! | `MySqlLock` | `mysql` | session | yes, of a counter | of the server, nearly in order | the server | no | no |
//! | `MySqlRowLock` | `mysql` | session | yes, of a counter | of the server, in no order | the server | no | no |
//! | `PostgresLock` | `postgres` | session | yes, of a sequence | of the server, nearly in order | the server | no | no |
//!
//! The page of each lock says what it does not survive. There is no lock for etcd: its client is
//! built with `protoc`, which a fresh machine lacks.
//!
//! - **Ends with a lease:** a holder that does not renew for that long has lost the key, by the
//!   clock of the server. **With a session:** the key is lost with the connection, or when the
//!   server has received nothing from it for the session timeout.
//! - **Queue:** the order between processes. Callers of one process wait for each other in the
//!   order of arrival, with every lock.
//! - **A loss is noticed:** within about a round trip by `LocalLock`, the locks in Redis,
//!   `ZooKeeperLock` and `PostgresLock` (whose server reports the end of a session). That is for a
//!   key that was deleted, taken over, or lost with the server's memory. A loss in the first 0.1 s
//!   after the grant is noticed at their end. Where a Redis server refuses client tracking, the
//!   next renewal notices the loss, a third of the lease later. The locks in MySQL notice it with
//!   the next request of the session, a third of its timeout later.
//!
//! # How a lock is made
//! All in one way: by `connect` with options, which have an address and a namespace.
//! `connect_lazily` connects at the first use. Options connect themselves too, to the lock with
//! their name:
//!
//! ```no_run
//! # #[cfg(all(feature = "redis", feature = "postgres"))]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use bellwether_lock::redis::RedisClientOptions;
//! use bellwether_lock::{PostgresOptions, RedisLock};
//!
//! let options = RedisClientOptions::new("redis://127.0.0.1:6379", "shop")?;
//! let lock = RedisLock::connect(options).await?;
//!
//! let options = PostgresOptions::new("postgresql://shop:secret@127.0.0.1/shop", "shop")?;
//! let other = options.connect().await?; // or PostgresLock::connect(options).await?
//! # drop((lock, other));
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised for all
//! - One holder at a time, within the guarantees of the lock. A holder that lost the key is told.
//! - Whatever ends a holder releases the key: a drop, an early return, a panic, a cancelled future,
//!   a [shutdown](Locks::shutdown). So does a request that is cancelled.
//! - Work under a lock ([`Locks::run`], [`LockLayer`], `#[locked]`) has released it when it
//!   returns. A guard that was dropped is released before the next attempt of this process asks, by
//!   the same lock or a clone of it.
//! - A holder whose process stood still for longer than its lease or session can see that it may
//!   have lost the key, before any other task has run.
//! - A wait ends at its limit. A release between a request and the wait after it is not missed.
//! - Nothing is kept for keys that are neither held nor waited for.
//!
//! # The contract
//! 1. At most one claim holds a key at a time. Only its token can renew it or release it.
//! 2. The claim is chosen before the first request. The caller may drop every operation at any
//!    await, and may never get its answer: a claim whose grant was not acknowledged can be
//!    released.
//! 3. [`release`](Lock::release) is safe for a claim that was never granted, and for one that was
//!    released before. It never frees the key of another claim. It also leaves the queue, if the
//!    lock has one.
//! 4. [`renew`](Lock::renew) never gives back what was lost.
//! 5. A claim that holds by a [lease](Term::Lease) and does not renew it loses the key when the
//!    lease ends, by the clock of the server. One that holds by a [session](Term::Session) loses
//!    the key with the session, and the session reports it.
//! 6. Fences of one key grow with every grant, for locks that are [`Fenced`].
//! 7. For a key that is neither held nor waited for, nothing is kept but what its fences need to
//!    grow, and that not for ever.
//!
//! A lock offers what it can do by its type: [`Fenced`], [`Reentrant`] and [`TakeOver`] are traits
//! of their own.
#![doc = ""]
#![doc = include_str!("cases.md")]

mod acquisition;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod attribute;
#[cfg(feature = "test-util")]
pub mod conformance;
mod context;
mod deferred_renewal;
mod drift;
mod error;
mod grant;
mod guard;
mod hold;
mod layer;
mod local;
mod local_queue;
mod lock_wait;
mod locked_error;
mod locks;
#[cfg(feature = "mysql")]
mod mysql;
mod policy;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod release;
mod renewal;
mod renewal_task;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod session;
mod stats;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[doc = include_str!("guide.md")]
pub mod guide {}

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::{BoxFuture, Key};

#[cfg(feature = "macros")]
pub use attribute::locked;
pub use error::{LockError, LockErrorKind};
pub use grant::{Attempt, Busy, Grant, Holder, Owner, Released, Request, Session, Term};
pub use guard::{LockGuard, LockStatus};
pub use layer::{LockLayer, Locked};
pub use local::LocalLock;
pub use local_queue::LocalQueues;
pub use lock_wait::LockWait;
pub use locks::Locks;
#[cfg(feature = "mysql")]
pub use mysql::{MySqlLock, MySqlOptions, MySqlRowLock};
pub use policy::WhenLost;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresLock, PostgresOptions};

pub use locked_error::LockedError;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use session::SessionOptions;
pub use stats::LockStats;
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeperLock, ZooKeeperOptions};

#[cfg(feature = "redis")]
pub use self::redis::{
    fair::{FairLock, FairLockOptions},
    redlock::Redlock,
    reentrant::ReentrantLock,
    single::RedisLock,
};
use bellwether::store::{Claim, Renew, Token, Watch, Watchers};

/// The future of an operation of a lock. It borrows nothing, and ends with a result or a
/// [`LockError`].
pub type LockFuture<T> = BoxFuture<'static, Result<T, LockError>>;

/// Which claim holds which key. See the [contract](self) for what implementors promise.
///
/// Operations take what they need by value and answer with a future that borrows nothing. A lock
/// is a cheap handle: clones share one state.
pub trait Lock: fmt::Debug + Send + Sync + 'static {
    /// Hints that a key may be free.
    ///
    /// A watch that was made before [`acquire`](Lock::acquire) was asked reports every later
    /// release that this process learns of. It may miss any of them, and may report none at all:
    /// only the speed depends on it.
    fn watch(&self, _: &Key) -> Watch {
        Watch::silent()
    }

    /// Takes the key, if it is free.
    ///
    /// A repeated request of the same claim renews what it was granted, so a claim is not blocked
    /// by its own grant whose answer was lost. It also keeps the claim's place in the queue.
    fn acquire(&self, request: Request) -> LockFuture<Attempt>;

    /// Starts the lease again, if the claim still holds the key. For a session: asks whether it
    /// still does.
    fn renew(&self, claim: &Claim, lease: Duration) -> LockFuture<Renew>;

    /// Asks whether the claim still holds the key, without prolonging anything. From then on,
    /// [`watch`](Lock::watch) reports the next change of the key.
    ///
    /// A holder verifies its hold 0.1 s after the grant, and after each report. So it notices at
    /// once that its key was deleted or taken over. The lock must not report the verification
    /// itself.
    ///
    /// Default: `None`, for locks that report no changes. Their holders notice a loss with the next
    /// [renewal](Lock::renew).
    fn verify(&self, _: &Claim) -> Option<LockFuture<Renew>> {
        None
    }

    /// Gives up the key and the place in the queue.
    fn release(&self, claim: Claim) -> LockFuture<Released>;

    /// The local queues of this lock, the same ones for all its clones. By them, all
    /// [`Locks`] over one lock know what this process holds, waits for and is releasing.
    ///
    /// Default: new ones, so that each `Locks` waits for its own releases only.
    fn local_queues(&self) -> LocalQueues {
        LocalQueues::default()
    }
}

/// A lock whose grants carry a fencing token: a number that grows with each grant of the key. A
/// resource that remembers the largest one can refuse a holder that has lost the key and does not
/// know it yet.
///
/// Every [`Grant`] of such a lock has a fence.
pub trait Fenced: Lock {}

/// A lock that its [owner](Request::owner) may take again while it holds it. The lock is free when
/// it has been released as often as it was taken.
///
/// Each claim is a hold of its own, and is counted once however often it is asked for. All holds of
/// one owner have one fence.
pub trait Reentrant: Lock {}

/// A lock that can be taken over from a holder that no longer renews it.
pub trait TakeOver: Lock {
    /// Takes the key from exactly this holder, or if it is free. Of any number of callers that try,
    /// one gets it.
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

    fn local_queues(&self) -> LocalQueues {
        (**self).local_queues()
    }
}

impl<L: Fenced + ?Sized> Fenced for Arc<L> {}

impl<L: Reentrant + ?Sized> Reentrant for Arc<L> {}

impl<L: TakeOver + ?Sized> TakeOver for Arc<L> {
    fn take_over(&self, request: Request, from: Holder) -> LockFuture<Attempt> {
        (**self).take_over(request, from)
    }
}

/// Callers use a lock as `dyn Lock`.
#[allow(dead_code, reason = "compiling it is the check")]
fn is_object_safe(_: &dyn Lock) {}
