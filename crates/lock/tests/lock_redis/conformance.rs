//! Every lock in Redis keeps the contract of locks.

use bellwether_lock::{
    FairLock, Lock, RedisLock, Redlock, ReentrantLock, conformance::Conformance,
};
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::within;

use crate::world::options;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn redis_lock_keeps_the_contract() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    assert_eq!(Conformance::of(lock).fenced().exclusive().take_over().run().await, []);
}

#[tokio::test]
async fn redis_lock_keeps_the_contract_over_resp2() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server).resp2()).await.expect("a lock");
    assert_eq!(Conformance::of(lock).take_over().run().await, []);
}

#[tokio::test]
async fn reentrant_and_fair_locks_keep_the_contract_over_resp2() {
    let server = RedisServer::start();
    let lock = ReentrantLock::connect(options(&server).resp2()).await.expect("a lock");
    assert_eq!(Conformance::of(lock).reentrant().run().await, []);
    let lock = FairLock::connect(options(&server).resp2()).await.expect("a lock");
    assert_eq!(Conformance::of(lock).queue().run().await, []);
}

#[tokio::test]
async fn reentrant_lock_keeps_the_contract() {
    let server = RedisServer::start();
    let lock = ReentrantLock::connect(options(&server)).await.expect("a lock");
    assert_eq!(Conformance::of(lock).fenced().reentrant().run().await, []);
}

#[tokio::test]
async fn fair_lock_keeps_the_contract() {
    let server = RedisServer::start();
    let lock = FairLock::connect(options(&server)).await.expect("a lock");
    assert_eq!(Conformance::of(lock).fenced().exclusive().queue().run().await, []);
}

#[tokio::test]
async fn redlock_keeps_the_contract() {
    let servers = [(); 5].map(|()| RedisServer::start());
    let lock = Redlock::connect(servers.iter().map(options)).await.expect("a lock");
    assert_eq!(Conformance::of(lock).exclusive().run().await, []);
}

#[tokio::test]
async fn a_holder_paused_for_its_lease_knows_of_the_loss() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let options = || options(&servers[0]);
    let term = Duration::from_millis(300);
    let locks: [Arc<dyn Lock>; 4] = [
        Arc::new(RedisLock::connect(options()).await.expect("a lock")),
        Arc::new(FairLock::connect(options()).await.expect("a lock")),
        Arc::new(ReentrantLock::connect(options()).await.expect("a lock")),
        Arc::new(Redlock::connect(servers.iter().map(crate::world::options)).await.expect("it")),
    ];
    for lock in locks {
        assert_eq!(Conformance::of(lock).run_standing_still(term).await, []);
    }
}

#[tokio::test]
async fn nothing_is_left_but_one_fence_per_slot_and_not_for_ever() {
    let server = RedisServer::start();
    let options = || options(&server).timeout(Duration::from_secs(1));
    let redis = RedisLock::connect(options()).await.expect("a lock");
    let fair = FairLock::connect(options()).await.expect("a lock");
    let reentrant = ReentrantLock::connect(options()).await.expect("a lock");
    assert_eq!(Conformance::of(redis).fenced().run().await, []);
    assert_eq!(Conformance::of(fair).fenced().queue().run().await, []);
    assert_eq!(Conformance::of(reentrant).reentrant().run().await, []);
    let names = || match server.command(&["KEYS", "*"]) {
        Reply::Array(names) => names.into_iter().map(Reply::text).collect::<Vec<_>>(),
        other => panic!("no list of names: {other:?}"),
    };
    let is_mark = |name: &String| name.starts_with("bw:test:fence:{");
    within(Duration::from_secs(15), || names().iter().all(is_mark)).await;
    let marks = names();
    assert!(!marks.is_empty());
    for mark in marks {
        let Reply::Integer(left) = server.command(&["TTL", &mark]) else { panic!("no life") };
        // A day after the last grant, and an hour more.
        assert!((86_400..=90_000).contains(&left), "{mark}: {left} s");
    }
}
