//! How long a caller waits for a lock, and what wakes it.

use std::time::Duration;

use bellwether::ConfigError;
use bellwether_lock::{LocalLock, Lock, LockErrorKind, LockWait, Locks};
use futures_util::future::join_all;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::support::{
    LEASE, MS, Operation, SECOND, Scripted, is_held, item, key, kind, locks, seize,
};

/// Cases 30 and 31.
#[tokio::test(start_paused = true)]
async fn a_wait_of_three_seconds_ends_after_three_seconds() {
    let lock = LocalLock::new();
    let here = locks(lock.clone());
    let _held = here.lock(&key()).await.unwrap();
    // In this process, and in another.
    for waiting in [here, locks(lock.clone())] {
        for wait in [SECOND * 3, MS * 200] {
            let began = Instant::now();
            let answer = waiting.clone().wait(LockWait::at_most(wait)).lock(&key()).await;
            assert_eq!(kind(answer), LockErrorKind::TimedOut);
            assert_eq!(began.elapsed(), wait);
        }
    }
    assert!(is_held(&lock, &key()).await);
}

/// Case 32.
#[tokio::test(start_paused = true)]
async fn retries_outlast_a_short_lease_and_not_a_long_one() {
    let lock = Scripted::without_messages();
    let patient = locks(lock.clone()).wait(LockWait::tries(3, MS * 20));
    seize(&lock, &key(), MS * 20).await;
    assert!(patient.lock(&key()).await.is_ok());

    seize(&lock, &item(1), MS * 50).await;
    let hasty = locks(lock.clone()).wait(LockWait::tries(2, MS * 5));
    assert_eq!(kind(hasty.lock(&item(1)).await), LockErrorKind::TimedOut);
}

/// Case 33.
#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_wait_and_names_both_causes() {
    let lock = Scripted::without_messages();
    seize(&lock, &key(), SECOND * 60).await;
    let locks = locks(lock.clone());
    let began = Instant::now();
    let fails = async {
        sleep(MS * 500).await;
        lock.fail(Operation::Acquire, LockErrorKind::NotReady, usize::MAX);
    };
    let key = key();
    let (answer, ()) = tokio::join!(locks.lock_before(&key, began + SECOND), fails);
    assert_eq!(began.elapsed(), SECOND);
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::TimedOut);
    let said = error.to_string();
    assert!(said.contains("within 1s") && said.contains("as the script says"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_kept_although_the_lock_does_not_answer() {
    let lock = Scripted::default();
    lock.delay(Operation::Acquire, SECOND * 10, SECOND);
    let began = Instant::now();
    let answer = locks(lock.clone()).lock_before(&key(), began + SECOND).await;
    assert_eq!(kind(answer), LockErrorKind::TimedOut);
    assert_eq!(began.elapsed(), SECOND);
}

/// Case 34.
#[tokio::test(start_paused = true)]
async fn n_retries_are_n_plus_one_tries_and_no_pause_after_the_last() {
    for retries in [0, 1, 3, 10] {
        let lock = Scripted::without_messages();
        seize(&lock, &key(), SECOND * 60).await;
        let before = lock.asked(Operation::Acquire);
        let began = Instant::now();
        let locks = locks(lock.clone()).wait(LockWait::tries(retries, MS * 10));
        assert!(locks.lock(&key()).await.is_err());
        assert_eq!(lock.asked(Operation::Acquire) - before, retries as usize + 1);
        assert_eq!(began.elapsed(), MS * 10 * retries);
    }
}

/// Case 35.
#[tokio::test(start_paused = true)]
async fn after_the_deadline_nothing_is_asked() {
    let lock = Scripted::default();
    let locks = locks(lock.clone());
    let answer = locks.lock_before(&key(), Instant::now()).await;
    assert_eq!(kind(answer), LockErrorKind::TimedOut);
    assert_eq!(lock.asked(Operation::Acquire), 0);
    assert!(locks.is_empty());
}

/// Case 36.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_is_gone_and_the_next_one_gets_the_lock() {
    let lock = LocalLock::new();
    let here = locks(lock.clone());
    let there = locks(lock.clone());
    let held = here.lock(&key()).await.unwrap();
    for locks in [&here, &there] {
        assert!(timeout(MS * 300, locks.lock(&key())).await.is_err());
    }
    assert!(there.shutdown(SECOND * 10).await == 0 && there.is_empty());
    let next = locks(lock.clone());
    let waits = tokio::spawn(async move { next.lock(&key()).await.map(drop) });
    sleep(MS * 300).await;
    drop(held);
    timeout(MS * 10, waits).await.unwrap().unwrap().unwrap();
}

/// Case 36, in the middle of the local queue of one process.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_the_local_queue_delays_no_other() {
    let locks = locks(LocalLock::new());
    let held = locks.lock(&key()).await.unwrap();
    let waits = |locks: Locks<_>| tokio::spawn(async move { locks.lock(&key()).await.map(drop) });
    let first = waits(locks.clone());
    let middle = waits(locks.clone());
    let last = waits(locks.clone());
    yield_now().await;
    middle.abort();
    drop(held);
    first.await.unwrap().unwrap();
    last.await.unwrap().unwrap();
    assert!(middle.await.unwrap_err().is_cancelled());
}

/// Case 37: at any moment of the release, a waiter has the key long before it would poll.
#[tokio::test(start_paused = true)]
async fn a_release_between_the_busy_answer_and_the_wait_is_not_missed() {
    for release_at in 0..12 {
        let lock = Scripted::default();
        let claim = seize(&lock, &key(), SECOND * 60).await;
        lock.delay(Operation::Acquire, MS * 5, MS * 5);
        let waiting = locks(lock.clone());
        let releases = async {
            sleep(MS * release_at).await;
            lock.lock.release(claim).await.unwrap();
        };
        let began = Instant::now();
        let key = key();
        let (held, ()) = tokio::join!(waiting.lock(&key), releases);
        assert!(held.is_ok());
        let took = began.elapsed();
        assert!(took <= MS * 25, "{took:?} with a release after {release_at} ms");
    }
}

/// Case 38: release messages are not needed.
#[tokio::test(start_paused = true)]
async fn a_waiter_without_messages_gets_the_lock_by_polling() {
    let lock = Scripted::without_messages();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    let waiting = locks(lock.clone());
    let waits = tokio::spawn(async move { waiting.lock(&key()).await.map(drop) });
    sleep(SECOND).await;
    drop(held);
    timeout(MS * 300, waits).await.unwrap().unwrap().unwrap();
}

/// Cases 16 and 17.
#[tokio::test(start_paused = true)]
async fn a_waiter_gets_it_right_at_the_end_of_a_lease_that_is_not_renewed() {
    let lock = LocalLock::new();
    for (number, lease) in [MS * 50, SECOND * 2].into_iter().enumerate() {
        let key = item(number as u64);
        let began = Instant::now();
        seize(&lock, &key, lease).await;
        let held = locks(lock.clone()).lock(&key).await;
        assert!(held.is_ok());
        let late = began.elapsed() - lease;
        assert!(late <= MS * 20, "{late:?} after the end");
    }
}

/// Case 40.
#[tokio::test]
async fn durations_that_make_no_sense_are_refused() {
    let builder = || Locks::builder(LocalLock::new());
    for lease in [Duration::ZERO, MS * 99, SECOND * 3_601, Duration::MAX] {
        let refused = builder().lease(lease).build().err();
        assert!(matches!(refused, Some(ConfigError::OutOfRange { setting: "lease", .. })));
    }
    for max in [Duration::ZERO, Duration::MAX] {
        assert!(builder().max_hold(max).build().is_err());
        assert!(builder().take_over_after(max).build().is_err());
    }
    let two = builder().max_hold(Duration::ZERO).lease(Duration::ZERO).build().err();
    assert!(matches!(two, Some(ConfigError::OutOfRange { setting: "max_hold", .. })), "the first");
    // A wait has no upper limit.
    let forever = Locks::new(LocalLock::new()).wait(LockWait::at_most(Duration::MAX));
    forever.lock(&key()).await.unwrap().release().await.unwrap();
}

/// Case 64.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_unreachable_from_the_start_is_an_error_at_once() {
    let lock = Scripted::default();
    lock.fail(Operation::Acquire, LockErrorKind::Unreachable, usize::MAX);
    let began = Instant::now();
    let answer = locks(lock.clone()).lock(&key()).await;
    assert_eq!(kind(answer), LockErrorKind::Unreachable);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Case 55, as far as it is ours: a server is restarted while a caller waits.
#[tokio::test(start_paused = true)]
async fn trouble_that_passes_is_waited_out() {
    let lock = Scripted::without_messages();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    let waiting = locks(lock.clone());
    let waits = tokio::spawn(async move { waiting.lock(&key()).await.map(drop) });
    sleep(MS * 300).await;
    for operation in [Operation::Acquire, Operation::Release, Operation::Renew] {
        lock.fail(operation, LockErrorKind::Unreachable, 3);
    }
    drop(held);
    timeout(SECOND * 2, waits).await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_ends_the_wait() {
    let lock = Scripted::without_messages();
    let _held = locks(lock.clone()).lock(&key()).await.unwrap();
    let waiting = locks(lock.clone());
    let waits = tokio::spawn(async move { kind(waiting.lock(&key()).await) });
    sleep(MS * 300).await;
    lock.fail(Operation::Acquire, LockErrorKind::Refused, 1);
    let ended = timeout(SECOND, waits).await.unwrap().unwrap();
    assert_eq!(ended, LockErrorKind::Refused);
}

/// A lock with a queue has to know its waiters, and a request may block there.
#[tokio::test(start_paused = true)]
async fn a_try_has_no_patience_and_a_wait_leaves_part_of_the_lease() {
    let lock = Scripted::default();
    let locks = locks(lock.clone());
    let _ = locks.try_lock(&key()).await;
    let _ = locks.clone().wait(LockWait::tries(0, SECOND)).lock(&item(1)).await;
    let _ = locks.clone().wait(LockWait::at_most(SECOND)).lock(&item(2)).await;
    let _ = locks.lock(&item(3)).await;
    let expected = [Duration::ZERO, Duration::ZERO, MS * 950, LEASE / 3];
    assert_eq!(lock.patience(), expected);
}

/// Case 83, without the order.
#[tokio::test(start_paused = true)]
async fn five_hundred_that_wait_for_200_ms_each_are_all_served() {
    let lock = LocalLock::new();
    let fleet: Vec<_> = (0..50).map(|_| locks(lock.clone())).collect();
    let keys = key();
    let began = Instant::now();
    join_all((0..500).map(|number| {
        let locks = &fleet[number % 50];
        let key = &keys;
        async move {
            let held = locks.lock(key).await.unwrap();
            sleep(MS * 200).await;
            held.release().await.unwrap();
        }
    }))
    .await;
    let took = began.elapsed();
    assert!(took >= SECOND * 100 && took < SECOND * 105, "{took:?}");
}

#[test]
fn outside_of_a_runtime_it_is_an_error() {
    let locks = locks(LocalLock::new());
    let answer = tokio_test::task::spawn(locks.try_lock(&key())).poll();
    let std::task::Poll::Ready(answer) = answer else { panic!("it waits") };
    assert_eq!(kind(answer), LockErrorKind::NoRuntime);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_after_its_lease_is_none() {
    let lock = Scripted::default();
    lock.delay(Operation::Acquire, Duration::ZERO, LEASE);
    let locks = locks(lock.clone());
    let answer = locks.try_lock(&key()).await;
    assert_eq!(kind(answer), LockErrorKind::NoReply);
    advance(MS).await;
    sleep(MS * 100).await;
    assert!(!is_held(&lock.lock, &key()).await);
}
