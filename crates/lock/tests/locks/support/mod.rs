//! Locks that do what a test says.

pub(crate) mod reentrant;
pub(crate) mod remote;
pub(crate) mod scripted;

use std::time::Duration;

use bellwether::Key;
use bellwether::store::Claim;
use bellwether_lock::{
    Attempt, Lock, LockError, LockErrorKind, LockGuard, LockWait, Locks, LocksBuilder, Request,
};

pub(crate) use self::remote::Remote;
pub(crate) use self::scripted::{Operation, Scripted};

pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Longer than any lease: a test that waits for it waits for ever.
pub(crate) const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) fn key() -> Key {
    item(0)
}

pub(crate) fn item(item: u64) -> Key {
    Key::of("item").with(item)
}

/// What a process of the fleet has: locks of its own, over the lock that all share.
pub(crate) fn locks<L: Lock>(lock: L) -> Locks<Remote<L>> {
    locks_by(lock, |builder| builder)
}

/// The same, with other options.
pub(crate) fn locks_by<L: Lock>(
    lock: L,
    options: impl FnOnce(LocksBuilder<Remote<L>>) -> LocksBuilder<Remote<L>>,
) -> Locks<Remote<L>> {
    let locks = options(Locks::builder(Remote(lock)).lease(LEASE)).build();
    locks.expect("options").wait(LockWait::at_most(NEVER))
}

pub(crate) fn kind<L: Lock>(answer: Result<LockGuard<L>, LockError>) -> LockErrorKind {
    answer.expect_err("a lock").kind()
}

/// A holder outside of any `Locks`: it renews nothing.
pub(crate) async fn seize(lock: &impl Lock, key: &Key, lease: Duration) -> Claim {
    let claim = Claim::new(key.clone());
    let attempt = lock.acquire(Request::new(claim.clone(), lease)).await.expect("an answer");
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
    claim
}

/// Whether the lock itself knows a holder.
pub(crate) async fn is_held(lock: &impl Lock, key: &Key) -> bool {
    let claim = Claim::new(key.clone());
    let attempt = lock.acquire(Request::new(claim.clone(), SECOND)).await.expect("an answer");
    lock.release(claim).await.expect("an answer");
    matches!(attempt, Attempt::Busy(_))
}
