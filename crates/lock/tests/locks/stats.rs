//! What a set of locks counts.

use bellwether_lock::{LockErrorKind, LockWait, Released};
use tokio::time::sleep;

use crate::support::{LEASE, MS, Operation, SECOND, Scripted, item, key, locks};

#[tokio::test(start_paused = true)]
async fn each_attempt_is_counted_once_by_its_end() {
    let lock = Scripted::default();
    let locks = locks(lock.clone()).wait(LockWait::at_most(SECOND)).name("stock");
    let held = locks.lock(&key()).await.unwrap();
    locks.try_lock(&key()).await.unwrap_err();
    locks.lock(&key()).await.unwrap_err();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock(&key()).await.map(drop) }
    });
    sleep(MS).await;
    waiting.abort();
    _ = waiting.await;
    lock.fail(Operation::Acquire, LockErrorKind::Refused, 1);
    locks.lock(&item(1)).await.unwrap_err();
    // A refused attempt gives up what it may have been granted.
    sleep(MS).await;
    let stats = locks.stats();
    assert_eq!(
        (stats.acquired, stats.busy, stats.timed_out, stats.failed, stats.left),
        (1, 1, 1, 1, 1)
    );
    assert_eq!((stats.waited, stats.keys), (SECOND + MS, 1));
    assert_eq!(held.release().await.unwrap(), Released::Freed);
    assert_eq!((locks.clone().stats().acquired, locks.clone().stats().keys), (1, 0));
    assert!(format!("{locks:?}").contains("\"stock\""), "{locks:?}");
}

#[tokio::test(start_paused = true)]
async fn renewals_and_losses_are_counted() {
    let lock = Scripted::default();
    let locks = locks(lock.clone());
    let held = locks.lock(&key()).await.unwrap();
    sleep(LEASE).await;
    let stats = locks.stats();
    assert!((2..=3).contains(&stats.renewed), "{stats:?}");
    lock.fail(Operation::Renew, LockErrorKind::Unreachable, 1_000);
    sleep(LEASE * 2).await;
    assert!(held.is_lost());
    let stats = locks.stats();
    assert_eq!(stats.lost, 1);
    assert!(stats.renewals_failed > 1, "{stats:?}");
}
