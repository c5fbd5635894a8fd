//! What went wrong with a lock, and the chain of its causes.

use std::io;

use bellwether::store::StoreErrorKind;
use bellwether::{ConfigError, StoreError};
use bellwether_lock::{LockError, LockErrorKind, LockWait, Locks};
use bellwether_testkit::error_chain::find_in_chain;

use crate::support::{LEASE, Operation, Scripted, key, locks};

#[tokio::test(start_paused = true)]
async fn an_error_says_what_happened_and_has_the_error_of_the_lock_in_its_chain() {
    use LockErrorKind::{Down, Malformed, Misconfigured, NoReply, NotReady, Refused, Unreachable};
    for kind in [Down, Malformed, Misconfigured, NoReply, NotReady, Refused, Unreachable] {
        let lock = Scripted::default();
        lock.fail(Operation::Acquire, kind, 1);
        let error = locks(lock).lock(&key()).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        let cause = std::error::Error::source(&error).expect("the error of the lock");
        assert_eq!(find_in_chain::<LockError>(cause).map(LockError::kind), Some(kind));
    }
}

#[tokio::test(start_paused = true)]
async fn the_source_of_a_wait_that_ran_out_is_the_last_error() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    let locks = Locks::new(lock.clone()).wait(LockWait::at_most(LEASE));
    let waiting = tokio::spawn(async move { locks.lock(&key()).await });
    tokio::time::sleep(LEASE / 10).await;
    lock.fail(Operation::Acquire, LockErrorKind::NotReady, usize::MAX);
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::TimedOut);
    let cause = std::error::Error::source(&error).and_then(find_in_chain::<LockError>);
    assert_eq!(cause.map(LockError::kind), Some(LockErrorKind::NotReady));
    drop(held);
}

#[test]
fn the_cause_that_a_lock_gives_is_the_source() {
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    let error = LockError::new(LockErrorKind::Unreachable, "no").with_source(refused);
    assert!(find_in_chain::<io::Error>(&error).is_some());
    let store = StoreError::new(StoreErrorKind::Down, "down");
    let error = LockError::from(store);
    assert_eq!(error.kind(), LockErrorKind::Down);
    assert!(find_in_chain::<StoreError>(&error).is_some());
    let error = LockError::from(ConfigError::Url { reason: "no" });
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(find_in_chain::<ConfigError>(&error).is_some());
}
