//! Locks on a cluster.

use std::time::Duration;

use bellwether_lock::redis::RedisClientOptions;
use bellwether_lock::{
    FairLock, Lock, LockErrorKind, LockWait, Locks, RedisLock, Redlock, ReentrantLock,
    conformance::Conformance,
};
use bellwether_testkit::servers::RedisCluster;
use tokio::time::timeout;

use crate::world::{LONG, claim, free, key, options_of, take};

#[tokio::test]
async fn redis_lock_keeps_the_contract_on_a_cluster() {
    let cluster = RedisCluster::start();
    let lock = RedisLock::connect(options_of(&cluster.url())).await.expect("a lock");
    assert_eq!(Conformance::of(lock).fenced().exclusive().take_over().run().await, []);
}

#[tokio::test]
async fn reentrant_lock_keeps_the_contract_on_a_cluster() {
    let cluster = RedisCluster::start();
    let lock = ReentrantLock::connect(options_of(&cluster.url())).await.expect("a lock");
    assert_eq!(Conformance::of(lock).fenced().reentrant().run().await, []);
}

#[tokio::test]
async fn fair_lock_keeps_the_contract_on_a_cluster() {
    let cluster = RedisCluster::start();
    let lock = FairLock::connect(options_of(&cluster.url())).await.expect("a lock");
    assert_eq!(Conformance::of(lock).fenced().exclusive().queue().run().await, []);
}

#[tokio::test]
async fn fences_grow_through_the_move_of_a_slot() {
    let cluster = RedisCluster::start();
    let lock = RedisLock::connect(options_of(&cluster.url())).await.expect("a lock");
    let claim = claim(1);
    let name = format!("{{{}}}", claim.key().digest());
    let mut last = 0;
    for to in [0, 1, 2] {
        let fence = take(&lock, &claim, LONG).await.fence.expect("a fence");
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        free(&lock, &claim).await;
        if cluster.owner(&name) != to {
            cluster.move_slot(cluster.slot(&name), to);
        }
    }
}

/// A free key cannot be taken while its slot moves, because the counter of fences exists on one node
/// only. A caller that waits gets it after the move.
async fn waits_through_a_move<L: Lock>(cluster: &RedisCluster, lock: L) {
    let locks = Locks::new(lock);
    locks.lock(&key(1)).await.expect("a free key").release().await.expect("an answer");
    let name = format!("{{{}}}", key(1).digest());
    let slot = cluster.slot(&name);
    let to = (cluster.owner_of(slot) + 1) % 3;
    cluster.begin_to_move(slot, to);
    let error = locks.try_lock(&key(1)).await.expect_err("its slot is moving");
    assert_eq!(error.kind(), LockErrorKind::NotReady, "{error}");
    assert!(error.to_string().contains("its slot is moving"), "{error}");
    let brief = locks.clone().wait(LockWait::at_most(Duration::from_secs(2)));
    let error = brief.lock(&key(1)).await.expect_err("its slot is moving");
    assert_eq!(error.kind(), LockErrorKind::TimedOut, "{error}");
    assert!(error.to_string().contains("its slot is moving"), "{error}");
    let patient = locks.clone().wait(LockWait::at_most(LONG));
    let key = key(1);
    let mut waiting = Box::pin(patient.lock(&key));
    timeout(Duration::from_secs(1), &mut waiting).await.expect_err("it waits");
    while cluster.move_names(slot, to, 100) > 0 {}
    timeout(Duration::from_secs(1), &mut waiting).await.expect_err("it waits");
    cluster.end_move(slot, to);
    waiting.await.expect("the key, after the move").release().await.expect("an answer");
}

#[tokio::test]
async fn a_caller_that_waits_gets_a_free_key_after_the_move_of_its_slot() {
    let cluster = RedisCluster::start();
    // Shorter than the waits, so that the error of a request is seen.
    let timeout = |options: RedisClientOptions| options.timeout(Duration::from_secs(1));
    let options = || timeout(options_of(&cluster.url()));
    waits_through_a_move(&cluster, RedisLock::connect(options()).await.expect("a lock")).await;
    waits_through_a_move(&cluster, FairLock::connect(options()).await.expect("a lock")).await;
    waits_through_a_move(&cluster, ReentrantLock::connect(options()).await.expect("a lock")).await;
}

#[tokio::test]
async fn fences_grow_through_a_planned_failover() {
    let cluster = RedisCluster::start();
    let lock = RedisLock::connect(options_of(&cluster.url())).await.expect("a lock");
    let claim = claim(1);
    let before = take(&lock, &claim, LONG).await.fence.expect("a fence");
    cluster.fail_over(cluster.owner(&format!("{{{}}}", claim.key().digest())));
    free(&lock, &claim).await;
    let after = take(&lock, &claim, LONG).await.fence.expect("a fence");
    assert!(after > before, "{after} after {before}");
}

#[tokio::test]
async fn a_cluster_is_no_node_of_a_redlock() {
    let address = |host| options_of(&format!("redis-cluster://{host}"));
    let error = Redlock::connect_lazily(["a", "b", "c"].map(address)).expect_err("three clusters");
    assert!(error.to_string().contains("must be one server"), "{error}");
}
