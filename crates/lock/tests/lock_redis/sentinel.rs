//! A failover that loses what the old primary had acknowledged.

use std::time::Duration;

use bellwether::store::Renew;
use bellwether_lock::{Lock, RedisLock, Released};
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::within;

use crate::world::{LONG, claim, options, take};

const PATIENCE: Duration = Duration::from_secs(20);

/// A primary, its replica, and three sentinels that agree about both.
struct Fleet {
    primary: RedisServer,
    replica: RedisServer,
    sentinels: Vec<RedisServer>,
}

impl Fleet {
    async fn start() -> Self {
        let at_once = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
        let primary = RedisServer::start_with(&at_once);
        let port = primary.port().to_string();
        let follow = ["--replicaof", "127.0.0.1", &port];
        let replica = RedisServer::start_with(&[&at_once[..], &follow].concat());
        let is_linked = || {
            let status = replica.info("replication", "master_link_status");
            status.as_deref() == Some("up")
        };
        within(PATIENCE, is_linked).await;
        let monitor = format!("sentinel monitor ours 127.0.0.1 {port} 2");
        let lines = [
            "protected-mode no",
            &monitor,
            "sentinel down-after-milliseconds ours 500",
            "sentinel failover-timeout ours 2000",
            "sentinel parallel-syncs ours 1",
        ];
        let sentinels: Vec<_> = (0..3).map(|_| RedisServer::start_sentinel(&lines)).collect();
        let fleet = Self { primary, replica, sentinels };
        within(PATIENCE, || fleet.sentinels.iter().all(knows_all)).await;
        fleet
    }

    fn primary_port(&self) -> String {
        let primary = self.sentinels[0].command(&["SENTINEL", "get-master-addr-by-name", "ours"]);
        let Reply::Array(mut address) = primary else { panic!("{primary:?}") };
        address.pop().expect("a port").text()
    }
}

fn knows_all(sentinel: &RedisServer) -> bool {
    let Reply::Array(fields) = sentinel.command(&["SENTINEL", "master", "ours"]) else {
        return false;
    };
    let fields: Vec<_> = fields.into_iter().map(Reply::text).collect();
    let field = |name| fields.iter().position(|field| field == name).map(|at| &*fields[at + 1]);
    field("num-slaves") == Some("1") && field("num-other-sentinels") == Some("2")
}

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
    let mut fleet = Fleet::start().await;
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
    let replica = fleet.replica.port().to_string();
    within(PATIENCE, || fleet.primary_port() == replica).await;
    within(PATIENCE, || fleet.replica.info("replication", "role").as_deref() == Some("master"))
        .await;
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
