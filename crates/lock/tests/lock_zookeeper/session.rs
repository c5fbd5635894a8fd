//! A session that has ended, or may have, holds nothing, and its holder is notified.

use std::time::Duration;

use bellwether::store::{Claim, Renew};
use bellwether_lock::{Lock, Released, ZooKeeperLock, ZooKeeperOptions};
use bellwether_testkit::faults::FaultProxy;
use tokio::time::{Instant, sleep};
use zookeeper_client::{Acls, CreateMode};

use crate::board::{
    Board, GRACE, SESSION, busy, claim, fence, free, is_lost, key, lost, parent, prefix, take, wait,
};

/// A lock that reaches the server by way of a proxy, and whose session ends soon without it.
async fn by_proxy(board: &Board) -> (FaultProxy, ZooKeeperLock) {
    let proxy = FaultProxy::start_raw(board.server.address()).await;
    let options = ZooKeeperOptions::new(&proxy.address().to_string(), "test").unwrap();
    let lock = ZooKeeperLock::connect(options.session_timeout(SESSION)).await.unwrap();
    (proxy, lock)
}

/// Cases 54, 57 and 63.
#[tokio::test]
async fn a_holder_that_is_cut_off_knows_of_the_loss_before_the_next_grant() {
    let board = Board::start().await;
    let (proxy, cut_off) = by_proxy(&board).await;
    let other = board.lock().await;
    let held = claim();
    let next = claim();
    let first = take(&cut_off, &held).await;
    let waiter = board.waiter(&other, &next, 2).await;
    proxy.blackhole();
    let began = Instant::now();
    let notified = async {
        lost(&first).await;
        Instant::now()
    };
    let granted = async { (waiter.await.expect("no panic"), Instant::now()) };
    let (notified, (second, granted)) = tokio::join!(notified, granted);
    assert!(notified < granted, "it was notified {:?} after", notified - granted);
    assert!(granted - began < SESSION + GRACE, "it took {:?}", granted - began);
    assert!(fence(&second) > fence(&first));
    assert!(is_lost(&first));
    proxy.heal();
    assert_eq!(cut_off.renew(&held, SESSION).await.unwrap(), Renew::Lost);
    assert_eq!(cut_off.release(held.clone()).await.unwrap(), Released::NotHeld);
    assert!(!is_lost(&second));
    // The same handle goes on, with another session.
    let waiting = claim();
    assert_eq!(busy(&cut_off, &waiting, GRACE).await.ahead, Some(1));
    free(&other, next).await;
    let third = wait(&cut_off, &waiting).await;
    assert!(fence(&third) > fence(&second) && !is_lost(&third));
}

#[tokio::test]
async fn a_connection_that_breaks_loses_nothing() {
    let board = Board::start().await;
    let (proxy, lock) = by_proxy(&board).await;
    let held = claim();
    let grant = take(&lock, &held).await;
    for _ in 0..3 {
        proxy.cut();
        sleep(SESSION / 3).await;
    }
    assert!(!is_lost(&grant));
    assert_eq!(lock.renew(&held, SESSION).await.unwrap(), Renew::Held);
    free(&lock, held).await;
}

/// Case 62.
#[tokio::test]
async fn an_unused_session_stays_alive() {
    let board = Board::start().await;
    let lock = board.mortal_lock().await;
    let held = claim();
    let released = claim();
    let grant = take(&lock, &held).await;
    sleep(SESSION * 5 / 2).await;
    assert!(!is_lost(&grant));
    free(&lock, held).await;
    let after = take(&lock, &released).await;
    free(&lock, released).await;
    assert!(!is_lost(&grant) && !is_lost(&after));
}

/// Case 53.
#[tokio::test]
async fn the_last_handle_takes_the_session_with_it() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let other = board.lock().await;
    let next = claim();
    let grant = take(&lock, &claim()).await;
    let waiter = board.waiter(&other, &next, 2).await;
    let began = Instant::now();
    drop(lock);
    lost(&grant).await;
    waiter.await.expect("no panic");
    assert!(began.elapsed() < SESSION);
}

/// Case 55.
#[tokio::test]
async fn a_restart_of_the_server_loses_neither_the_holder_nor_the_waiter() {
    let mut board = Board::start().await;
    let lock = board.lock().await;
    let other = board.lock().await;
    let held = claim();
    let next = claim();
    let grant = take(&lock, &held).await;
    let waiter = board.waiter(&other, &next, 2).await;
    board.server.restart();
    assert_eq!(lock.renew(&held, SESSION).await.unwrap(), Renew::Held);
    assert!(!is_lost(&grant) && !waiter.is_finished());
    free(&lock, held).await;
    assert!(fence(&waiter.await.expect("no panic")) > fence(&grant));
    free(&other, next).await;
}

/// Case 21.
#[tokio::test]
async fn a_server_that_has_forgotten_everything_is_a_loss() {
    let mut board = Board::start().await;
    let lock = board.mortal_lock().await;
    let held = claim();
    let grant = take(&lock, &held).await;
    board.server.restart_empty();
    lost(&grant).await;
    assert_eq!(lock.release(held).await.unwrap(), Released::NotHeld);
    let next = board.lock().await;
    let claim = claim();
    assert!(!is_lost(&take(&lock, &claim).await));
    busy(&next, &crate::board::claim(), Duration::ZERO).await;
}

/// Case 56.
#[tokio::test]
async fn a_waiter_whose_session_has_ended_is_the_last_of_the_queue_again() {
    let board = Board::start().await;
    let (proxy, cut_off) = by_proxy(&board).await;
    let lock = board.lock().await;
    let held = claim();
    let early = claim();
    let late = claim();
    take(&lock, &held).await;
    let first = board.waiter(&cut_off, &early, 2).await;
    let second = board.waiter(&lock, &late, 3).await;
    proxy.blackhole();
    board.has_queued(&key(), 2).await;
    proxy.heal();
    board.has_queued(&key(), 3).await;
    free(&lock, held).await;
    second.await.expect("no panic");
    assert!(!first.is_finished());
    free(&lock, late).await;
    first.await.expect("no panic");
}

/// Case 46.
#[tokio::test]
async fn a_server_paused_for_too_long_ends_the_session_and_leaves_no_waiter() {
    let board = Board::start().await;
    let lock = board.mortal_lock().await;
    let held = claim();
    let waiting = claim();
    let grant = take(&lock, &held).await;
    let waiter = board.waiter(&lock, &waiting, 2).await;
    board.server.stop();
    let began = Instant::now();
    lost(&grant).await;
    assert!(began.elapsed() < SESSION, "it was notified after {:?}", began.elapsed());
    waiter.abort();
    board.server.resume();
    assert_eq!(lock.release(waiting).await.unwrap(), Released::NotHeld);
    lock.release(held).await.unwrap();
    board.has_queued(&key(), 0).await;
    let next = take(&lock, &claim()).await;
    assert!(fence(&next) > fence(&grant));
}

/// A node of the claim, before any other, that another session has made. Returns its path, and the
/// transaction that made it.
async fn left_behind(board: &Board, claim: &Claim) -> (String, u64) {
    let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let old = format!("{}/{}-000000009", parent(claim.key()), prefix(claim));
    let (made, _) = board.client.create(&old, b"", &options).await.unwrap();
    (old, u64::try_from(made.czxid).unwrap())
}

/// Case 57, for a caller that asks again by the same claim.
#[tokio::test]
async fn the_node_of_another_session_is_not_the_claims_own() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let mine = claim();
    take(&lock, &mine).await;
    free(&lock, mine.clone()).await;
    let (old, made_by) = left_behind(&board, &mine).await;
    let grant = take(&lock, &mine).await;
    assert!(fence(&grant) > made_by);
    assert_eq!(board.client.check_stat(&old).await.unwrap(), None);
    let own = board.client.check_stat(&board.node_of(&mine).await).await.unwrap().unwrap();
    assert_eq!(u64::try_from(own.czxid).unwrap(), fence(&grant));
}

/// Cases 57 and 58 together.
#[tokio::test]
async fn the_node_of_another_session_is_not_found_for_one_that_was_not_answered() {
    let board = Board::start().await;
    let (proxy, lock) = by_proxy(&board).await;
    let mine = claim();
    take(&lock, &mine).await;
    free(&lock, mine.clone()).await;
    let (_, made_by) = left_behind(&board, &mine).await;
    proxy.cut_after(1);
    let grant = wait(&lock, &mine).await;
    assert!(fence(&grant) > made_by);
    assert!(board.node_of(&mine).await.ends_with("-0000000002"));
    assert!(!is_lost(&grant));
}

/// A session that is still alive on the server would keep the key from all callers.
#[tokio::test]
async fn a_session_that_was_given_up_is_closed_although_it_is_unused() {
    let board = Board::start().await;
    let options = board.options().session_timeout(SESSION * 4);
    let (lock, other, held, next) =
        (ZooKeeperLock::connect(options).await.unwrap(), board.lock().await, claim(), claim());
    let grant = take(&lock, &held).await;
    let waiter = board.waiter(&other, &next, 2).await;
    board.server.stop();
    lost(&grant).await;
    board.server.resume();
    let began = Instant::now();
    waiter.await.expect("no panic");
    // The server itself would wait for a quarter of the time-out, or for ever.
    assert!(began.elapsed() < SESSION / 2, "it took {:?}", began.elapsed());
    drop(lock);
}
