//! Where the server reports no changes, the script that frees a lock publishes a message to the
//! processes that wait for it.

use std::sync::Arc;

use bellwether::store::Renew;
use bellwether_lock::{Attempt, FairLock, Lock, RedisLock, ReentrantLock, Request, TakeOver};
use bellwether_testkit::servers::{RedisServer, Reply};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::world::{LONG, busy, claim, free, key, options, queue_up, take};

async fn over_resp2(server: &RedisServer) -> RedisLock {
    RedisLock::connect(options(server).resp2()).await.expect("a lock")
}

/// Two locks of each kind with messages, as two processes have them.
async fn pairs(server: &RedisServer) -> Vec<[Arc<dyn Lock>; 2]> {
    let options = || options(server).resp2();
    let mut pairs: Vec<[Arc<dyn Lock>; 2]> = Vec::new();
    let redis = async || Arc::new(RedisLock::connect(options()).await.expect("a lock"));
    pairs.push([redis().await, redis().await]);
    let fair = async || Arc::new(FairLock::connect(options()).await.expect("a lock"));
    pairs.push([fair().await, fair().await]);
    let reentrant = async || Arc::new(ReentrantLock::connect(options()).await.expect("a lock"));
    pairs.push([reentrant().await, reentrant().await]);
    pairs
}

/// The number of messages that scripts have published.
fn messages(server: &RedisServer) -> u64 {
    let stats = server.info("commandstats", "cmdstat_publish").unwrap_or_default();
    let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// The length of the lock with the marks of waiters.
fn length(server: &RedisServer) -> Reply {
    server.command(&["STRLEN", &format!("bw:test:{{{}}}:lock", key(1).digest())])
}

#[tokio::test]
async fn a_waiter_without_tracking_is_told_by_one_message_that_the_lock_is_free() {
    let server = RedisServer::start();
    for [holder, waiter] in pairs(&server).await {
        let (ours, theirs) = (claim(1), claim(1));
        take(&*holder, &ours, LONG).await;
        let before = messages(&server);
        let mut watch = waiter.watch(&key(1));
        assert!(!watch.is_silent(), "{waiter:?}");
        queue_up(&*waiter, &theirs).await;
        queue_up(&*waiter, &theirs).await;
        free(&*holder, &ours).await;
        timeout(LONG, watch.changed()).await.expect("a message");
        assert_eq!(messages(&server) - before, 1, "{holder:?}");
        take(&*waiter, &theirs, LONG).await;
        free(&*waiter, &theirs).await;
        assert_eq!(messages(&server) - before, 1, "{holder:?}");
    }
}

#[tokio::test]
async fn free_locks_cost_no_message() {
    let server = RedisServer::start();
    for [lock, _] in pairs(&server).await {
        let before = messages(&server);
        for number in 0..10 {
            let ours = claim(number);
            take(&*lock, &ours, LONG).await;
            free(&*lock, &ours).await;
        }
        assert_eq!(messages(&server), before, "{lock:?}");
    }
}

#[tokio::test]
async fn waiters_with_and_without_tracking_wait_for_one_lock() {
    let server = RedisServer::start();
    let tracked = RedisLock::connect(options(&server)).await.expect("a lock");
    let told = over_resp2(&server).await;
    let holder = over_resp2(&server).await;
    let ours = claim(1);
    take(&holder, &ours, LONG).await;
    let mut watches = [tracked.watch(&key(1)), told.watch(&key(1))];
    busy(&told, &claim(1)).await;
    busy(&tracked, &claim(1)).await;
    free(&holder, &ours).await;
    for watch in &mut watches {
        timeout(LONG, watch.changed()).await.expect("a message");
    }
}

#[tokio::test]
async fn a_lock_with_tracking_has_no_subscription() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let ours = claim(1);
    take(&lock, &ours, LONG).await;
    busy(&lock, &claim(1)).await;
    assert_eq!(server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).text(), "");
    assert_eq!(length(&server), Reply::Integer(32));
}

#[tokio::test]
async fn marks_outlive_a_renewal_a_repeated_request_and_a_take_over() {
    let server = RedisServer::start();
    let (holder, waiter) = (over_resp2(&server).await, over_resp2(&server).await);
    let (ours, theirs) = (claim(1), claim(1));
    let first = take(&holder, &ours, LONG).await;
    let mut watch = waiter.watch(&key(1));
    busy(&waiter, &claim(1)).await;
    let again = take(&holder, &ours, LONG).await;
    assert_eq!(again.fence, first.fence);
    assert_eq!(holder.renew(&ours, LONG).await.expect("an answer"), Renew::Held);
    assert_eq!(length(&server), Reply::Integer(48));
    let silent = busy(&waiter, &claim(1)).await.holder.expect("a holder");
    assert_eq!(Some(silent.grant), first.fence);
    let taken = holder.take_over(Request::new(theirs.clone(), LONG), silent).await;
    assert!(matches!(taken, Ok(Attempt::Granted(_))), "{taken:?}");
    assert_eq!(length(&server), Reply::Integer(48));
    free(&holder, &theirs).await;
    timeout(LONG, watch.changed()).await.expect("a message");
}

/// Releases that share one script.
#[tokio::test]
async fn the_waiters_of_many_locks_that_are_freed_at_once_are_told() {
    const LOCKS: u64 = 16;
    let server = RedisServer::start();
    let (holder, waiter) = (over_resp2(&server).await, over_resp2(&server).await);
    let ours: Vec<_> = (0..LOCKS).map(claim).collect();
    join_all(ours.iter().map(|claim| take(&holder, claim, LONG))).await;
    let watches: Vec<_> = (0..LOCKS).map(|number| waiter.watch(&key(number))).collect();
    for number in 0..LOCKS {
        busy(&waiter, &claim(number)).await;
    }
    let before = messages(&server);
    join_all(ours.iter().map(|claim| free(&holder, claim))).await;
    for mut watch in watches {
        timeout(LONG, watch.changed()).await.expect("a message");
    }
    assert_eq!(messages(&server) - before, LOCKS);
}

#[tokio::test]
async fn only_the_next_waiter_of_a_fair_lock_is_told() {
    let server = RedisServer::start();
    let connect = async || FairLock::connect(options(&server).resp2()).await.expect("a lock");
    let (holder, second, third) = (connect().await, connect().await, connect().await);
    let claims = [(); 3].map(|()| claim(1));
    let before = messages(&server);
    take(&holder, &claims[0], LONG).await;
    let mut of_second = second.watch(&key(1));
    queue_up(&second, &claims[1]).await;
    let mut of_third = third.watch(&key(1));
    queue_up(&third, &claims[2]).await;
    free(&holder, &claims[0]).await;
    timeout(LONG, of_second.changed()).await.expect("a message");
    assert_eq!(messages(&server) - before, 1);
    take(&second, &claims[1], LONG).await;
    free(&second, &claims[1]).await;
    timeout(LONG, of_third.changed()).await.expect("a message");
    assert_eq!(messages(&server) - before, 2);
}
