//! The policy of locks over Redis: renewal, waiting, loss and release, as for every other lock.

use std::time::{Duration, Instant};

use bellwether_lock::{FairLock, Lock, LockErrorKind, LockWait, Locks, RedisLock, Released};
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::within;
use tokio::time::{sleep, timeout};

use crate::world::{LONG, busy, claim, key, options, take};

const LEASE: Duration = Duration::from_millis(500);

fn locks<L: Lock>(lock: L) -> Locks<L> {
    locks_for(lock, LEASE)
}

fn locks_for<L: Lock>(lock: L, lease: Duration) -> Locks<L> {
    Locks::builder(lock).lease(lease).build().expect("a lease").wait(LockWait::at_most(LONG))
}

/// It stays held while it is renewed, and is lost when the server has forgotten it.
async fn is_kept_and_then_lost(server: &RedisServer, lock: impl Lock + Clone) {
    let locks = locks(lock.clone());
    let held = locks.lock(&key(1)).await.expect("a lock");
    sleep(LEASE * 4).await;
    busy(&lock, &claim(1)).await;
    assert!(!held.is_lost());
    server.command(&["FLUSHALL"]);
    let began = Instant::now();
    let limit = LEASE * 2;
    timeout(limit, held.lost()).await.expect("it is notified");
    assert!(held.is_lost(), "{:?}", began.elapsed());
    assert_eq!(held.release().await.expect("an answer"), Released::NotHeld);
    let next = locks.lock(&key(1)).await.expect("the next lock");
    sleep(LEASE * 2).await;
    assert_eq!(next.release().await.expect("an answer"), Released::Freed);
}

#[tokio::test]
async fn a_lock_is_kept_over_many_leases_and_its_loss_is_reported() {
    let server = RedisServer::start();
    is_kept_and_then_lost(&server, RedisLock::connect(options(&server)).await.expect("it")).await;
}

#[tokio::test]
async fn a_release_that_has_no_answer_is_not_said_to_be_another_holder() {
    let server = RedisServer::start();
    let options = options(&server).timeout(Duration::from_millis(100));
    let lock = RedisLock::connect(options).await.expect("a lock");
    let locks = locks_for(lock, LONG);
    server.stop();
    let error = locks.try_lock(&key(1)).await.expect_err("the server is paused");
    assert_eq!(error.kind(), LockErrorKind::NoReply, "{error}");
    let error = locks.try_lock(&key(1)).await.expect_err("the server is paused");
    assert_eq!(error.kind(), LockErrorKind::Unreleased, "{error}");
    server.resume();
}

#[tokio::test]
async fn a_wait_without_a_grant_ends_in_time_and_leaves_no_place_in_the_queue() {
    let server = RedisServer::start();
    let lock = FairLock::connect(options(&server)).await.expect("a lock");
    take(&lock, &claim(1), LONG).await;
    let waiting = locks(lock).wait(LockWait::at_most(LEASE));
    let began = Instant::now();
    let error = waiting.lock(&key(1)).await.expect_err("it is held");
    let took = began.elapsed();
    assert_eq!(error.kind(), LockErrorKind::TimedOut, "{error}");
    assert!(took >= LEASE && took < LEASE * 3, "{took:?}");
    leaves_the_queue(&server).await;
}

async fn leaves_the_queue(server: &RedisServer) {
    let queue = format!("bw:test:queue:{{{}}}", key(1).digest());
    // It is given up in the background.
    within(LONG, || server.command(&["EXISTS", &queue]) == Reply::Integer(0)).await;
}

#[tokio::test]
async fn a_wait_that_is_dropped_at_any_time_leaves_no_place_and_no_lock() {
    let server = RedisServer::start();
    let lock = FairLock::connect(options(&server)).await.expect("a lock");
    for micros in [0, 50, 200, 500, 1_000, 3_000, 10_000] {
        let holder = claim(1);
        take(&lock, &holder, LONG).await;
        let locks = locks(lock.clone());
        let wait = Duration::from_micros(micros);
        assert!(timeout(wait, locks.lock(&key(1))).await.is_err());
        lock.release(holder).await.expect("an answer");
        // And one that is dropped when it may have been granted.
        drop(timeout(wait, locks.lock(&key(1))).await);
        let next = locks.lock_before(&key(1), tokio::time::Instant::now() + LONG).await;
        next.expect("it is free").release().await.expect("an answer");
        locks.shutdown(LONG).await;
        leaves_the_queue(&server).await;
    }
}
