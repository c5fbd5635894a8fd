//! A holder tracks its own key: a push message reports a loss at once, before its next renewal.

use std::time::Duration;

use bellwether_lock::{
    FairLock, Lock, LockErrorKind, LockWait, Locks, RedisLock, Redlock, ReentrantLock, Released,
};
use bellwether_testkit::servers::RedisServer;
use bellwether_testkit::wait::within;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::world::{LONG, key, options};

/// Much longer than a push message takes, and much shorter than a third of a lease.
const SOON: Duration = Duration::from_secs(8);

/// Renewed every 20 s.
fn locks<L: Lock>(lock: L) -> Locks<L> {
    Locks::builder(lock).lease(LONG).build().expect("a lease").wait(LockWait::at_most(LONG))
}

/// How many names a server tracks.
fn tracked(server: &RedisServer) -> u64 {
    let names = server.info("stats", "tracking_total_keys").expect("a figure");
    names.parse().expect("a number")
}

async fn is_notified(servers: &[RedisServer], lock: impl Lock, lose: impl Fn(&RedisServer)) {
    let locks = locks(lock);
    let held = locks.lock(&key(1)).await.expect("a lock");
    for server in servers {
        within(SOON, || tracked(server) > 0).await;
    }
    // The requests of the beginning are over.
    sleep(Duration::from_millis(300)).await;
    assert!(!held.is_lost());
    servers.iter().for_each(lose);
    timeout(SOON, held.lost()).await.expect("it is notified long before the next renewal");
    assert!(held.is_lost());
    assert_eq!(held.release().await.expect("an answer"), Released::NotHeld);
}

fn delete(suffix: &'static str) -> impl Fn(&RedisServer) {
    move |server| {
        let name = format!("bw:test:{{{}}}:{suffix}", key(1).digest());
        server.command(&["DEL", &name]);
    }
}

#[tokio::test]
async fn a_holder_whose_key_was_deleted_is_notified_at_once() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let one = &servers[..1];
    let options = || options(&servers[0]);
    let redis = RedisLock::connect(options()).await.expect("a lock");
    is_notified(one, redis, delete("lock")).await;
    let fair = FairLock::connect(options()).await.expect("a lock");
    is_notified(one, fair, delete("fair")).await;
    let reentrant = ReentrantLock::connect(options()).await.expect("a lock");
    is_notified(one, reentrant, delete("holds")).await;
    let nodes = servers.iter().map(crate::world::options);
    is_notified(&servers, Redlock::connect(nodes).await.expect("a lock"), delete("redlock")).await;
}

#[tokio::test]
async fn a_holder_whose_server_lost_its_data_is_notified_at_once() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let flush = |server: &RedisServer| drop(server.command(&["FLUSHALL"]));
    is_notified(std::slice::from_ref(&server), lock, flush).await;
}

#[tokio::test]
async fn a_holder_whose_key_was_deleted_right_after_the_grant_is_notified_soon() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let held = locks(lock).lock(&key(1)).await.expect("a lock");
    delete("lock")(&server);
    timeout(SOON, held.lost()).await.expect("it is notified long before the next renewal");
}

#[tokio::test]
async fn work_whose_key_was_deleted_is_dropped_at_once() {
    let server = RedisServer::start();
    let locks = locks(RedisLock::connect(options(&server)).await.expect("a lock"));
    let (begun, begins) = oneshot::channel();
    let work = async {
        begun.send(()).expect("it is waited for");
        std::future::pending::<()>().await
    };
    let task = tokio::spawn(async move { locks.run(&key(1), work).await });
    begins.await.expect("it begins");
    within(SOON, || tracked(&server) > 0).await;
    delete("lock")(&server);
    let ran = timeout(SOON, task).await.expect("it is notified").expect("no panic");
    assert_eq!(ran.expect_err("a loss").kind(), LockErrorKind::Lost);
}

#[tokio::test]
async fn a_majority_that_still_holds_it_is_no_loss() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let lock = Redlock::connect(servers.iter().map(options)).await.expect("a lock");
    let held = locks(lock).lock(&key(1)).await.expect("a lock");
    for server in &servers {
        within(SOON, || tracked(server) > 0).await;
    }
    delete("redlock")(&servers[0]);
    sleep(Duration::from_millis(300)).await;
    assert!(!held.is_lost());
    delete("redlock")(&servers[1]);
    timeout(SOON, held.lost()).await.expect("it is notified long before the next renewal");
}

/// The holder's own renewal sends it a push message as well, which ends the tracking.
#[tokio::test]
async fn a_holder_is_notified_of_a_deletion_after_each_renewal() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let locks = Locks::builder(lock).lease(Duration::from_millis(900)).build().expect("a lease");
    let held = locks.lock(&key(1)).await.expect("a lock");
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        within(SOON, || tracked(&server) > 0).await;
        sleep(Duration::from_millis(50)).await;
    }
    assert!(!held.is_lost());
    // It is renewed three times a second, and read after that: no request causes another without
    // end.
    let scripts = server.info("commandstats", "cmdstat_evalsha").expect("a figure");
    let calls = scripts.split(',').find_map(|field| field.strip_prefix("calls="));
    let calls: u32 = calls.expect("a count").parse().expect("a number");
    assert!(calls < 40, "{calls} scripts in {:?}", began.elapsed());
}

/// A server that sends no push messages: a loss takes as long as without tracking.
#[tokio::test]
async fn without_push_messages_a_loss_is_found_by_the_next_renewal() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server).resp2()).await.expect("a lock");
    let locks = Locks::builder(lock).lease(Duration::from_secs(3)).build().expect("a lease");
    let held = locks.lock(&key(1)).await.expect("a lock");
    delete("lock")(&server);
    timeout(SOON, held.lost()).await.expect("it is notified by the next renewal");
}

#[tokio::test]
async fn a_short_hold_of_a_free_lock_costs_two_scripts_and_is_not_tracked() {
    let server = RedisServer::start();
    let locks = locks(RedisLock::connect(options(&server)).await.expect("a lock"));
    let calls = || {
        let scripts = server.info("commandstats", "cmdstat_evalsha").expect("a figure");
        let calls = scripts.split(',').find_map(|field| field.strip_prefix("calls="));
        calls.expect("a count").parse::<u32>().expect("a number")
    };
    let before = calls();
    for _ in 0..10 {
        locks.run(&key(1), async {}).await.expect("a lock");
    }
    assert_eq!((calls() - before, tracked(&server)), (20, 0));
}
