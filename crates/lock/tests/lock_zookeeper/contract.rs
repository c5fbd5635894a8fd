//! It keeps the contract of locks.

use bellwether_lock::conformance;

use crate::board::{Board, SESSION};

#[tokio::test]
async fn it_keeps_the_contract() {
    let board = Board::start().await;
    let lock = board.lock().await;
    assert_eq!(conformance::run(lock.clone()).await, []);
    assert_eq!(conformance::run_fenced(lock.clone()).await, []);
    assert_eq!(conformance::run_exclusive(lock.clone()).await, []);
    assert_eq!(conformance::run_queue(lock).await, []);
}

#[tokio::test]
async fn a_holder_paused_for_its_session_knows_of_the_loss() {
    let board = Board::start().await;
    let lock = board.mortal_lock().await;
    assert_eq!(conformance::run_standing_still(lock, SESSION).await, []);
}
