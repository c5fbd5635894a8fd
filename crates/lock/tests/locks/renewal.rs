//! How a lock is renewed, and how its holder is notified of a loss.

use std::thread;
use std::time::Duration;

use bellwether_lock::{
    Fenced, LocalLock, Lock, LockErrorKind, LockGuard, LockWait, Locks, Released, WhenLost,
};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::support::{
    LEASE, MS, NEVER, Operation, Remote, SECOND, Scripted, is_held, item, key, kind, locks,
    locks_by, seize,
};

/// When it is lost, from now on.
async fn lost_after<L: Lock>(held: &LockGuard<L>, most: Duration) -> Duration {
    let began = Instant::now();
    timeout(most, held.lost()).await.expect("it is not lost");
    assert!(held.is_lost());
    began.elapsed()
}

/// Cases 19 and 25.
#[tokio::test(start_paused = true)]
async fn a_busy_holder_is_kept_for_ten_leases() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    for _ in 0..10 {
        sleep(LEASE).await;
        assert!(is_held(&lock.lock, &key()).await && !held.is_lost());
    }
    let renewals = lock.asked(Operation::Renew);
    assert!((29..=31).contains(&renewals), "{renewals} renewals in ten leases");
    assert_eq!(held.release().await.unwrap(), Released::Freed);
}

/// Case 20, as far as a process can do it to itself: its runtime goes, and nothing is renewed.
#[test]
fn when_the_runtime_goes_it_is_lost_and_free_within_a_lease() {
    let lock = LocalLock::new();
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let one = runtime();
    let short = Locks::builder(lock).lease(MS * 300).build().unwrap();
    let held = one.block_on(short.lock(&key())).unwrap();
    assert!(!held.is_lost());
    drop(one);
    assert!(held.is_lost());
    let other = runtime();
    other.block_on(async {
        assert!(held.lost().now_or_never().is_some());
        assert_eq!(held.release().await.unwrap(), Released::NotHeld);
        let held = timeout(SECOND * 2, short.lock(&key())).await.unwrap().unwrap();
        assert_eq!(held.release().await.unwrap(), Released::Freed);
    });
}

/// Case 21: the server has lost its memory.
#[tokio::test(start_paused = true)]
async fn a_lock_that_the_server_forgot_is_lost_and_the_next_one_is_kept() {
    let lock = LocalLock::new();
    let locks = locks(lock.clone());
    let held = locks.lock(&key()).await.unwrap();
    forget(&lock, &held).await;
    let took = lost_after(&held, LEASE).await;
    assert!(took <= LEASE / 3 + MS, "{took:?}");
    // Although the guard that has lost it still exists.
    let next = locks.lock(&key()).await.unwrap();
    assert!(next.fence() > held.fence());
    assert_eq!(held.release().await.unwrap(), Released::NotHeld);
    sleep(LEASE * 3).await;
    assert!(!next.is_lost() && is_held(&lock, &key()).await);
}

/// Takes a key away from its holder.
async fn forget<L: Fenced>(lock: &LocalLock, held: &LockGuard<L>) {
    use bellwether::store::Claim;
    use bellwether_lock::{Attempt, Request, TakeOver};
    let claim = Claim::new(held.key().clone());
    let request = Request::new(claim.clone(), SECOND);
    let Attempt::Busy(busy) = lock.acquire(request.clone()).await.unwrap() else {
        panic!("the key is free")
    };
    lock.take_over(request, busy.holder.unwrap()).await.unwrap();
    lock.release(claim).await.unwrap();
}

/// Long before its next renewal.
#[tokio::test(start_paused = true)]
async fn a_holder_whose_key_was_taken_over_is_notified_at_once() {
    let lock = LocalLock::new();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    sleep(LEASE / 4).await;
    forget(&lock, &held).await;
    assert_eq!(lost_after(&held, LEASE).await, Duration::ZERO);
}

/// Case 23.
#[tokio::test(start_paused = true)]
async fn a_hold_is_kept_whatever_else_comes_and_goes() {
    let lock = LocalLock::new();
    let locks = locks(lock.clone());
    let kept = locks.lock(&item(u64::MAX)).await.unwrap();
    let churn = (0..16).map(|task| {
        let locks = locks.clone();
        async move {
            for round in 0..300 {
                if let Ok(held) = locks.try_lock(&item((task * round) % 5)).await {
                    sleep(Duration::from_millis(round % 50)).await;
                    drop(held);
                }
                sleep(MS * 10).await;
            }
        }
    });
    join_all(churn).await;
    sleep(LEASE * 3).await;
    assert!(!kept.is_lost() && is_held(&lock, kept.key()).await);
    drop(kept);
    assert_eq!(locks.shutdown(SECOND).await, 0);
    assert!(lock.is_empty() && locks.is_empty());
}

/// Case 26.
#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_at_once_and_found_by_one_request() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    forget(&lock.lock, &held).await;
    let took = lost_after(&held, LEASE).await;
    assert!(took <= LEASE / 3 + MS, "{took:?}");
    sleep(LEASE * 3).await;
    assert_eq!(lock.asked(Operation::Renew), 1);
}

/// Case 26.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_tried_again() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    for kind in [LockErrorKind::Unreachable, LockErrorKind::Refused] {
        lock.fail(Operation::Renew, kind, 3);
        sleep(LEASE * 2).await;
        assert!(!held.is_lost() && is_held(&lock.lock, &key()).await);
    }
}

/// Cases 26 and 27: it holds the key until its lease ends by its own clock.
#[tokio::test(start_paused = true)]
async fn a_lock_that_cannot_be_renewed_is_lost_at_its_own_end_and_not_before() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    lock.fail(Operation::Renew, LockErrorKind::Unreachable, usize::MAX);
    sleep(LEASE * 9 / 10).await;
    assert!(!held.is_lost() && is_held(&lock.lock, &key()).await);
    assert_eq!(lock.asked(Operation::Release), 0);
    let took = lost_after(&held, LEASE).await + LEASE * 9 / 10;
    assert!(took < LEASE && took > LEASE * 98 / 100, "{took:?} of {LEASE:?}");
}

/// A renewal whose answer comes late counts from when it was asked for.
#[tokio::test(start_paused = true)]
async fn a_lease_is_counted_from_before_the_request() {
    let lock = Scripted::default();
    lock.delay(Operation::Acquire, Duration::ZERO, LEASE / 2);
    lock.fail(Operation::Renew, LockErrorKind::Unreachable, usize::MAX);
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    let took = lost_after(&held, LEASE).await;
    assert!(took < LEASE / 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_does_not_hide_the_end() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    lock.delay(Operation::Renew, NEVER, NEVER);
    let took = lost_after(&held, LEASE * 2).await;
    assert!(took <= LEASE, "{took:?}");
}

/// Case 28.
#[tokio::test(start_paused = true)]
async fn after_the_longest_hold_it_is_lost_and_then_free() {
    let lock = LocalLock::new();
    let locks = locks_by(lock.clone(), |it| it.max_hold(LEASE * 5));
    let held = locks.lock(&key()).await.unwrap();
    assert_eq!(lost_after(&held, LEASE * 6).await, LEASE * 5);
    let began = Instant::now();
    let next = locks.lock(&key()).await.unwrap();
    assert!(began.elapsed() <= LEASE, "{:?}", began.elapsed());
    assert_eq!(held.release().await.unwrap(), Released::NotHeld);
    assert!(!next.is_lost());
}

/// A job that is stopped has to find the option that stopped it.
#[tokio::test(start_paused = true)]
async fn work_that_outlasts_the_longest_hold_is_stopped_in_the_name_of_the_option() {
    for when_lost in [WhenLost::Cancel, WhenLost::Fail] {
        let locks = Locks::new(LocalLock::new()).when_lost(when_lost);
        let error = locks.run(&key(), sleep(SECOND * 601)).await.expect_err("it is too long");
        assert_eq!(error.kind(), LockErrorKind::Lost);
        assert!(error.to_string().contains("`max_hold`, 600s"), "{error}");
    }
}

/// While three other workers have nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_holder_that_blocks_its_worker_keeps_its_lock() {
    let locks = Locks::builder(LocalLock::new()).lease(SECOND * 2).build().unwrap();
    let blocks = tokio::spawn(async move {
        let held = locks.lock(&key()).await.unwrap();
        while !held.is_lost() && locks.stats().renewed < 3 {
            thread::sleep(MS);
        }
        held.is_lost()
    });
    assert!(!blocks.await.unwrap(), "no other worker renewed it");
}

/// Case 28, of a lock that knows no leases.
#[tokio::test(start_paused = true)]
async fn after_the_longest_hold_a_session_gives_it_up() {
    let (lock, _session) = Scripted::by_session();
    let locks = locks_by(lock.clone(), |it| it.max_hold(LEASE * 5));
    let held = locks.lock(&key()).await.unwrap();
    assert_eq!(lost_after(&held, LEASE * 6).await, LEASE * 5);
    sleep(LEASE + MS).await;
    assert!(!is_held(&lock.lock, &key()).await);
}

/// Cases 54 and 62.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_is_reported_at_once() {
    let (lock, session) = Scripted::by_session();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    sleep(LEASE * 4).await;
    assert!(!held.is_lost());
    session.send_replace(Some(Instant::now()));
    assert_eq!(lost_after(&held, SECOND).await, Duration::ZERO);
    drop(held);
}

/// Case 56.
#[tokio::test(start_paused = true)]
async fn a_grant_by_a_session_that_has_ended_is_none() {
    let (lock, session) = Scripted::by_session();
    drop(session);
    let answer = locks(lock).lock(&key()).await;
    assert_eq!(kind(answer), LockErrorKind::Unreachable);
}

/// Case 62.
#[tokio::test(start_paused = true)]
async fn a_release_is_no_loss() {
    let locks = locks(LocalLock::new());
    let held = locks.lock(&key()).await.unwrap();
    let status = held.status();
    held.release().await.unwrap();
    assert!(!status.is_lost());
    assert!(timeout(NEVER, status.lost()).await.is_err());
}

/// Case 63.
#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_to_a_caller_that_asks_after_it() {
    let lock = LocalLock::new();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    forget(&lock, &held).await;
    sleep(LEASE).await;
    assert!(held.is_lost() && held.lost().now_or_never().is_some());
}

/// Stopped past its lease: the flag is right before any other task could run.
#[tokio::test]
async fn a_process_that_was_stopped_past_its_lease_knows_at_once() {
    let lock = Remote(LocalLock::new());
    let locks = Locks::builder(lock.clone()).lease(MS * 100).build().unwrap();
    let held = locks.lock(&key()).await.unwrap();
    thread::sleep(MS * 120);
    assert!(held.is_lost());
    let other = Locks::new(lock).wait(LockWait::fail_fast());
    let next = other.lock(&key()).await.unwrap();
    assert!(next.fence() > held.fence());
    assert_eq!(held.release().await.unwrap(), Released::NotHeld);
}

/// Case 18, for callers in other processes.
#[tokio::test(start_paused = true)]
async fn others_are_given_the_remaining_lease() {
    let lock = LocalLock::new();
    seize(&lock, &key(), SECOND * 10).await;
    advance(SECOND).await;
    use bellwether::store::Claim;
    use bellwether_lock::{Attempt, Request};
    let request = Request::new(Claim::new(key()), SECOND);
    let Attempt::Busy(busy) = lock.acquire(request).await.unwrap() else { panic!("it is free") };
    assert_eq!(busy.remaining, Some(SECOND * 9));
}

/// Case 80.
#[tokio::test(start_paused = true)]
async fn fences_grow_over_releases_and_losses() {
    let lock = LocalLock::new();
    let locks = locks(lock.clone());
    let mut last = 0;
    for round in 0..12 {
        let held = locks.lock(&key()).await.unwrap();
        assert!(held.fence() > last, "{} came after {last}", held.fence());
        last = held.fence();
        match round % 3 {
            0 => drop(held),
            1 => forget(&lock, &held).await,
            _ => sleep(LEASE * 2).await,
        }
        sleep(LEASE).await;
    }
}
