//! It keeps the contract of locks.

use bellwether_lock::conformance::Conformance;

use crate::board::{Board, SESSION};

#[tokio::test]
async fn it_keeps_the_contract() {
    let board = Board::start().await;
    let lock = board.lock().await;
    assert_eq!(Conformance::of(lock).fenced().exclusive().queue().run().await, []);
}

#[tokio::test]
async fn a_holder_paused_for_its_session_knows_of_the_loss() {
    let board = Board::start().await;
    let lock = board.mortal_lock().await;
    assert_eq!(Conformance::of(lock).run_standing_still(SESSION).await, []);
}
