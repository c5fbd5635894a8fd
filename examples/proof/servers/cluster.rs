//! A Redis Cluster of three primaries, each with a replica.

use std::thread::sleep;
use std::time::{Duration, Instant};

use bellwether_testkit::servers::{RedisCluster, RedisServer};
use rand::Rng;
use rand::rngs::StdRng;

use super::{Injector, pause};
use crate::faults::Loss;

const NODES: usize = 6;
const SLOTS: i64 = 16_384;
/// How long a cluster may take to be whole again.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Cluster(RedisCluster);

impl Cluster {
    pub(super) fn start() -> Self {
        Self(RedisCluster::start())
    }

    pub(super) fn url(&self) -> String {
        self.0.url()
    }

    pub(super) fn primaries(&self) -> Vec<usize> {
        primaries(&self.0)
    }

    pub(super) fn disturb(&mut self, injector: &mut Injector<'_>) {
        let fault = injector.rng.random_range(0..9);
        if fault < 4 {
            return self.replace_primary(fault, injector);
        }
        let cluster = &mut self.0;
        match fault {
            4 => injector.inject("node stopped for a moment", Loss::LastWrites, None, |rng| {
                let node = &cluster.nodes()[rng.random_range(0..NODES)];
                node.stop();
                pause(rng, 20, 400);
                node.resume();
                settle(cluster);
            }),
            5 | 6 => injector.inject("slots moved", Loss::Nothing, None, |rng| {
                for _ in 0..rng.random_range(3..30) {
                    let slot = rng.random_range(0..SLOTS);
                    let from = cluster.owner_of(slot);
                    let to = primary(cluster, rng);
                    if to != from {
                        cluster.begin_to_move(slot, to);
                        pause(rng, 0, 20);
                        while cluster.move_names(slot, to, 3) > 0 {}
                        cluster.end_move(slot, to);
                    }
                }
                settle(cluster);
            }),
            7 => injector
                .inject("FLUSHALL on all primaries", Loss::Everything, None, |_| cluster.flush()),
            _ => injector.inject("clients killed by the servers", Loss::Nothing, None, |rng| {
                let kinds = ["normal", "pubsub"];
                let kind = kinds[rng.random_range(0..kinds.len())];
                for node in cluster.nodes() {
                    _ = node.try_command(&["CLIENT", "KILL", "TYPE", kind]);
                }
            }),
        }
    }

    /// Ends with another primary, as planned or by a fault.
    fn replace_primary(&mut self, fault: i32, injector: &mut Injector<'_>) {
        let cluster = &mut self.0;
        match fault {
            0 | 1 => injector.inject("planned failover", Loss::LastWrites, None, |rng| {
                cluster.fail_over(primary(cluster, rng));
                settle(cluster);
            }),
            2 => {
                injector.inject("primary killed, replica promoted", Loss::LastWrites, None, |rng| {
                    let killed = primary(cluster, rng);
                    let replica = cluster.replica_of(killed);
                    cluster.node_mut(killed).kill();
                    cluster.await_promotion(replica);
                    pause(rng, 1, 1_000);
                    cluster.node_mut(killed).restart();
                    settle(cluster);
                })
            }
            _ => injector.inject(
                "primary stopped, replica promoted",
                Loss::LastWrites,
                None,
                |rng| {
                    let stopped = primary(cluster, rng);
                    cluster.nodes()[stopped].stop();
                    pause(rng, 1_500, 4_000);
                    cluster.nodes()[stopped].resume();
                    settle(cluster);
                },
            ),
        }
    }
}

/// The numbers of the primaries. All nodes run.
fn primaries(cluster: &RedisCluster) -> Vec<usize> {
    let is_primary =
        |node: &RedisServer| node.info("replication", "role").as_deref() == Some("master");
    let nodes = cluster.nodes().iter().enumerate();
    nodes.filter(|(_, node)| is_primary(node)).map(|(at, _)| at).collect()
}

/// Some primary.
fn primary(cluster: &RedisCluster, rng: &mut StdRng) -> usize {
    let primaries = primaries(cluster);
    primaries[rng.random_range(0..primaries.len())]
}

/// Waits until all nodes agree, and all replicas are in step.
fn settle(cluster: &RedisCluster) {
    let began = Instant::now();
    while !cluster.is_ready() {
        assert!(began.elapsed() < PATIENCE, "the cluster is not whole again");
        sleep(Duration::from_millis(50));
    }
}
