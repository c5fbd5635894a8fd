//! How a lock ends: by whatever ends its holder.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bellwether::store::Claim;
use bellwether_lock::{LocalLock, Lock, LockErrorKind, Locks, Released};
use futures_util::FutureExt;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    LEASE, MS, NEVER, Operation, SECOND, Scripted, is_held, item, key, kind, locks, locks_by, seize,
};

/// Case 9.
#[tokio::test(start_paused = true)]
async fn another_claim_cannot_release() {
    let lock = LocalLock::new();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    assert_eq!(lock.release(Claim::new(key())).await.unwrap(), Released::NotHeld);
    sleep(LEASE * 2).await;
    assert!(!held.is_lost() && is_held(&lock, &key()).await);
}

/// Cases 10, 11 and 14.
#[tokio::test(start_paused = true)]
async fn a_late_release_leaves_the_key_to_its_new_holder() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    lock.fail(Operation::Renew, LockErrorKind::Unreachable, usize::MAX);
    sleep(LEASE).await;
    let theirs = seize(&lock.lock, &key(), SECOND * 60).await;
    assert_eq!(held.release().await.unwrap(), Released::NotHeld);
    assert_eq!(lock.lock.release(theirs).await.unwrap(), Released::Freed);
}

/// Case 12: there is no second release, as the first one takes the guard.
#[tokio::test(start_paused = true)]
async fn a_release_is_asked_for_once() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    held.release().await.unwrap();
    sleep(LEASE).await;
    assert_eq!(lock.asked(Operation::Release), 1);
}

/// Case 15.
#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_was_lost_has_the_same_answer_again() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    lock.fail(Operation::Release, LockErrorKind::NoReply, 2);
    assert_eq!(held.release().await.unwrap(), Released::Freed);
    assert_eq!(lock.asked(Operation::Release), 3);
}

/// Case 74, for locks of one server.
#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_reported_soon_and_goes_on() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    lock.fail(Operation::Release, LockErrorKind::Unreachable, 9);
    let began = Instant::now();
    let error = held.release().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unreachable);
    assert!(began.elapsed() <= SECOND * 2, "{:?}", began.elapsed());
    sleep(SECOND * 2).await;
    assert!(!is_held(&lock.lock, &key()).await);
}

/// Cases 53 and 88.
#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_frees_its_key() {
    let lock = LocalLock::new();
    let locks = locks(lock.clone());
    drop(locks.lock(&key()).await.unwrap());
    // The next caller of this process waits until the key is free, and needs no message.
    let began = Instant::now();
    let next = locks.lock(&key()).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop(next);
    yield_now().await;
    yield_now().await;
    assert!(lock.is_empty() && locks.is_empty());
}

/// Case 88.
#[tokio::test(start_paused = true)]
async fn a_panic_frees_the_key() {
    let lock = LocalLock::new();
    let locks = locks(lock.clone());
    let panics = async {
        let _held = locks.lock(&key()).await.unwrap();
        panic!("on purpose");
    };
    assert!(AssertUnwindSafe(panics).catch_unwind().await.is_err());
    sleep(MS).await;
    assert!(lock.is_empty() && locks.is_empty());
}

/// Cases 22 and 88: dropped after each number of polls, while request and answer are delayed.
#[tokio::test(start_paused = true)]
async fn dropped_at_any_await_it_is_soon_free_and_never_renewed() {
    for is_held_by_others in [false, true] {
        for dropped_after in 0..40 {
            let lock = Scripted::default();
            lock.delay(Operation::Acquire, MS * 5, MS * 5);
            lock.delay(Operation::Release, MS * 3, MS * 3);
            let locks = locks(lock.clone());
            if is_held_by_others {
                seize(&lock.lock, &key(), MS * 15).await;
            }
            let _ = timeout(MS * dropped_after, async {
                let held = locks.lock(&key()).await.unwrap();
                sleep(MS * 5).await;
                held.release().await.unwrap();
            })
            .await;
            sleep(SECOND * 4).await;
            let place = format!("after {dropped_after} ms, {is_held_by_others}");
            assert!(lock.lock.is_empty() && locks.is_empty(), "{place}");
            assert_eq!(lock.asked(Operation::Renew), 0, "{place}");
        }
    }
}

/// A release that overtakes its request, as on another connection, is repeated.
#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_the_release_is_released_too() {
    let lock = Scripted::default();
    lock.delay(Operation::Acquire, MS * 200, Duration::ZERO);
    let locks = locks(lock.clone());
    assert!(timeout(MS * 50, locks.lock(&key())).await.is_err());
    sleep(MS * 300).await;
    assert!(is_held(&lock.lock, &key()).await, "the request arrived");
    sleep(LEASE).await;
    assert!(lock.lock.is_empty());
}

/// A try that was refused has left nothing, and costs no release.
#[tokio::test(start_paused = true)]
async fn a_refused_caller_releases_nothing() {
    let lock = Scripted::default();
    let _held = locks(lock.clone()).lock(&key()).await.unwrap();
    let other = locks(lock.clone());
    assert_eq!(kind(other.try_lock(&key()).await), LockErrorKind::Busy);
    sleep(LEASE).await;
    assert_eq!(lock.asked(Operation::Release), 0);
}

/// Case 88.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_holders_and_takes_what_they_keep() {
    let lock = LocalLock::new();
    let locks = locks(lock.clone());
    let brief = locks.lock(&item(1)).await.unwrap();
    let kept = locks.lock(&item(2)).await.unwrap();
    let waits = tokio::spawn({
        let locks = locks.clone();
        async move { kind(locks.lock(&item(2)).await) }
    });
    sleep(SECOND).await;
    let gives_up = tokio::spawn(async move {
        sleep(SECOND).await;
        drop(brief);
    });
    let began = Instant::now();
    assert_eq!(locks.shutdown(SECOND * 3).await, 1);
    assert_eq!(began.elapsed(), SECOND * 3);
    assert_eq!(waits.await.unwrap(), LockErrorKind::ShutDown);
    gives_up.await.unwrap();
    assert!(kept.is_lost() && lock.is_empty());
    assert_eq!(kept.release().await.unwrap(), Released::NotHeld);
    assert_eq!(kind(locks.clone().try_lock(&key()).await), LockErrorKind::ShutDown);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_with_nothing_held_ends_at_once() {
    let locks = locks(LocalLock::new());
    drop(locks.lock(&key()).await.unwrap());
    let began = Instant::now();
    assert_eq!(locks.shutdown(NEVER).await, 0);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Case 53: a guard that is leaked has an end too.
#[tokio::test(start_paused = true)]
async fn a_guard_that_is_forgotten_is_free_after_the_longest_hold() {
    let lock = LocalLock::new();
    let locks = locks_by(lock.clone(), |it| it.max_hold(SECOND * 60));
    std::mem::forget(locks.lock(&key()).await.unwrap());
    let next = timeout(SECOND * 60 + LEASE, locks.lock(&key())).await;
    assert!(next.unwrap().is_ok());
}

/// Its own release is waited for; another holder is not.
#[tokio::test(start_paused = true)]
async fn a_try_waits_for_what_its_own_process_gives_up_and_for_nothing_else() {
    let lock = Scripted::default();
    lock.delay(Operation::Release, MS * 40, MS * 40);
    let locks = locks(lock.clone());
    for _ in 0..100 {
        drop(locks.try_lock(&key()).await.expect("it is given up"));
    }
    let _held = locks.try_lock(&key()).await.expect("it is given up");
    let began = Instant::now();
    assert_eq!(kind(locks.try_lock(&key()).await), LockErrorKind::Busy);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// A claim that is dropped while it asks may have been granted.
#[tokio::test(start_paused = true)]
async fn a_try_after_one_that_was_dropped_while_it_asked_is_granted() {
    let lock = Scripted::default();
    lock.delay(Operation::Acquire, Duration::ZERO, MS * 40);
    lock.delay(Operation::Release, MS * 20, MS * 20);
    let locks = locks(lock.clone());
    assert!(timeout(MS * 20, locks.lock(&key())).await.is_err());
    locks.try_lock(&key()).await.expect("it is given up").release().await.unwrap();
}

/// It is lost after the longest hold, and still held on the server.
#[tokio::test(start_paused = true)]
async fn a_try_after_a_lost_hold_was_dropped_waits_for_its_release() {
    let lock = Scripted::default();
    lock.delay(Operation::Release, MS * 20, MS * 20);
    let locks = locks_by(lock.clone(), |it| it.max_hold(LEASE));
    let held = locks.lock(&key()).await.unwrap();
    held.lost().await;
    drop(held);
    locks.try_lock(&key()).await.expect("it is given up").release().await.unwrap();
}

/// A lock that does not answer delays a try by its timeout at most.
#[tokio::test(start_paused = true)]
async fn a_release_that_hangs_holds_up_a_try_for_a_few_seconds_only() {
    let lock = Scripted::default();
    let locks = locks(lock.clone());
    let held = locks.lock(&key()).await.unwrap();
    lock.delay(Operation::Release, NEVER, NEVER);
    drop(held);
    let began = Instant::now();
    assert_eq!(kind(locks.try_lock(&key()).await), LockErrorKind::Unreleased);
    assert!(began.elapsed() <= SECOND * 6, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_holds_up_a_try_for_as_long_as_it_is_waited_for() {
    let lock = Scripted::default();
    let locks = locks(lock.clone());
    let held = locks.lock(&key()).await.unwrap();
    lock.fail(Operation::Release, LockErrorKind::Unreachable, usize::MAX);
    drop(held);
    let began = Instant::now();
    assert_eq!(kind(locks.try_lock(&key()).await), LockErrorKind::Unreleased);
    assert!(began.elapsed() <= SECOND * 2, "{:?}", began.elapsed());
}

/// The release of a dropped guard begins after the first of these tries.
#[tokio::test]
async fn all_locks_over_one_handle_wait_for_each_others_releases() {
    let lock = LocalLock::new();
    let [here, there] = [Locks::new(lock.clone()), Locks::new(lock)];
    for _ in 0..100 {
        drop(here.try_lock(&key()).await.unwrap());
        drop(there.try_lock(&key()).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_or_has_not_ended_is_not_said_to_be_another_holder() {
    for hangs in [false, true] {
        let lock = Scripted::default();
        let locks = locks_by(lock.clone(), |it| it.lease(SECOND * 10));
        let held = locks.lock(&key()).await.unwrap();
        assert_eq!(kind(locks.try_lock(&key()).await), LockErrorKind::Busy);
        match hangs {
            false => lock.fail(Operation::Release, LockErrorKind::NoReply, usize::MAX),
            true => lock.delay(Operation::Release, NEVER, NEVER),
        }
        drop(held);
        for _ in 0..2 {
            assert_eq!(kind(locks.try_lock(&key()).await), LockErrorKind::Unreleased);
        }
        if !hangs {
            // The lease ends what could not be released.
            sleep(SECOND * 12).await;
            drop(locks.try_lock(&key()).await.unwrap());
        }
    }
}
