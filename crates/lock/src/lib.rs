//! Distributed locks: the right to a key, held for as long as the holder needs it.
//!
//! ```text
//! cargo add bellwether bellwether-lock
//! ```
//!
//! ```
//! use bellwether::Key;
//! use bellwether_lock::{LocalLock, Locks};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::new(LocalLock::new()); // or RedisLock::connect(RedisClientOptions::new(url, "shop")?).await?
//! let stock = Key::of("stock").with("berlin").with(42);
//!
//! // Run a future under the lock. It is dropped if the lock is lost meanwhile.
//! let left = locks.run(&stock, async { 41 }).await?; // waits 5 s at most
//! # assert_eq!(left, 41);
//! let guard = locks.lock(&stock).await?; // released when it is dropped
//! # drop(guard);
//! # Ok(())
//! # }
//! ```
//!
//! **A lock saves work. It does not keep data right:** a holder may be paused between its check and its write,
//! and another holder has the key by then. The [guide](mod@guide) says what helps, and which lock to choose.
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `redis` | yes | `RedisLock`, `ReentrantLock`, `FairLock` and `Redlock`; with `tls` |
//! | `zookeeper` | no | `ZooKeeperLock` |
//! | `postgres` | no | `PostgresLock` |
//! | `mysql` | no | `MySqlRowLock`, also for MariaDB |
//! | `macros` | no | `#[locked]`: runs an `async fn` under a lock |
//! | `test-util` | no | `conformance`: checks a [`Lock`] of your own |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquisition;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod attribute;
#[cfg(feature = "test-util")]
pub mod conformance;
mod context;
mod deferred_renewal;
mod error;
mod grant;
mod guard;
mod hold;
mod instants;
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
mod renewal_task;
mod runtime_waker;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod session;
mod stats;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide.md")]
pub mod guide {}

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::Key;
use bellwether::adapter::BoxFuture;

#[cfg(feature = "macros")]
pub use attribute::locked;
pub use error::{LockError, LockErrorKind};
pub use grant::{Attempt, Busy, Grant, Holder, Owner, Released, Request, Session, Term};
pub use guard::LockGuard;
pub use hold::LockStatus;
pub use local::LocalLock;
pub use lock_wait::LockWait;
pub use locks::{Locks, LocksBuilder};
#[cfg(feature = "mysql")]
pub use mysql::{MySqlOptions, MySqlRowLock};
pub use policy::WhenLost;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresLock, PostgresOptions};

// For the locks of this crate.
#[doc(hidden)]
pub use local_queue::LocalQueues;
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

/// Which claim holds which key.
///
/// Operations take what they need by value and answer with a future that borrows nothing. A lock
/// is a cheap handle: clones share one state. What else a lock can do is said by traits of their own:
/// [`Fenced`], [`Reentrant`] and [`TakeOver`].
///
/// # The contract
/// 1. At most one claim holds a key at a time. Only its token can renew it or release it.
/// 2. The claim is chosen before the first request. The caller may drop every operation at any
///    await, and may never get its answer: a claim whose grant was not acknowledged can be
///    released.
/// 3. [`release`](Self::release) is safe for a claim that was never granted, and for one that was
///    released before. It never frees the key of another claim. It also leaves the queue, if the
///    lock has one.
/// 4. [`renew`](Self::renew) never gives back what was lost.
/// 5. A claim that holds by a [lease](Term::Lease) and does not renew it loses the key when the
///    lease ends, by the clock of the server. One that holds by a [session](Term::Session) loses
///    the key with the session, and the session reports it.
/// 6. Fences of one key grow with every grant, for locks that are [`Fenced`].
/// 7. For a key that is neither held nor waited for, nothing is kept but what its fences need to
///    grow, and that not for ever.
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
    #[doc(hidden)]
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
