//! The policy of locks over Redis: renewal, waiting, loss and release, as for every other lock.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bellwether_lock::{FairLock, Lock, LockErrorKind, LockWait, Locks, Owner, RedisLock, Redlock};
use bellwether_lock::{ReentrantLock, Released};
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::within;
use tokio::time::{sleep, timeout};

use crate::world::{LONG, busy, claim, key, options, options_of, queue_up, take};

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
async fn a_fair_lock_is_kept_over_many_leases_and_its_loss_is_reported() {
    let server = RedisServer::start();
    is_kept_and_then_lost(&server, FairLock::connect(options(&server)).await.expect("it")).await;
}

#[tokio::test]
async fn a_reentrant_lock_is_kept_over_many_leases_and_its_loss_is_reported() {
    let server = RedisServer::start();
    let lock = ReentrantLock::connect(options(&server)).await.expect("a lock");
    is_kept_and_then_lost(&server, lock).await;
}

async fn wait_for_each_others_releases(lock: impl Lock + Clone) {
    let [here, there] = [locks(lock.clone()), locks(lock)];
    for _ in 0..10 {
        drop(here.try_lock(&key(1)).await.expect("it waits for the release"));
        drop(there.try_lock(&key(1)).await.expect("it waits for the release"));
    }
}

#[tokio::test]
async fn all_locks_over_one_handle_wait_for_each_others_releases() {
    let server = RedisServer::start();
    let one = || options(&server);
    wait_for_each_others_releases(RedisLock::connect(one()).await.expect("a lock")).await;
    wait_for_each_others_releases(FairLock::connect(one()).await.expect("a lock")).await;
    wait_for_each_others_releases(ReentrantLock::connect(one()).await.expect("a lock")).await;
    let servers = [(); 3].map(|()| RedisServer::start());
    let nodes = servers.iter().map(options);
    wait_for_each_others_releases(Redlock::connect(nodes).await.expect("a lock")).await;
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
async fn a_lock_by_majority_is_kept_and_is_lost_when_too_few_nodes_are_left() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    let lock = Redlock::connect(servers.iter().map(options)).await.expect("a lock");
    let locks = locks_for(lock, LEASE * 2);
    let held = locks.lock(&key(1)).await.expect("a lock");
    servers[0].kill();
    sleep(LEASE * 3).await;
    assert!(!held.is_lost());
    servers[1].kill();
    timeout(LEASE * 3, held.lost()).await.expect("it is notified");
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

#[tokio::test]
async fn a_guard_that_is_dropped_by_a_panic_hands_over_at_once() {
    let server = RedisServer::start();
    let [one, other] =
        [(); 2].map(|()| FairLock::connect_lazily(options(&server)).expect("options"));
    // A lease so long that its end could not be what frees it.
    let one = Locks::builder(one).lease(LONG).build().expect("a lease");
    let held = one.lock(&key(1)).await.expect("a lock");
    let fence = held.fence();
    let other = locks(other);
    let waits = tokio::spawn(async move { other.lock(&key(1)).await.map(|held| held.fence()) });
    let panics = tokio::spawn(async move {
        let _held = held;
        sleep(LEASE).await;
        panic!("on purpose");
    });
    assert!(panics.await.is_err());
    let next = timeout(LONG / 4, waits).await.expect("it is free").expect("no panic");
    assert!(next.expect("a lock") > fence);
}

#[tokio::test]
async fn a_cut_connection_costs_neither_the_holder_nor_the_waiter() {
    let server = RedisServer::start();
    let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
    let proxy = FaultProxy::start(address).await;
    let locks = || {
        let lock = RedisLock::connect_lazily(options_of(&proxy.url())).expect("options");
        locks_for(lock, LEASE * 10)
    };
    let one = locks();
    let other = locks();
    let held = one.lock(&key(1)).await.expect("a lock");
    let scripts = || server.info("commandstats", "cmdstat_evalsha");
    let before = scripts();
    let waits = tokio::spawn(async move { other.lock(&key(1)).await });
    // A caller that knows that the key is taken retries transient errors until its wait ends.
    within(LONG, || scripts() != before).await;
    sleep(LEASE).await;
    for _ in 0..8 {
        sleep(LEASE / 4).await;
        proxy.cut();
    }
    assert!(!held.is_lost() && !waits.is_finished());
    assert_eq!(held.release().await.expect("an answer"), Released::Freed);
    let next = timeout(LONG / 4, waits).await.expect("it is free").expect("no panic");
    next.expect("a lock").release().await.expect("an answer");
}

#[tokio::test]
async fn a_silent_holder_is_taken_over_and_one_that_renews_is_not() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let succeeding = || {
        let locks = Locks::builder(RedisLock::connect_lazily(options(&server)).expect("options"));
        let locks = locks.lease(LEASE).take_over_after(LEASE).build().expect("options");
        locks.wait(LockWait::at_most(LONG))
    };
    let held = locks(lock.clone()).lock(&key(1)).await.expect("a lock");
    assert!(timeout(LEASE * 4, succeeding().lock(&key(1))).await.is_err());
    assert!(!held.is_lost());
    held.release().await.expect("an answer");
    let silent = claim(1);
    take(&lock, &silent, LONG).await;
    let began = Instant::now();
    let next = succeeding().lock(&key(1)).await.expect("it is taken over");
    assert!(began.elapsed() >= LEASE && began.elapsed() < LONG / 4, "{:?}", began.elapsed());
    assert_eq!(lock.release(silent).await.expect("an answer"), Released::NotHeld);
    assert_eq!(next.release().await.expect("an answer"), Released::Freed);
}

#[tokio::test]
async fn an_owner_takes_its_lock_again_in_another_process_and_others_do_not() {
    let server = RedisServer::start();
    let lock = || ReentrantLock::connect_lazily(options(&server)).expect("options");
    let owner = Owner::new();
    let [one, other] = [(); 2].map(|()| locks(lock()).owned_by(owner));
    let stranger = locks(lock());
    let outer = one.lock(&key(1)).await.expect("a lock");
    let inner = other.lock(&key(1)).await.expect("it is ours");
    assert_eq!(outer.fence(), inner.fence());
    assert!(stranger.try_lock(&key(1)).await.is_err());
    outer.release().await.expect("an answer");
    assert!(stranger.try_lock(&key(1)).await.is_err());
    assert_eq!(inner.release().await.expect("an answer"), Released::Freed);
    let theirs = stranger.lock(&key(1)).await.expect("it is free");
    assert!(one.try_lock(&key(1)).await.is_err());
    theirs.release().await.expect("an answer");
}

#[tokio::test]
async fn a_try_overtakes_no_waiter_and_is_answered_at_once() {
    let server = RedisServer::start();
    let lock = FairLock::connect(options(&server)).await.expect("a lock");
    let holder = claim(1);
    let waiter = claim(1);
    take(&lock, &holder, LONG).await;
    queue_up(&lock, &waiter).await;
    lock.release(holder).await.expect("an answer");
    let error = locks(lock.clone()).try_lock(&key(1)).await.expect_err("there is a waiter");
    assert_eq!(error.kind(), LockErrorKind::Busy, "{error}");
    take(&lock, &waiter, LONG).await;
}
