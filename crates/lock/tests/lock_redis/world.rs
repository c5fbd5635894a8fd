//! Shared helpers of the tests: locks on servers, and waiting for them.

use std::time::Duration;

use bellwether::store::Claim;
use bellwether_lock::redis::RedisClientOptions;
use bellwether_lock::{
    Attempt, Busy, FairLock, Grant, Lock, LockError, RedisLock, ReentrantLock, Released, Request,
};
use bellwether_testkit::locks;
use bellwether_testkit::servers::RedisServer;

pub(crate) use bellwether_testkit::locks::key;

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Options that bear a machine that is busy with other tests.
pub(crate) fn options(server: &RedisServer) -> RedisClientOptions {
    options_of(&server.url())
}

pub(crate) fn options_of(url: &str) -> RedisClientOptions {
    RedisClientOptions::new(url, "test").expect("options").timeout(Duration::from_secs(5))
}

/// A lock of each kind that gives fences.
pub(crate) async fn fenced(server: &RedisServer) -> [Box<dyn Lock>; 3] {
    [
        Box::new(RedisLock::connect(options(server)).await.expect("a lock")),
        Box::new(FairLock::connect(options(server)).await.expect("a lock")),
        Box::new(ReentrantLock::connect(options(server)).await.expect("a lock")),
    ]
}

/// Takes a free key and gives it back, several times. Returns the last fence; each is above the one
/// before.
pub(crate) async fn grants(lock: &dyn Lock, mut last: u64, count: usize) -> u64 {
    for _ in 0..count {
        let ours = claim(1);
        let fence = take(lock, &ours, LONG).await.fence.expect("a fence");
        assert!(fence > last, "{fence} after {last}, {lock:?}");
        last = fence;
        free(lock, &ours).await;
    }
    last
}

pub(crate) fn claim(number: u64) -> Claim {
    Claim::new(key(number))
}

/// A try.
pub(crate) async fn attempt(
    lock: &dyn Lock,
    claim: &Claim,
    lease: Duration,
) -> Result<Attempt, LockError> {
    lock.acquire(Request::new(claim.clone(), lease)).await
}

/// Takes a key that has to be free.
pub(crate) async fn take(lock: &dyn Lock, claim: &Claim, lease: Duration) -> Grant {
    match attempt(lock, claim, lease).await.expect("an answer") {
        Attempt::Granted(grant) => grant,
        other => panic!("a free key was not granted: {other:?}"),
    }
}

/// Tries a key that has to be taken.
pub(crate) async fn busy(lock: &dyn Lock, claim: &Claim) -> Busy {
    match attempt(lock, claim, LONG).await.expect("an answer") {
        Attempt::Busy(busy) => busy,
        other => panic!("a held key was granted: {other:?}"),
    }
}

/// Waits for a key that has to be taken.
pub(crate) async fn queue_up(lock: &dyn Lock, claim: &Claim) -> Busy {
    let request = Request::new(claim.clone(), LONG).patient_for(LONG);
    match lock.acquire(request).await.expect("an answer") {
        Attempt::Busy(busy) => busy,
        other => panic!("a held key was granted: {other:?}"),
    }
}

pub(crate) async fn free(lock: &dyn Lock, claim: &Claim) {
    let released = lock.release(claim.clone()).await.expect("an answer");
    assert_eq!(released, Released::Freed);
}

/// Waits until it is granted: asks, waits for a message or the end of the holder's lease, and asks
/// again after a pause at most.
pub(crate) async fn wait(lock: &dyn Lock, claim: &Claim, lease: Duration) -> Grant {
    wait_pausing(lock, claim, lease, Duration::from_secs(1)).await
}

pub(crate) async fn wait_pausing(
    lock: &dyn Lock,
    claim: &Claim,
    lease: Duration,
    pause: Duration,
) -> Grant {
    locks::wait(lock, claim, lease, LONG, pause).await
}
