//! Work under a lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use bellwether::Key;
use bellwether::store::Claim;
use bellwether_lock::{
    Attempt, LocalLock, Lock, LockError, LockErrorKind, LockGuard, LockStatus, LockWait,
    LockedError, Locks, Request, TakeOver, WhenLost, locked,
};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LEASE, MS, NEVER, Operation, SECOND, Scripted, is_held, item, key, locks};

/// Gives the key to another holder, now.
async fn take_over(lock: &LocalLock) {
    let request = Request::new(Claim::new(key()), SECOND * 600);
    let Attempt::Busy(busy) = lock.acquire(request.clone()).await.unwrap() else {
        panic!("the key is free")
    };
    lock.take_over(request, busy.holder.unwrap()).await.unwrap();
}

/// Runs work of ten leases whose lock is taken over at once. Gives the answer, the progress of the
/// work, and whether the work could detect the loss.
async fn taken_over(when_lost: WhenLost) -> (Result<(), LockErrorKind>, bool, Duration, bool) {
    let lock = LocalLock::new();
    let locks = locks(lock.clone()).when_lost(when_lost);
    let steps = AtomicUsize::new(0);
    let saw = AtomicUsize::new(0);
    let began = Instant::now();
    let work = async {
        take_over(&lock).await;
        sleep(LEASE * 10).await;
        saw.fetch_add(usize::from(LockStatus::current().unwrap().is_lost()), Ordering::SeqCst);
        steps.fetch_add(1, Ordering::SeqCst);
    };
    let answer = locks.run(&key(), work).await.map_err(|error| error.kind());
    let is_done = steps.into_inner() == 1;
    let saw = saw.into_inner() == 1;
    (answer, is_done, began.elapsed(), saw)
}

#[tokio::test(start_paused = true)]
async fn work_whose_lock_is_lost_is_dropped() {
    let (answer, is_done, took, _) = taken_over(WhenLost::Cancel).await;
    assert_eq!((answer, is_done), (Err(LockErrorKind::Lost), false));
    assert!(took <= LEASE / 3 + MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn or_it_is_done_and_fails() {
    let (answer, is_done, took, _) = taken_over(WhenLost::Fail).await;
    assert_eq!((answer, is_done, took), (Err(LockErrorKind::Lost), true, LEASE * 10));
}

#[tokio::test(start_paused = true)]
async fn or_it_is_done_and_can_see_it_for_itself() {
    assert_eq!(taken_over(WhenLost::Finish).await, (Ok(()), true, LEASE * 10, true));
}

#[tokio::test]
async fn work_that_ends_without_an_await_after_the_loss_fails_too() {
    let lock = LocalLock::new();
    let locks = Locks::builder(lock.clone()).lease(MS * 100).build().unwrap();
    // No other task could run, as in a process that was stopped.
    let work = async { std::thread::sleep(MS * 110) };
    let error = locks.run(&key(), work).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost);
}

static LATE: LazyLock<Locks<LocalLock>> =
    LazyLock::new(|| Locks::builder(LocalLock::new()).lease(MS * 100).build().unwrap());

/// Blocks for longer than its lease, awaits, and writes. As on several threads, no other task has
/// run when the work is polled again.
async fn late_write(writes: &AtomicUsize) {
    std::thread::sleep(MS * 110);
    yield_now().await;
    writes.fetch_add(1, Ordering::SeqCst);
}

/// Polls twice, with no other task in between.
fn polled_twice<T>(run: impl Future<Output = T>) -> Option<T> {
    let mut run = tokio_test::task::spawn(run);
    assert!(run.poll().is_pending());
    match run.poll() {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

#[locked(locks = LATE, key = Key::of("item"))]
async fn late_writer(writes: &AtomicUsize) -> std::io::Result<()> {
    late_write(writes).await;
    Ok(())
}

#[tokio::test]
async fn work_that_blocked_beyond_its_lease_does_not_pass_its_next_await() {
    let writes = Arc::new(AtomicUsize::new(0));
    let is_lost = |error: &LockError| error.kind() == LockErrorKind::Lost;

    let ran = polled_twice(LATE.run(&item(1), late_write(&writes))).expect("it ends");
    assert!(is_lost(&ran.unwrap_err()));

    let called = polled_twice(late_writer(&writes)).expect("it ends");
    assert!(matches!(called, Err(LockedError::Lock(error)) if is_lost(&error)));

    // A holder that waits for the loss by itself.
    let guard = LATE.lock(&item(3)).await.unwrap();
    let waits = async {
        tokio::select! {
            biased;
            () = guard.lost() => {}
            () = late_write(&writes) => {}
        }
    };
    polled_twice(waits).expect("it ends");
    assert_eq!(writes.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn work_whose_wait_for_the_lock_ends_does_not_begin() {
    let locks = locks(LocalLock::new()).wait(LockWait::fail_fast());
    let _held = locks.lock(&key()).await.unwrap();
    let error = locks.run(&key(), async { panic!("it began") }).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Busy);
    assert!(LockStatus::current().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_standing_is_that_of_the_innermost_lock() {
    let locks = locks(LocalLock::new());
    let standing = |number: u64| async move {
        assert_eq!(LockStatus::current().unwrap().key(), &item(number));
    };
    let nested = async {
        standing(1).await;
        locks.run(&item(2), standing(2)).await.unwrap();
        standing(1).await;
    };
    locks.run(&item(1), nested).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_ran_under_a_lock_has_released_it_when_it_returns() {
    let lock = Scripted::default();
    lock.delay(Operation::Release, MS * 5, MS * 5);
    let locks = locks(lock.clone());
    for _ in 0..10 {
        locks.run(&key(), async {}).await.unwrap();
        assert!(!is_held(&lock.lock, &key()).await);
    }
}

/// The release goes on without its caller.
#[tokio::test(start_paused = true)]
async fn a_caller_that_is_dropped_while_its_lock_is_released_leaves_nothing() {
    let lock = Scripted::default();
    lock.delay(Operation::Release, MS * 20, MS * 20);
    let locks = locks(lock.clone());
    let (done, is_done) = (AtomicUsize::new(0), |done: &AtomicUsize| done.load(Ordering::SeqCst));
    let key = key();
    let run = locks.run(&key, async { done.fetch_add(1, Ordering::SeqCst) });
    assert!(timeout(MS * 10, run).await.is_err());
    assert!(is_done(&done) == 1 && is_held(&lock.lock, &key).await);
    sleep(MS * 20).await;
    assert!(lock.lock.is_empty());
}

/// It is waited for as long as `LockGuard::release` waits, and the answer is given.
#[tokio::test(start_paused = true)]
async fn a_release_that_fails_costs_a_run_a_moment_and_not_its_answer() {
    for hangs in [false, true] {
        let lock = Scripted::default();
        let locks = locks(lock.clone());
        match hangs {
            false => lock.fail(Operation::Release, LockErrorKind::Unreachable, usize::MAX),
            true => lock.delay(Operation::Release, NEVER, NEVER),
        }
        let began = Instant::now();
        assert_eq!(locks.run(&key(), async { 41 }).await.unwrap(), 41);
        assert!(began.elapsed() <= SECOND * 6, "{:?}", began.elapsed());
    }
}

/// Between the last renewal and the end, which its release finds out.
#[tokio::test(start_paused = true)]
async fn work_whose_lock_was_taken_away_unseen_fails_all_the_same() {
    for (when_lost, is_answered) in
        [(WhenLost::Cancel, false), (WhenLost::Fail, false), (WhenLost::Finish, true)]
    {
        let lock = LocalLock::new();
        let locks = locks(lock.clone()).when_lost(when_lost);
        let ran = locks.run(&key(), take_over(&lock)).await;
        assert_eq!(ran.is_ok(), is_answered, "{when_lost:?}: {ran:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_dropped_gives_up_its_lock() {
    let lock = LocalLock::new();
    let locks = locks(lock.clone());
    let work = tokio::spawn(async move { locks.run(&key(), std::future::pending::<()>()).await });
    sleep(SECOND).await;
    assert!(is_held(&lock, &key()).await);
    work.abort();
    sleep(MS).await;
    assert!(lock.is_empty());
}

#[test]
fn what_is_held_can_be_sent_and_awaited_anywhere() {
    fn is_send_and_sync<T: Send + Sync + 'static>() {}
    fn is_send<T: Send>(_: T) {}
    is_send_and_sync::<LockGuard<LocalLock>>();
    is_send_and_sync::<Locks<LocalLock>>();
    is_send_and_sync::<LockStatus>();
    let locks = locks(LocalLock::new());
    is_send(async move {
        let held = locks.lock_all([key()]).await.unwrap().remove(0);
        held.lost().await;
        held.release().await.unwrap();
        locks.run(&key(), async {}).await.unwrap();
        locks.shutdown(SECOND).await
    });
}
