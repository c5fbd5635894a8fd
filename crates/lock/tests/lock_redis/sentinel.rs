//! A failover that loses what the old primary had acknowledged.

use bellwether::store::Renew;
use bellwether_lock::{
    FairLock, Lock, RedisLock, ReentrantLock, Released, conformance::Conformance,
};
use bellwether_testkit::servers::{RedisServer, SentinelFleet};
use bellwether_testkit::wait::until;

use crate::world::{LONG, claim, fenced, grants, options, options_of, take};

/// A resource that remembers the largest fence it has seen, and refuses smaller ones.
struct Resource {
    fence: u64,
    value: &'static str,
}

impl Resource {
    fn write(&mut self, fence: u64, value: &'static str) -> bool {
        let is_newer = fence >= self.fence;
        if is_newer {
            *self = Self { fence, value };
        }
        is_newer
    }
}

#[tokio::test]
async fn a_failover_can_lose_a_lock_that_was_granted_and_the_fence_keeps_the_resource_right() {
    let mut fleet = SentinelFleet::start().await;
    let lock = RedisLock::connect(options(&fleet.primary)).await.expect("a lock");
    let old = claim(1);
    let next = claim(1);
    // Writes that the replica has not read are lost, and so is the buffer of its connection.
    fleet.replica.stop();
    fleet.primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    let first = take(&lock, &old, LONG).await.fence.expect("a fence");
    let mut resource = Resource { fence: first, value: "of the first" };
    fleet.primary.kill();
    fleet.replica.resume();
    fleet.replica_is_named().await;
    let is_primary = || fleet.replica.info("replication", "role").as_deref() == Some("master");
    until("the replica is promoted", is_primary).await;
    let lock = RedisLock::connect(options(&fleet.replica)).await.expect("a lock");
    // The first one still believes that it holds it.
    let second = take(&lock, &next, LONG).await.fence.expect("a fence");
    assert!(second > first, "{second} after {first}");
    assert!(resource.write(second, "of the second"));
    assert!(!resource.write(first, "of the first, late"), "the late one was let in");
    assert_eq!(resource.value, "of the second");
    // Its next request reports the loss.
    assert_eq!(lock.renew(&old, LONG).await.expect("an answer"), Renew::Lost);
    assert_eq!(lock.release(old).await.expect("an answer"), Released::NotHeld);
    assert_eq!(lock.renew(&next, LONG).await.expect("an answer"), Renew::Held);
}

#[tokio::test]
async fn a_replica_that_lacks_the_last_grants_gives_larger_fences_when_it_is_promoted() {
    let mut fleet = SentinelFleet::start().await;
    let locks = fenced(&fleet.primary).await;
    let mut lost = [0; 3];
    for (lock, last) in locks.iter().zip(&mut lost) {
        *last = grants(&**lock, 0, 3).await;
    }
    let offset = |server: &RedisServer| server.info("replication", "master_repl_offset");
    let has_all = || offset(&fleet.replica) == offset(&fleet.primary);
    until("the replica has the counter", has_all).await;
    fleet.replica.stop();
    fleet.primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    for (lock, last) in locks.iter().zip(&mut lost) {
        *last = grants(&**lock, *last, 5).await;
    }
    fleet.primary.kill();
    fleet.replica.resume();
    fleet.replica_is_named().await;
    let is_primary = || fleet.replica.info("replication", "role").as_deref() == Some("master");
    until("the replica is promoted", is_primary).await;
    for (lock, last) in fenced(&fleet.replica).await.iter().zip(lost) {
        grants(&**lock, last, 3).await;
    }
}

#[tokio::test]
async fn locks_behind_sentinels_keep_the_contract_and_move_with_the_primary() {
    let fleet = SentinelFleet::start().await;
    let options = || options_of(&fleet.url());
    let lock = RedisLock::connect(options()).await.expect("a lock");
    let fair = FairLock::connect(options()).await.expect("a lock");
    let reentrant = ReentrantLock::connect(options()).await.expect("a lock");
    assert_eq!(Conformance::of(lock.clone()).run().await, []);
    assert_eq!(Conformance::of(fair).run().await, []);
    assert_eq!(Conformance::of(reentrant).run().await, []);
    let held = claim(1);
    let first = take(&lock, &held, LONG).await.fence;
    fleet.fail_over();
    fleet.replica_is_named().await;
    // The grant was replicated before the failover.
    assert_eq!(lock.renew(&held, LONG).await.expect("an answer"), Renew::Held);
    assert_eq!(lock.release(held).await.expect("an answer"), Released::Freed);
    let second = take(&lock, &claim(1), LONG).await.fence;
    assert!(second > first, "{second:?} after {first:?}");
}
