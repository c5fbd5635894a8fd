//! The queue of the fair lock, with waiters that leave, die, or come late.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_lock::{FairLock, FairLockOptions, Lock, Released};
use bellwether_testkit::servers::{RedisServer, Reply};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::world::{LONG, busy, claim, free, key, options, queue_up, take, wait, wait_pausing};

async fn lock(server: &RedisServer, silence: Duration) -> FairLock {
    let options = FairLockOptions::from(options(server)).silence(silence);
    FairLock::connect(options).await.expect("a lock")
}

fn queue() -> String {
    format!("bw:test:queue:{{{}}}", key(1).digest())
}

fn waiting(server: &RedisServer) -> i64 {
    match server.command(&["ZCARD", &queue()]) {
        Reply::Integer(count) => count,
        other => panic!("{other:?}"),
    }
}

/// No holder releases: each waiter waits for the lease of the one before.
#[tokio::test]
async fn eight_waiters_are_served_in_their_order_as_leases_lapse() {
    let server = RedisServer::start();
    let lock = lock(&server, LONG).await;
    let lease = Duration::from_millis(150);
    take(&lock, &claim(1), lease * 3).await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..8 {
        let lock = lock.clone();
        let order = Arc::clone(&order);
        let waiter = claim(1);
        queue_up(&lock, &waiter).await;
        waiters.spawn(async move {
            wait(&lock, &waiter, lease).await;
            order.lock().expect("the order").push(number);
        });
    }
    waiters.join_all().await;
    assert_eq!(*order.lock().expect("the order"), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test]
async fn dead_waiters_are_skipped_and_do_not_delay_one_another() {
    let server = RedisServer::start();
    let silence = Duration::from_millis(400);
    let lock = lock(&server, silence).await;
    let holder = claim(1);
    take(&lock, &holder, LONG).await;
    for _ in 0..10 {
        queue_up(&lock, &claim(1)).await;
    }
    let alive = claim(1);
    assert_eq!(queue_up(&lock, &alive).await.ahead, Some(11));
    free(&lock, &holder).await;
    let began = Instant::now();
    wait_pausing(&lock, &alive, LONG, silence / 8).await;
    let took = began.elapsed();
    assert!(took < silence * 3, "{took:?} for ten dead waiters of {silence:?} each");
    assert_eq!(waiting(&server), 0);
}

#[tokio::test]
async fn a_try_after_a_wait_that_ended_finds_the_lock_free_and_no_stale_place() {
    let server = RedisServer::start();
    let lock = lock(&server, LONG).await;
    let [holder, impatient, next] = [claim(1), claim(1), claim(1)];
    take(&lock, &holder, LONG).await;
    queue_up(&lock, &impatient).await;
    // As the policy does when time is up: it asks no more, and releases.
    assert_eq!(lock.release(impatient).await.expect("an answer"), Released::NotHeld);
    assert_eq!(waiting(&server), 0);
    free(&lock, &holder).await;
    take(&lock, &next, LONG).await;
}

#[tokio::test]
async fn a_try_of_a_former_waiter_gives_up_its_place_in_the_queue() {
    let server = RedisServer::start();
    let lock = lock(&server, LONG).await;
    let holder = claim(1);
    let waiter = claim(1);
    take(&lock, &holder, LONG).await;
    queue_up(&lock, &waiter).await;
    assert_eq!(waiting(&server), 1);
    busy(&lock, &waiter).await;
    assert_eq!(waiting(&server), 0);
}

#[tokio::test]
async fn the_last_still_waits_for_the_holder_when_one_between_them_has_died() {
    let server = RedisServer::start();
    let silence = Duration::from_millis(100);
    let lock = lock(&server, silence).await;
    let [holder, middle, last] = [claim(1), claim(1), claim(1)];
    take(&lock, &holder, LONG).await;
    queue_up(&lock, &middle).await;
    let waits = wait_pausing(&lock, &last, LONG, silence / 4);
    assert!(timeout(silence * 5, waits).await.is_err(), "the lock was still held");
    free(&lock, &holder).await;
    wait(&lock, &last, LONG).await;
}

#[tokio::test]
async fn a_queue_without_requests_is_gone_after_a_silence() {
    let server = RedisServer::start();
    let silence = Duration::from_millis(200);
    let lock = lock(&server, silence).await;
    take(&lock, &claim(1), silence).await;
    queue_up(&lock, &claim(1)).await;
    queue_up(&lock, &claim(1)).await;
    sleep(silence + Duration::from_millis(100)).await;
    let Reply::Integer(left) = server.command(&["EXISTS", &queue(), &format!("{}:seen", queue())])
    else {
        panic!("no count")
    };
    assert_eq!(left, 0);
}

/// A paused server answers no request, so a waiter whose wait ends cannot leave the queue before it
/// resumes.
#[tokio::test]
async fn a_wait_that_ended_while_the_server_was_paused_leaves_no_place_in_the_queue() {
    let server = RedisServer::start();
    let options = options(&server).timeout(Duration::from_millis(300));
    let lock = FairLock::connect(options).await.expect("a lock");
    let holder = claim(1);
    let waiter = claim(1);
    take(&lock, &holder, LONG).await;
    queue_up(&lock, &waiter).await;
    server.stop();
    lock.release(waiter.clone()).await.expect_err("the server is paused");
    server.resume();
    // As the policy does, until the server answers.
    while lock.release(waiter.clone()).await.is_err() {
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(waiting(&server), 0);
}

#[tokio::test]
async fn only_the_first_of_the_queue_is_woken() {
    let server = RedisServer::start();
    let lock = lock(&server, LONG).await;
    let holder = claim(1);
    take(&lock, &holder, LONG).await;
    // Of processes of their own, each with a connection and with one waiter.
    let mut processes = Vec::new();
    for _ in 0..5 {
        let process = FairLock::connect(options(&server)).await.expect("a lock");
        let waiter = claim(1);
        let watch = process.watch(&key(1));
        queue_up(&process, &waiter).await;
        processes.push((process, waiter, watch));
    }
    free(&lock, &holder).await;
    let (first, rest) = processes.split_first_mut().expect("five");
    timeout(LONG, first.2.changed()).await.expect("it is its turn");
    // All messages are sent at the same moment. What has not arrived after this does not come.
    take(&first.0, &first.1, LONG).await;
    for (_, _, watch) in rest {
        assert!(
            timeout(Duration::from_millis(40), watch.changed()).await.is_err(),
            "it was notified"
        );
    }
}

#[tokio::test]
async fn a_waiter_that_becomes_the_first_because_the_first_leaves_is_notified() {
    let server = RedisServer::start();
    let lock = lock(&server, LONG).await;
    let other = FairLock::connect(options(&server)).await.expect("a lock");
    let [holder, first, second] = [claim(1), claim(1), claim(1)];
    take(&lock, &holder, LONG).await;
    queue_up(&lock, &first).await;
    let mut watch = other.watch(&key(1));
    queue_up(&other, &second).await;
    free(&lock, &holder).await;
    assert_eq!(lock.release(first).await.expect("an answer"), Released::NotHeld);
    timeout(LONG, watch.changed()).await.expect("it is its turn");
    take(&other, &second, LONG).await;
}

#[tokio::test]
async fn five_hundred_waiters_are_served_one_after_the_other_in_their_order() {
    let server = RedisServer::start();
    let lock = lock(&server, LONG).await;
    let claims: Vec<_> = (0..500).map(|_| claim(1)).collect();
    take(&lock, &claims[0], LONG).await;
    for (ahead, waiter) in (1..).zip(&claims[1..]) {
        assert_eq!(queue_up(&lock, waiter).await.ahead, Some(ahead));
    }
    let last = claims.last().expect("500");
    for (holder, next) in claims.iter().zip(&claims[1..]) {
        free(&lock, holder).await;
        if next.token() != last.token() {
            queue_up(&lock, last).await;
        }
        take(&lock, next, LONG).await;
    }
    assert_eq!(waiting(&server), 0);
}

#[tokio::test]
async fn a_silence_out_of_range_is_refused() {
    let options = || FairLockOptions::new("redis://127.0.0.1:1", "test").expect("an address");
    assert!(FairLock::connect_lazily(options().silence(Duration::ZERO)).is_err());
    assert!(FairLock::connect_lazily(options().silence(Duration::from_secs(601))).is_err());
    assert!(FairLock::connect_lazily(options().silence(Duration::from_secs(600))).is_ok());
}
