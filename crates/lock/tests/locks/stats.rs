//! What a set of locks counts.

use bellwether_lock::{LockErrorKind, LockWait, Released};
use tokio::time::sleep;

use crate::support::{LEASE, MS, Operation, SECOND, Scripted, item, key, locks};

#[tokio::test(start_paused = true)]
async fn each_attempt_is_counted_once_by_its_end() {
    let lock = Scripted::default();
    let locks = locks(lock.clone()).wait(LockWait::at_most(SECOND));
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
    assert_eq!((stats.keys, stats.held), (1, 1));
    assert_eq!(stats.wait_times.count(), 5, "one for each attempt");
    let waited = (SECOND + MS).as_secs_f64();
    assert!((stats.wait_times.sum() - waited).abs() < 1e-6, "{:?}", stats.wait_times);
    assert_eq!(held.release().await.unwrap(), Released::Freed);
    assert_eq!((locks.clone().stats().acquired, locks.clone().stats().keys), (1, 0));
    assert_eq!(locks.stats().held, 0);
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

/// However a hold ends.
#[tokio::test(start_paused = true)]
async fn what_is_held_is_counted_until_it_is_released() {
    let lock = Scripted::default();
    let locks = locks(lock.clone());
    let guards = locks.lock_all((0..3).map(item)).await.unwrap();
    assert_eq!(locks.stats().held, 3);
    drop(guards);
    sleep(MS).await;
    assert_eq!(locks.stats().held, 0);
    let held = locks.lock(&key()).await.unwrap();
    lock.fail(Operation::Renew, LockErrorKind::Unreachable, 1_000);
    sleep(LEASE * 10).await;
    assert!(held.is_lost());
    drop(held);
    sleep(MS).await;
    assert_eq!(locks.stats().held, 0);
}

#[tokio::test(start_paused = true)]
async fn the_figures_of_locks_are_published() {
    use bellwether_testkit::recorder::{Published, Snapshot};

    let lock = Scripted::default();
    let locks = locks(lock);
    let held = locks.lock(&key()).await.unwrap();
    locks.try_lock(&key()).await.unwrap_err();
    let published = Published::default();
    metrics_facade::with_local_recorder(&published, || {
        bellwether::metrics::publish(&Snapshot("redis", locks.stats()));
    });
    drop(held);
    let value = |name: &str| published.value(&format!("bellwether_lock_{name}"));
    assert_eq!(value("waits_total kind=redis result=acquired"), 1);
    assert_eq!(value("waits_total kind=redis result=busy"), 1);
    assert_eq!(value("wait_duration_seconds kind=redis"), 2);
    assert_eq!(value("lost_total kind=redis"), 0);
    assert_eq!(value("renewals_total kind=redis result=renewed"), 0);
    assert_eq!(published.gauge("bellwether_lock_held kind=redis"), 1.0);
}
