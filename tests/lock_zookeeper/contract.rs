//! It keeps the contract of locks.

use bellwether::lock::conformance;

use crate::board::Board;

#[tokio::test]
async fn it_keeps_the_contract() {
    let board = Board::start().await;
    let lock = board.lock().await;
    assert_eq!(conformance::run(lock.clone()).await, []);
    assert_eq!(conformance::run_fenced(lock.clone()).await, []);
    assert_eq!(conformance::run_exclusive(lock.clone()).await, []);
    assert_eq!(conformance::run_queue(lock).await, []);
}
