//! Locks on a cluster.

use bellwether_lock::{FairLock, RedisLock, Redlock, ReentrantLock, conformance};
use bellwether_testkit::servers::RedisCluster;

use crate::world::{LONG, claim, free, options_of, take};

#[tokio::test]
async fn redis_lock_keeps_the_contract_on_a_cluster() {
    let cluster = RedisCluster::start();
    let lock = RedisLock::connect(options_of(&cluster.url())).await.expect("a lock");
    assert_eq!(conformance::run(lock.clone()).await, []);
    assert_eq!(conformance::run_fenced(lock.clone()).await, []);
    assert_eq!(conformance::run_exclusive(lock.clone()).await, []);
    assert_eq!(conformance::run_take_over(lock).await, []);
}

#[tokio::test]
async fn reentrant_lock_keeps_the_contract_on_a_cluster() {
    let cluster = RedisCluster::start();
    let lock = ReentrantLock::connect(options_of(&cluster.url())).await.expect("a lock");
    assert_eq!(conformance::run(lock.clone()).await, []);
    assert_eq!(conformance::run_fenced(lock.clone()).await, []);
    assert_eq!(conformance::run_reentrant(lock).await, []);
}

#[tokio::test]
async fn fair_lock_keeps_the_contract_on_a_cluster() {
    let cluster = RedisCluster::start();
    let lock = FairLock::connect(options_of(&cluster.url())).await.expect("a lock");
    assert_eq!(conformance::run(lock.clone()).await, []);
    assert_eq!(conformance::run_fenced(lock.clone()).await, []);
    assert_eq!(conformance::run_exclusive(lock.clone()).await, []);
    assert_eq!(conformance::run_queue(lock).await, []);
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
