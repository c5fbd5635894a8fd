//! First come, first served; no herd; a waiter that has left delays no other.

use std::time::Duration;

use bellwether::store::Renew;
use bellwether_lock::{Attempt, Lock, Released, ZooKeeperLock, ZooKeeperOptions};
use bellwether_testkit::faults::FaultProxy;
use tokio::time::Instant;
use zookeeper_client::{Acls, CreateMode};

use crate::board::{
    Board, GRACE, SESSION, busy, claim, fence, free, is_lost, key, parent, request, take, wait,
};

const SHORT: Duration = Duration::from_millis(50);

/// Case 42.
#[tokio::test]
async fn five_sessions_are_served_in_the_order_they_came() {
    let board = Board::start().await;
    let holder = board.lock().await;
    let held = claim();
    take(&holder, &held).await;
    let mut waiters = Vec::new();
    for place in 2..=6 {
        let lock = board.lock().await;
        let claim = claim();
        waiters.push((board.waiter(&lock, &claim, place).await, lock, claim));
    }
    free(&holder, held).await;
    let mut last = 0;
    for (waiter, lock, claim) in waiters {
        let fence = fence(&waiter.await.expect("no panic"));
        assert!(fence > last);
        last = fence;
        free(&lock, claim).await;
    }
}

#[tokio::test]
async fn a_release_is_announced_to_the_next_waiter_only() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let held = claim();
    take(&lock, &held).await;
    let mut waiters = Vec::new();
    for place in 2..=9 {
        let claim = claim();
        waiters.push((board.waiter(&lock, &claim, place).await, claim));
    }
    let notified = || board.server.number("zk_sum_node_deleted_watch_count");
    // The node of the last waiter exists before its watch does.
    let began = Instant::now();
    while board.server.number("zk_watch_count") < 8 {
        assert!(began.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(board.server.number("zk_watch_count"), 8);
    let before = notified();
    free(&lock, held).await;
    for (number, (waiter, claim)) in (1..).zip(waiters) {
        waiter.await.expect("no panic");
        assert_eq!(notified() - before, number);
        free(&lock, claim).await;
    }
    assert_eq!(board.server.number("zk_watch_count"), 0);
}

/// Case 36.
#[tokio::test]
async fn a_wait_that_is_cancelled_and_released_leaves_no_node_and_delays_no_waiter() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let held = claim();
    let cancelled = claim();
    let next = claim();
    take(&lock, &held).await;
    let leaver = board.waiter(&lock, &cancelled, 2).await;
    let waiter = board.waiter(&lock, &next, 3).await;
    leaver.abort();
    assert_eq!(lock.release(cancelled).await.unwrap(), Released::NotHeld);
    board.has_queued(&key(), 2).await;
    free(&lock, held).await;
    waiter.await.expect("no panic");
    free(&lock, next).await;
    board.has_queued(&key(), 0).await;
}

/// A listing before each try is not enough: many tries can see an empty queue.
#[tokio::test]
async fn tries_that_meet_leave_no_node_but_the_holders() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let tries = (0..16).map(|_| {
        let lock = lock.clone();
        async move {
            let attempt = lock.acquire(request(&claim(), Duration::ZERO)).await;
            matches!(attempt, Ok(Attempt::Granted(_)))
        }
    });
    let granted = futures_util::future::join_all(tries).await;
    assert_eq!(granted.into_iter().filter(|granted| *granted).count(), 1);
    assert_eq!(board.nodes(&key()).await.len(), 1);
}

/// Case 44.
#[tokio::test]
async fn a_try_after_a_short_wait_that_ended_takes_a_free_key_at_once() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let held = claim();
    let short = claim();
    take(&lock, &held).await;
    assert_eq!(busy(&lock, &short, SHORT).await.ahead, Some(1));
    lock.release(short).await.unwrap();
    free(&lock, held).await;
    take(&lock, &claim()).await;
}

#[tokio::test]
async fn a_claim_keeps_its_place_in_the_queue_between_its_requests() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let held = claim();
    let early = claim();
    let late = claim();
    take(&lock, &held).await;
    busy(&lock, &early, SHORT).await;
    let waiter = board.waiter(&lock, &late, 3).await;
    free(&lock, held).await;
    let first = fence(&wait(&lock, &early).await);
    assert!(!waiter.is_finished());
    free(&lock, early).await;
    assert!(fence(&waiter.await.expect("no panic")) > first);
}

/// Case 43.
#[tokio::test]
async fn a_claim_that_stops_asking_loses_its_place_in_the_queue() {
    let board = Board::start().await;
    let options = board.options().session_timeout(Duration::from_millis(400));
    let options = options.timeout(Duration::from_millis(200));
    let forgetful = ZooKeeperLock::connect(options).await.unwrap();
    let lock = board.lock().await;
    let held = claim();
    let forgotten = claim();
    let next = claim();
    take(&lock, &held).await;
    busy(&forgetful, &forgotten, SHORT).await;
    let waiter = board.waiter(&lock, &next, 3).await;
    free(&lock, held).await;
    waiter.await.expect("no panic");
    assert_eq!(board.nodes(&key()).await.len(), 1);
}

/// Case 45.
#[tokio::test]
async fn the_last_waiter_waits_for_the_holder_when_the_session_between_them_dies() {
    let board = Board::start().await;
    let proxy = FaultProxy::start_raw(board.server.address()).await;
    let options = ZooKeeperOptions::new(&proxy.address().to_string(), "test").unwrap();
    let middle = ZooKeeperLock::connect(options.session_timeout(SESSION)).await.unwrap();
    let lock = board.lock().await;
    let held = claim();
    let between = claim();
    let last = claim();
    take(&lock, &held).await;
    let dying = board.waiter(&middle, &between, 2).await;
    let waiter = board.waiter(&lock, &last, 3).await;
    proxy.blackhole();
    board.has_queued(&key(), 2).await;
    dying.abort();
    tokio::time::sleep(GRACE).await;
    assert!(!waiter.is_finished());
    free(&lock, held).await;
    waiter.await.expect("no panic");
}

/// Case 59.
#[tokio::test]
async fn a_waiter_whose_node_was_removed_by_hand_queues_again() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let held = claim();
    let removed = claim();
    let next = claim();
    take(&lock, &held).await;
    let without_node = board.waiter(&lock, &removed, 2).await;
    let waiter = board.waiter(&lock, &next, 3).await;
    board.client.delete(&board.node_of(&removed).await, None).await.unwrap();
    free(&lock, held).await;
    waiter.await.expect("no panic");
    assert!(!without_node.is_finished());
    free(&lock, next).await;
    without_node.await.expect("no panic");
    free(&lock, removed).await;
    board.has_queued(&key(), 0).await;
}

/// Case 14.
#[tokio::test]
async fn a_holder_whose_node_was_removed_by_hand_has_lost_the_key() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let held = claim();
    let next = claim();
    let first = take(&lock, &held).await;
    board.client.delete(&board.node_of(&held).await, None).await.unwrap();
    let second = take(&lock, &next).await;
    assert!(fence(&second) > fence(&first));
    assert_eq!(lock.renew(&held, SHORT).await.unwrap(), Renew::Lost);
    assert_eq!(lock.release(held).await.unwrap(), Released::NotHeld);
    assert_eq!(lock.renew(&next, SHORT).await.unwrap(), Renew::Held);
    assert!(!is_lost(&second));
}

/// Case 13.
#[tokio::test]
async fn another_process_that_knows_the_claim_can_release_it() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let other = board.lock().await;
    let held = claim();
    take(&lock, &held).await;
    free(&other, held.clone()).await;
    assert_eq!(lock.renew(&held, SHORT).await.unwrap(), Renew::Lost);
    assert_eq!(lock.release(held).await.unwrap(), Released::NotHeld);
    take(&other, &claim()).await;
}

/// Case 83. A wait may be longer than any clock can count.
#[tokio::test]
async fn two_hundred_waiters_are_all_served() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let waiters = (0..200).map(|_| async {
        let claim = claim();
        let attempt = lock.acquire(request(&claim, Duration::MAX)).await;
        assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
        free(&lock, claim).await;
    });
    futures_util::future::join_all(waiters).await;
    board.has_queued(&key(), 0).await;
}

/// Case 61.
#[tokio::test]
async fn foreign_node_names_are_ignored_and_negative_numbers_come_first() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let mine = claim();
    take(&lock, &mine).await;
    let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let negative = format!("_c_{}-lock--000000005", "ab".repeat(16));
    for name in ["x", "lock-0000000000", "_c_ab-lock-0000000000", "_c_-lock-", &negative] {
        let path = format!("{}/{name}", parent(&key()));
        board.client.create(&path, b"", &options).await.unwrap();
    }
    // Not before: the server removes the parent soon after its last child.
    free(&lock, mine).await;
    let waiting = claim();
    assert_eq!(busy(&lock, &waiting, SHORT).await.ahead, Some(1));
    board.client.delete(&format!("{}/{negative}", parent(&key())), None).await.unwrap();
    wait(&lock, &waiting).await;
}
