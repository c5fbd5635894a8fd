//! `Locks` over it: requests, notifications, and what is left.

use std::time::Duration;

use bellwether_lock::{LockErrorKind, LockWait, Locks, Released, ZooKeeperLock, ZooKeeperOptions};
use bellwether_testkit::faults::FaultProxy;
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::board::{Board, PATIENCE, SESSION, claim, free, key, parent, take};

fn locks_for(lock: ZooKeeperLock, lease: Duration) -> Locks<ZooKeeperLock> {
    let locks = Locks::builder(lock).lease(lease).build();
    locks.expect("a lease").wait(LockWait::at_most(PATIENCE))
}

fn locks(lock: ZooKeeperLock) -> Locks<ZooKeeperLock> {
    Locks::new(lock).wait(LockWait::at_most(PATIENCE))
}

/// Cases 54, 62 and 63.
#[tokio::test]
async fn a_holder_that_is_cut_off_knows_of_the_loss_and_has_a_smaller_fence_than_the_next() {
    let board = Board::start().await;
    let proxy = FaultProxy::start_raw(board.server.address()).await;
    let options = ZooKeeperOptions::new(&proxy.address().to_string(), "test").unwrap();
    let options = options.session_timeout(SESSION);
    let cut_off = locks(ZooKeeperLock::connect(options).await.unwrap());
    let other = locks(board.lock().await);
    let first = cut_off.lock(&key()).await.unwrap();
    assert!(!first.is_lost());
    proxy.blackhole();
    let second = other.lock(&key()).await.unwrap();
    assert!(first.is_lost(), "the next one has it, and the first has not been notified");
    timeout(PATIENCE, first.lost()).await.unwrap();
    assert!(second.fence() > first.fence());
    proxy.heal();
    drop(first);
    assert!(!second.is_lost());
    second.release().await.unwrap();
}

#[tokio::test]
async fn all_locks_over_one_handle_wait_for_each_others_releases() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let [here, there] = [Locks::new(lock.clone()), Locks::new(lock)];
    for _ in 0..10 {
        drop(here.try_lock(&key()).await.unwrap());
        drop(there.try_lock(&key()).await.unwrap());
    }
}

/// Cases 5 and 51.
#[tokio::test]
async fn the_tasks_of_one_process_have_one_node_at_a_time() {
    let board = Board::start().await;
    let locks = locks(board.lock().await);
    let tasks = join_all((0..16).map(|_| async {
        let held = locks.lock(&key()).await.unwrap();
        let nodes = board.nodes(&key()).await.len();
        held.release().await.unwrap();
        nodes
    }));
    assert_eq!(tasks.await, [1; 16]);
}

/// Case 36.
#[tokio::test]
async fn a_caller_that_is_cancelled_leaves_no_node() {
    let board = Board::start().await;
    let holder = board.lock().await;
    let held = claim();
    take(&holder, &held).await;
    let locks = locks(board.lock().await);
    let waiting = locks.clone();
    let caller = tokio::spawn(async move { waiting.lock(&key()).await.map(drop) });
    board.has_queued(&key(), 2).await;
    caller.abort();
    board.has_queued(&key(), 1).await;
    free(&holder, held).await;
}

/// Cases 30 and 31.
#[tokio::test]
async fn a_caller_whose_wait_ends_is_answered_in_time_and_leaves_no_node() {
    let board = Board::start().await;
    let holder = board.lock().await;
    let held = claim();
    take(&holder, &held).await;
    let wait = Duration::from_millis(200);
    let locks = locks(board.lock().await).wait(LockWait::at_most(wait));
    let began = tokio::time::Instant::now();
    let error = locks.lock(&key()).await.unwrap_err();
    let took = began.elapsed();
    assert_eq!(error.kind(), LockErrorKind::TimedOut);
    assert!(took >= wait && took < wait * 2, "it took {took:?}");
    board.has_queued(&key(), 1).await;
    free(&holder, held).await;
}

/// Case 88.
#[tokio::test]
async fn a_panic_gives_the_key_back() {
    let board = Board::start().await;
    let locks = locks(board.lock().await);
    let panicking = locks.clone();
    let task = tokio::spawn(async move {
        let _held = panicking.lock(&key()).await.unwrap();
        panic!("while it is held");
    });
    assert!(task.await.is_err_and(|error| error.is_panic()));
    let next = locks.lock(&key()).await.unwrap();
    next.release().await.unwrap();
    board.has_queued(&key(), 0).await;
}

/// Case 38, as far as it applies: no message arrives, and the session ends meanwhile.
#[tokio::test]
async fn a_caller_waits_out_a_server_that_restarts() {
    let mut board = Board::start().await;
    let holder = board.lock().await;
    let held = claim();
    take(&holder, &held).await;
    let locks = locks(board.lock().await);
    let waiting = locks.clone();
    let caller = tokio::spawn(async move { waiting.lock(&key()).await.map(|held| held.fence()) });
    board.has_queued(&key(), 2).await;
    board.server.restart();
    free(&holder, held).await;
    caller.await.unwrap().unwrap();
}

/// Removed by hand, long before the next renewal.
#[tokio::test]
async fn a_holder_whose_node_was_removed_is_notified_at_once() {
    let board = Board::start().await;
    let locks = locks_for(board.lock().await, PATIENCE * 60);
    for pause in [Duration::ZERO, Duration::from_millis(500)] {
        let held = locks.lock(&key()).await.unwrap();
        tokio::time::sleep(pause).await;
        assert!(!held.is_lost());
        let nodes = board.nodes(&key()).await;
        let path = format!("{}/{}", parent(&key()), nodes[0]);
        board.client.delete(&path, None).await.unwrap();
        timeout(PATIENCE, held.lost()).await.expect("it is notified");
        assert_eq!(held.release().await.unwrap(), Released::NotHeld);
    }
}

#[tokio::test]
async fn work_whose_node_was_removed_is_dropped() {
    let board = Board::start().await;
    let locks = locks_for(board.lock().await, PATIENCE * 60);
    let running = locks.clone();
    let work = async move { running.run(&key(), std::future::pending::<()>()).await };
    let work = tokio::spawn(work);
    board.has_queued(&key(), 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let path = format!("{}/{}", parent(&key()), board.nodes(&key()).await[0]);
    board.client.delete(&path, None).await.unwrap();
    let ran = timeout(PATIENCE, work).await.expect("it is notified").unwrap();
    assert_eq!(ran.unwrap_err().kind(), LockErrorKind::Lost);
}
