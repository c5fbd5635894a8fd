//! `Locks` over it: requests, notifications, and what is left.

use std::time::Duration;

use bellwether_lock::{LockErrorKind, LockWait, Locks, Released, ZooKeeperLock};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::board::{Board, PATIENCE, claim, free, key, parent, take};

fn locks_for(lock: ZooKeeperLock, lease: Duration) -> Locks<ZooKeeperLock> {
    let locks = Locks::builder(lock).lease(lease).build();
    locks.expect("a lease").wait(LockWait::at_most(PATIENCE))
}

fn locks(lock: ZooKeeperLock) -> Locks<ZooKeeperLock> {
    Locks::new(lock).wait(LockWait::at_most(PATIENCE))
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
