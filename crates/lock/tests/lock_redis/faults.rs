//! Connections that break, servers that are paused or go away, replies that are lost or wrong.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether::store::Renew;
use bellwether_lock::{
    FairLock, Lock, LockErrorKind, LockWait, Locks, RedisLock, Redlock, ReentrantLock, Released,
};
use bellwether_testkit::faults::{FaultProxy, Replacement};
use bellwether_testkit::servers::{RedisServer, free_port};
use tokio::time::{sleep, timeout};

use crate::world::{LONG, attempt, busy, claim, free, key, options, options_of, take, wait};

async fn proxy(server: &RedisServer) -> FaultProxy {
    FaultProxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await
}

/// Of every kind, over a proxy.
async fn locks(proxy: &FaultProxy) -> [Box<dyn Lock>; 3] {
    let options = || options_of(&proxy.url());
    [
        Box::new(RedisLock::connect(options()).await.expect("a lock")),
        Box::new(FairLock::connect(options()).await.expect("a lock")),
        Box::new(ReentrantLock::connect(options()).await.expect("a lock")),
    ]
}

#[tokio::test]
async fn a_release_whose_answer_was_lost_is_no_loss_to_its_holder() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    for lock in locks(&proxy).await {
        let locks = Locks::new(Arc::<dyn Lock>::from(lock));
        for _ in 0..5 {
            let held = locks.lock(&key(1)).await.expect("a lock");
            // Only the first byte of the next reply arrives.
            proxy.cut_after(1);
            assert_eq!(held.release().await.expect("an answer"), Released::Freed);
            proxy.heal();
        }
    }
}

#[tokio::test]
async fn what_a_release_did_whose_answer_was_lost_is_said_to_be_unknown() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    for lock in locks(&proxy).await {
        let ours = claim(1);
        take(&*lock, &ours, LONG).await;
        proxy.cut_after(1);
        let error = lock.release(ours.clone()).await.expect_err("no answer");
        assert_eq!(error.kind(), LockErrorKind::Unreachable, "{error}");
        proxy.heal();
        let again = lock.release(ours).await.expect("an answer");
        assert_eq!(again, Released::NotHeld, "of another release");
        let next = claim(1);
        take(&*lock, &next, LONG).await;
        free(&*lock, &next).await;
    }
}

#[tokio::test]
async fn a_grant_whose_answer_was_lost_is_granted_when_it_is_asked_again_and_once() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    for lock in locks(&proxy).await {
        let ours = claim(1);
        proxy.cut_after(1);
        take(&*lock, &ours, LONG).await;
        proxy.heal();
        busy(&*lock, &claim(1)).await;
        free(&*lock, &ours).await;
        let next = claim(1);
        take(&*lock, &next, LONG).await;
        free(&*lock, &next).await;
    }
}

#[tokio::test]
async fn a_lock_is_not_lost_with_its_connection() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    for lock in locks(&proxy).await {
        let ours = claim(1);
        let fence = take(&*lock, &ours, LONG).await.fence;
        for _ in 0..3 {
            proxy.cut();
            assert_eq!(lock.renew(&ours, LONG).await.expect("an answer"), Renew::Held);
        }
        assert_eq!(take(&*lock, &ours, LONG).await.fence, fence);
        free(&*lock, &ours).await;
    }
}

/// A push message that is sent while the connection is broken is not sent again.
#[tokio::test]
async fn a_waiter_whose_connection_breaks_asks_again_and_is_granted_a_freed_key() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    let direct = RedisLock::connect(options(&server)).await.expect("a lock");
    for round in 0..5 {
        let holder = claim(round);
        take(&direct, &holder, LONG).await;
        let [lock, ..] = locks(&proxy).await;
        let waiter = claim(round);
        let waits = async {
            let mut watch = lock.watch(&key(round));
            busy(&*lock, &waiter).await;
            proxy.silence();
            free(&direct, &holder).await;
            proxy.cut();
            proxy.heal();
            // The end of the connection wakes all waiters.
            watch.changed().await;
            wait(&*lock, &waiter, LONG).await;
        };
        timeout(LONG / 4, waits).await.expect("it is notified");
    }
}

#[tokio::test]
async fn a_renewal_that_fails_leaves_the_lock_held_and_is_no_loss() {
    let server = RedisServer::start();
    let options = options(&server).timeout(Duration::from_millis(100));
    let lock = RedisLock::connect(options).await.expect("a lock");
    let ours = claim(1);
    take(&lock, &ours, LONG).await;
    server.stop();
    let error = lock.renew(&ours, LONG).await.expect_err("the server is paused");
    assert_eq!(error.kind(), LockErrorKind::NoReply, "{error}");
    server.resume();
    busy(&lock, &claim(1)).await;
    assert_eq!(lock.renew(&ours, LONG).await.expect("an answer"), Renew::Held);
}

#[tokio::test]
async fn a_server_that_was_never_there_is_an_error_in_time_and_soon_at_once() {
    let budget = Duration::from_millis(250);
    let url = format!("redis://127.0.0.1:{}", free_port());
    let lock = RedisLock::connect_lazily(options_of(&url).timeout(budget)).expect("options");
    let mut kinds = Vec::new();
    for _ in 0..8 {
        let began = Instant::now();
        let error = attempt(&lock, &claim(1), LONG).await.expect_err("no server is there");
        assert!(began.elapsed() < budget * 2, "{:?}", began.elapsed());
        kinds.push(error.kind());
    }
    assert_eq!(kinds[0], LockErrorKind::Unreachable);
    assert_eq!(kinds[7], LockErrorKind::Down);
}

/// With its data on disk, a lock that was held is still held.
#[tokio::test]
async fn a_server_that_restarts_with_its_data_while_one_holds_and_one_waits_loses_neither() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let lock = FairLock::connect(options(&server)).await.expect("a lock");
    let holder = claim(1);
    let waiter = claim(1);
    let first = take(&lock, &holder, LONG).await.fence;
    crate::world::queue_up(&lock, &waiter).await;
    server.restart();
    assert_eq!(lock.renew(&holder, LONG).await.expect("an answer"), Renew::Held);
    let stranger = claim(1);
    assert_eq!(crate::world::queue_up(&lock, &stranger).await.ahead, Some(2));
    free(&lock, &holder).await;
    let second = wait(&lock, &waiter, LONG).await.fence;
    assert!(second > first, "{second:?} after {first:?}");
}

/// A rival that already waits gets the key as soon as the server is back.
#[tokio::test]
async fn a_holder_learns_soon_that_the_server_came_back_without_its_data() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    for kind in ["redis", "fair", "reentrant", "redlock"] {
        let connect = async || {
            let lock: Arc<dyn Lock> = match kind {
                "redis" => {
                    Arc::new(RedisLock::connect(options(&servers[0])).await.expect("a lock"))
                }
                "fair" => Arc::new(FairLock::connect(options(&servers[0])).await.expect("a lock")),
                "reentrant" => {
                    Arc::new(ReentrantLock::connect(options(&servers[0])).await.expect("a lock"))
                }
                _ => Arc::new(Redlock::connect(servers.iter().map(options)).await.expect("a lock")),
            };
            lock
        };
        let [ours, theirs] = [connect().await, connect().await].map(Locks::new);
        let held = ours.lock(&key(1)).await.expect("it is free");
        let rival = theirs.wait(LockWait::at_most(LONG));
        let waits = tokio::spawn(async move { rival.lock(&key(1)).await });
        // The first verification subscribes to the loss.
        sleep(Duration::from_millis(300)).await;
        let down_at = Instant::now();
        for server in &mut servers {
            server.kill();
        }
        // By then it has noticed that the server is down.
        sleep(Duration::from_millis(50)).await;
        for server in &mut servers {
            server.restart();
        }
        let down = down_at.elapsed();
        let taken = waits.await.expect("no panic").expect("it is free");
        let taken_at = Instant::now();
        timeout(LONG, held.lost()).await.expect("it is lost");
        let both = taken_at.elapsed();
        eprintln!("{kind}: down for {down:?}, both were sure for {both:?}");
        assert!(both < down + Duration::from_millis(250), "{kind}: {both:?} after {down:?}");
        taken.release().await.expect("an answer");
    }
}

#[tokio::test]
async fn replies_that_make_no_sense_are_errors_and_nothing_is_held_by_them() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    let nonsense: [&[u8]; 9] = [
        b"*0\r\n",
        b"*1\r\n:1\r\n",
        b"*2\r\n:1\r\n$1\r\nx\r\n",
        b"*2\r\n:1\r\n:-5\r\n",
        b"*4\r\n:2\r\n:1\r\n:1\r\n:-9\r\n",
        b":7\r\n",
        b"$-1\r\n",
        b"+OK\r\n",
        b"*3\r\n:9223372036854775807\r\n:0\r\n*0\r\n",
    ];
    for lock in locks(&proxy).await {
        for reply in nonsense {
            let replaced = proxy.replace(Replacement::of("EVALSHA", reply).times(3));
            let ours = claim(1);
            attempt(&*lock, &ours, LONG).await.expect_err("it makes no sense");
            lock.renew(&ours, LONG).await.expect_err("it makes no sense");
            lock.release(ours.clone()).await.expect_err("it makes no sense");
            assert_eq!(replaced.count(), 3);
            lock.release(ours).await.expect("an answer");
        }
        let ours = claim(1);
        take(&*lock, &ours, LONG).await;
        free(&*lock, &ours).await;
    }
}

#[tokio::test]
async fn a_release_frees_all_that_a_dropped_request_may_have_taken() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    for lock in locks(&proxy).await {
        proxy.delay(Duration::from_millis(20), Duration::from_millis(20));
        for after in [0, 5, 15, 25, 35] {
            let ours = claim(1);
            let asked = attempt(&*lock, &ours, LONG);
            let dropped = timeout(Duration::from_millis(after), asked).await.is_err();
            // Over the same connection it cannot overtake the request.
            let released = lock.release(ours).await.expect("an answer");
            assert!(dropped, "{released:?}");
            let next = claim(1);
            take(&*lock, &next, LONG).await;
            free(&*lock, &next).await;
        }
        proxy.heal();
    }
}

/// A lock's entry is small and expires by itself; a release that fails would be worse.
#[tokio::test]
async fn a_full_server_still_locks_and_frees() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    let locks = locks(&proxy).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for lock in locks {
        let ours = claim(1);
        take(&*lock, &ours, LONG).await;
        assert_eq!(lock.renew(&ours, LONG).await.expect("an answer"), Renew::Held);
        free(&*lock, &ours).await;
        free_again(&*lock).await;
    }
}

async fn free_again(lock: &dyn Lock) {
    let next = claim(1);
    take(lock, &next, LONG).await;
    free(lock, &next).await;
}
