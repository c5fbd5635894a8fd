//! One holder at a time, however many callers there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bellwether_lock::{LocalLock, LockErrorKind};
use futures_util::future::join_all;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};

use crate::support::{MS, Operation, SECOND, Scripted, key, kind, locks};

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
async fn count(processes: usize, tasks: usize, rounds: usize) -> (u64, usize) {
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
                    yield_now().await;
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

/// Cases 6, 7 and 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_processes_of_eight_tasks_count_exactly() {
    assert_eq!(count(8, 8, 150).await, (9_600, 1));
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
