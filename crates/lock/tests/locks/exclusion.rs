//! One holder at a time, however many callers there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bellwether::Key;
use bellwether_lock::{LocalLock, LockErrorKind, Released};
use futures_util::future::join_all;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{MS, Operation, SECOND, Scripted, item, key, kind, locks};

/// Case 1.
#[tokio::test(start_paused = true)]
async fn a_key_is_locked_and_unlocked_twice_in_a_row() {
    let locks = locks(LocalLock::new());
    for _ in 0..2 {
        let held = locks.lock(&key()).await.unwrap();
        assert_eq!(held.release().await.unwrap(), Released::Freed);
    }
}

/// Case 2.
#[tokio::test(start_paused = true)]
async fn a_second_try_while_it_is_held_is_busy_at_once() {
    let lock = LocalLock::new();
    let here = locks(lock.clone());
    let there = locks(lock);
    let _held = here.lock(&key()).await.unwrap();
    let began = Instant::now();
    assert_eq!(kind(here.try_lock(&key()).await), LockErrorKind::Busy);
    assert_eq!(kind(there.try_lock(&key()).await), LockErrorKind::Busy);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Case 3.
#[tokio::test(start_paused = true)]
async fn two_names_are_independent() {
    let locks = locks(LocalLock::new());
    let _one = locks.try_lock(&item(1)).await.unwrap();
    let _other = locks.try_lock(&item(2)).await.unwrap();
}

/// Cases 4 and 5.
#[tokio::test]
async fn of_a_hundred_tasks_that_try_at_once_one_obtains() {
    let lock = LocalLock::new();
    let fleet: Vec<_> = (0..10).map(|_| locks(lock.clone())).collect();
    let keys = key();
    let tries = (0..100).map(|number| fleet[number % 10].try_lock(&keys));
    let obtained: Vec<_> = join_all(tries).await.into_iter().filter_map(Result::ok).collect();
    assert_eq!(obtained.len(), 1);
}

/// Runs so many tasks in so many processes, each counting in a critical section, and returns the
/// count and the most tasks in it at once.
async fn count(processes: usize, tasks: usize, rounds: usize, work: Duration) -> (u64, usize) {
    let lock = LocalLock::new();
    let counter = Arc::new(AtomicU64::new(0));
    let inside = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let last_fence = Arc::new(AtomicU64::new(0));
    let mut all = JoinSet::new();
    for _ in 0..processes {
        let locks = locks(lock.clone());
        for _ in 0..tasks {
            let locks = locks.clone();
            let counter = Arc::clone(&counter);
            let inside = Arc::clone(&inside);
            let most = Arc::clone(&most);
            let last_fence = Arc::clone(&last_fence);
            all.spawn(async move {
                for _ in 0..rounds {
                    let held = locks.lock(&key()).await.unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let read = counter.load(Ordering::SeqCst);
                    match work.is_zero() {
                        true => yield_now().await,
                        false => sleep(work).await,
                    }
                    counter.store(read + 1, Ordering::SeqCst);
                    let before = last_fence.swap(held.fence(), Ordering::SeqCst);
                    assert!(before < held.fence(), "{} came after {before}", held.fence());
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(held);
                }
            });
        }
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
    (counter.load(Ordering::SeqCst), most.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_processes_of_eight_tasks_count_exactly() {
    assert_eq!(count(8, 8, 150, Duration::ZERO).await, (9_600, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes 10 s, and says no more than a part of the rounds"]
async fn eight_processes_of_eight_tasks_count_a_thousand_rounds_each_exactly() {
    assert_eq!(count(8, 8, 1_000, Duration::ZERO).await, (64_000, 1));
}

/// Case 6, on two names at once.
#[tokio::test(start_paused = true)]
async fn an_unprotected_counter_is_exact_on_two_names_at_once() {
    let lock = LocalLock::new();
    let counters = [AtomicU64::new(0), AtomicU64::new(0)];
    let rounds = (0..8).map(|task| {
        let locks = locks(lock.clone());
        let counter = &counters[task % 2];
        async move {
            for _ in 0..100 {
                let _held = locks.lock(&item(task as u64 % 2)).await.unwrap();
                let read = counter.load(Ordering::SeqCst);
                sleep(MS).await;
                counter.store(read + 1, Ordering::SeqCst);
            }
        }
    });
    join_all(rounds).await;
    assert_eq!(counters.map(AtomicU64::into_inner), [400, 400]);
}

/// Case 7.
#[tokio::test(start_paused = true)]
async fn sixteen_clients_of_a_hundred_rounds_of_10_ms_make_1600() {
    assert_eq!(count(16, 1, 100, MS * 10).await, (1_600, 1));
}

/// Case 8.
#[tokio::test(start_paused = true)]
async fn a_hundred_in_parallel_are_never_two_and_all_are_done() {
    let done = timeout(SECOND * 30, count(10, 10, 1, MS * 50)).await;
    assert_eq!(done.unwrap(), (100, 1));
}

/// Case 51.
#[tokio::test(start_paused = true)]
async fn two_tasks_of_one_process_exclude_each_other() {
    let locks = locks(LocalLock::new());
    let held = locks.lock(&key()).await.unwrap();
    let other = locks.clone();
    let waits = tokio::spawn(async move { other.lock(&key()).await.unwrap() });
    sleep(SECOND).await;
    assert!(!waits.is_finished());
    drop(held);
    drop(waits.await.unwrap());
}

/// Cases 76 and 78: the names themselves are the contract's check `hostile_names_are_kept_apart`.
#[tokio::test(start_paused = true)]
async fn ambiguous_parts_are_different_locks() {
    let locks = locks(LocalLock::new());
    let _one = locks.try_lock(&Key::of("stock").with("1_2").with("3")).await.unwrap();
    let _two = locks.try_lock(&Key::of("stock").with("1").with("2_3")).await.unwrap();
    let _three = locks.try_lock(&Key::of("stock").with("1_2_3")).await.unwrap();
    let long = "x".repeat(100_000);
    let _four = locks.try_lock(&Key::of("stock").with(long.as_str())).await.unwrap();
}

/// The requests to the lock grow with the processes, and not with the waiters in them.
#[tokio::test(start_paused = true)]
async fn of_a_thousand_that_wait_in_one_process_one_asks() {
    let lock = Scripted::default();
    let held = locks(lock.clone()).lock(&key()).await.unwrap();
    let waiting = locks(lock.clone());
    let asked = lock.asked(Operation::Acquire);
    let all: Vec<_> = (0..1_000)
        .map(|_| {
            let locks = waiting.clone();
            tokio::spawn(async move { drop(locks.lock(&key()).await.unwrap()) })
        })
        .collect();
    sleep(MS * 100).await;
    assert_eq!(lock.asked(Operation::Acquire), asked + 1);
    drop(held);
    join_all(all).await;
    let asked = lock.asked(Operation::Acquire) - asked;
    assert!(asked <= 1_002, "{asked} requests for 1000 locks");
}
