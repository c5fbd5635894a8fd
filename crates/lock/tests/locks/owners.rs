//! Holders that come again, holders that are silent, and several keys at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use bellwether::store::Claim;
use bellwether_lock::{
    Attempt, LocalLock, Lock, LockErrorKind, LockWait, Locks, Owner, Released, Request, TakeOver,
    conformance::Conformance,
};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::support::reentrant::ReentrantLocal;
use crate::support::{
    LEASE, MS, Operation, Remote, SECOND, Scripted, is_held, item, key, kind, locks, locks_by,
    seize,
};

#[tokio::test(start_paused = true)]
async fn what_these_tests_take_again_keeps_the_contract() {
    let lock = ReentrantLocal::default();
    // Its leases do not lapse.
    let lapsing = Conformance::of(lock.clone()).run().await;
    assert!(lapsing.iter().all(|it| it.check.contains("lease")), "{lapsing:?}");
    assert_eq!(Conformance::of(lock.clone()).reentrant().run().await, lapsing);
    let exclusive = Conformance::of(lock).exclusive().run().await;
    assert_eq!(exclusive.len(), lapsing.len() + 1, "{exclusive:?}");
}

/// Cases 47, 48 and 81.
#[tokio::test(start_paused = true)]
async fn an_owner_takes_it_again_and_others_wait_for_its_last_release() {
    let lock = ReentrantLocal::default();
    let ours = locks(lock.clone()).owned_by(Owner::new());
    let outer = ours.lock(&key()).await.unwrap();
    let inner = ours.try_lock(&key()).await.unwrap();
    assert_eq!((lock.holds(&key()), outer.fence()), (2, inner.fence()));
    let others = [ours.clone().owned_by(Owner::new()), locks(lock.clone()).owned_by(Owner::new())];
    for held in [inner, outer] {
        for other in &others {
            assert_eq!(kind(other.try_lock(&key()).await), LockErrorKind::Busy);
        }
        held.release().await.unwrap();
    }
    assert_eq!(lock.holds(&key()), 0);
    others[0].try_lock(&key()).await.unwrap().release().await.unwrap();
}

/// The last one comes when the key is free for a moment.
#[tokio::test(start_paused = true)]
async fn rivals_with_owners_keep_their_order() {
    let lock = ReentrantLocal::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    let process = locks(lock);
    let order = Mutex::new(Vec::new());
    let rivals = (0..5).map(async |number| {
        sleep(MS * 2 * number).await;
        let held = process.clone().owned_by(Owner::new()).lock(&key()).await.unwrap();
        order.lock().unwrap().push(number);
        held.release().await.unwrap();
    });
    let releases = async {
        sleep(MS * 8).await;
        held.release().await.unwrap();
    };
    tokio::join!(releases, join_all(rivals));
    assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4]);
}

/// Case 47: calls that call calls, each with a guard of its own.
#[tokio::test(start_paused = true)]
async fn a_chain_of_calls_takes_it_as_often_as_it_is_long() {
    fn call(
        locks: &Locks<Remote<ReentrantLocal>>,
        depth: usize,
    ) -> Pin<Box<dyn Future<Output = usize> + Send + '_>> {
        Box::pin(async move {
            let key = key();
            let _held = locks.lock(&key).await.unwrap();
            if depth == 0 { 1 } else { 1 + call(locks, depth - 1).await }
        })
    }
    let lock = ReentrantLocal::default();
    let locks = locks(lock.clone()).owned_by(Owner::new());
    assert_eq!(call(&locks, 5).await, 6);
    locks.shutdown(SECOND).await;
    assert_eq!(lock.holds(&key()), 0);
}

/// Case 49.
#[tokio::test(start_paused = true)]
async fn an_inner_call_that_fails_does_not_release_the_outer_hold() {
    let lock = LocalLock::new();
    let locks = locks(lock.clone()).wait(LockWait::fail_fast());
    let outer = locks.lock(&key()).await.unwrap();
    assert_eq!(kind(locks.lock(&key()).await), LockErrorKind::Busy);
    sleep(LEASE * 2).await;
    assert!(!outer.is_lost() && is_held(&lock, &key()).await);
}

/// Case 50.
#[tokio::test(start_paused = true)]
async fn a_holder_without_an_owner_blocks_itself_and_one_release_frees_it() {
    let lock = ReentrantLocal::default();
    let locks = locks(lock.clone());
    let held = locks.lock(&key()).await.unwrap();
    assert_eq!(kind(locks.try_lock(&key()).await), LockErrorKind::Busy);
    assert_eq!(held.release().await.unwrap(), Released::Freed);
    assert_eq!(lock.holds(&key()), 0);
}

/// Case 87: alive and renewing.
#[tokio::test(start_paused = true)]
async fn a_holder_that_renews_is_never_taken_over() {
    let lock = LocalLock::new();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    let thief = locks_by(lock.clone(), |it| it.take_over_after(MS * 100));
    let thief = thief.wait(LockWait::at_most(LEASE * 20));
    assert_eq!(kind(thief.lock(&key()).await), LockErrorKind::TimedOut);
    assert!(!held.is_lost());
}

/// Case 87: the wait of the waiter does not count, only the silence of the holder.
#[tokio::test(start_paused = true)]
async fn a_new_holder_is_not_taken_over_by_a_caller_that_waited_long() {
    let lock = LocalLock::new();
    let thief = locks_by(lock.clone(), |it| it.take_over_after(SECOND * 10));
    let key = key();
    seize(&lock, &key, SECOND * 600).await;
    let passes_on = async {
        loop {
            sleep(SECOND * 5).await;
            pass_on(&lock, SECOND * 600).await;
        }
    };
    tokio::select! {
        _ = thief.lock(&key) => panic!("it was taken"),
        _ = timeout(SECOND * 60, passes_on) => {}
    }
}

/// Hands the key to a silent holder, without a moment at which it is seen free.
async fn pass_on(lock: &LocalLock, lease: Duration) {
    let request = Request::new(Claim::new(key()), lease);
    let attempt = lock.acquire(request.clone()).await.unwrap();
    let Attempt::Busy(busy) = attempt else { panic!("it is free") };
    lock.take_over(request, busy.holder.unwrap()).await.unwrap();
}

/// Case 87: the holder is silent, and there are many waiters.
#[tokio::test(start_paused = true)]
async fn a_silent_holder_is_taken_over_by_exactly_one_after_the_time() {
    let lock = Scripted::default();
    let silent = locks(lock.clone()).lock(&key()).await.unwrap();
    let fence = silent.fence();
    // It goes on working, but renews nothing, and its lease would last.
    pass_on(&lock.lock, SECOND * 3_600).await;
    let began = Instant::now();
    let waiting = (0..8).map(|_| {
        let thief = locks_by(lock.lock.clone(), |it| it.take_over_after(SECOND * 5));
        let thief = thief.wait(LockWait::at_most(SECOND * 6));
        async move {
            let held = thief.lock(&key()).await.ok()?;
            let after = began.elapsed();
            sleep(SECOND * 10).await;
            Some((after, held.fence()))
        }
    });
    let won: Vec<_> = join_all(waiting).await.into_iter().flatten().collect();
    let [(after, next)] = won[..] else { panic!("{} took it", won.len()) };
    assert!(after >= SECOND * 5 && after < SECOND * 6 && next > fence, "{after:?}, {next}");
}

/// Case 87: a holder that was taken over is notified.
#[tokio::test(start_paused = true)]
async fn a_holder_that_was_taken_over_is_notified_and_its_release_frees_nothing() {
    let lock = Scripted::default();
    let silent = locks_by(lock.clone(), |it| it.lease(SECOND * 60)).lock(&key()).await.unwrap();
    lock.fail(Operation::Renew, LockErrorKind::Unreachable, 1);
    let thief = locks_by(lock.lock.clone(), |it| it.take_over_after(SECOND * 10));
    let stolen = timeout(SECOND * 11, thief.lock(&key())).await.unwrap().unwrap();
    assert!(stolen.fence() > silent.fence());
    timeout(SECOND * 60, silent.lost()).await.unwrap();
    assert_eq!(silent.release().await.unwrap(), Released::NotHeld);
    assert!(is_held(&lock.lock, &key()).await && !stolen.is_lost());
}

/// Case 75.
#[tokio::test(start_paused = true)]
async fn of_several_keys_all_are_taken_or_none() {
    let lock = LocalLock::new();
    let locks = locks(lock.clone()).wait(LockWait::fail_fast());
    let three = || [item(3), item(1), item(2), item(1)];
    let all = locks.lock_all(three()).await.unwrap();
    assert_eq!((all.len(), lock.len()), (3, 3));
    let overlap = locks.lock_all([item(7), item(2), item(8)]).await.unwrap_err();
    assert_eq!(overlap.kind(), LockErrorKind::Busy);
    drop(all);
    assert_eq!(locks.shutdown(SECOND).await, 0);
    assert!(lock.is_empty());
}

/// Case 86, for what can wait for each other in turn.
#[tokio::test(start_paused = true)]
async fn callers_that_lock_the_same_keys_in_another_order_do_not_deadlock() {
    let lock = LocalLock::new();
    let takes = (0..10).map(|number| {
        let locks = locks(lock.clone());
        let mut keys: Vec<_> = (0..5).map(item).collect();
        keys.rotate_left(number % 5);
        async move {
            for _ in 0..10 {
                let all = locks.lock_all(keys.clone()).await.unwrap();
                sleep(MS).await;
                drop(all);
            }
        }
    });
    timeout(SECOND * 30, join_all(takes)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_of_one_owner_that_wait_together_are_let_in_together() {
    let lock = ReentrantLocal::default();
    let all = locks(lock.clone());
    let ours = all.clone().owned_by(Owner::new());
    let other = all.clone().owned_by(Owner::new()).lock(&key()).await.unwrap();
    let [first, second] = [(); 2].map(|()| {
        let ours = ours.clone();
        tokio::spawn(async move { ours.lock(&key()).await })
    });
    sleep(MS * 10).await;
    other.release().await.unwrap();
    let first = first.await.unwrap().unwrap();
    let second = timeout(SECOND, second).await.expect("its owner holds it");
    assert!(!first.is_lost());
    drop((first, second.unwrap().unwrap()));
}
