//! A real Redis or Valkey cluster of a test's own: three primaries, each with a replica.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use super::guarded::{free_port, wait_until};
use super::redis::RedisServer;
use super::resp2::Reply;

/// A running cluster. The first half of its nodes begin as primaries, the others as their replicas.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

/// The number of primaries at the start, and of replicas.
const PRIMARIES: usize = 3;

/// The number of hash slots.
const SLOTS: usize = 16_384;

/// What every node is started with. A primary that is silent for half a second is replaced. Replicas
/// are in step at once.
const OPTIONS: [&str; 6] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "500",
    "--repl-diskless-sync-delay",
    "0",
];

impl RedisCluster {
    /// Starts three primaries, each with a third of the slots and a replica.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts them with options of their command lines, like `["--appendonly", "yes"]`.
    pub fn start_with(options: &[&str]) -> Self {
        let options = [&OPTIONS[..], options].concat();
        let node = |_| RedisServer::start_on(free_cluster_port, &options);
        let cluster = Self { nodes: (0..2 * PRIMARIES).map(node).collect() };
        cluster.join();
        wait_until("the cluster is ready", || cluster.is_ready());
        cluster
    }

    fn join(&self) {
        let [first, ..] = &self.nodes[..] else { return };
        for (number, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            first.command(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()]);
        }
        for (number, primary) in self.nodes[..PRIMARIES].iter().enumerate() {
            let share = |number: usize| number * SLOTS / PRIMARIES;
            add_slots(primary, share(number)..share(number + 1));
        }
        let (primaries, replicas) = self.nodes.split_at(PRIMARIES);
        for (replica, primary) in replicas.iter().zip(primaries) {
            let id = id(primary);
            let replicate = || replica.try_command(&["CLUSTER", "REPLICATE", &id]).is_ok();
            wait_until("the replica knows its primary", replicate);
        }
    }

    /// Whether all nodes agree that all slots are served, and the replicas are in step.
    pub fn is_ready(&self) -> bool {
        let is_whole = |node: &RedisServer| {
            let info = node.command(&["CLUSTER", "INFO"]).text();
            info.contains("cluster_state:ok") && info.contains("cluster_size:3")
        };
        let is_in_step = |node: &RedisServer| {
            node.info("replication", "role").as_deref() == Some("master")
                || node.info("replication", "master_link_status").as_deref() == Some("up")
        };
        let nodes: Vec<_> = self.nodes.iter().filter(|node| node.is_running()).collect();
        nodes.iter().all(|node| is_whole(node) && is_in_step(node))
    }

    /// Its address, by all nodes.
    pub fn url(&self) -> String {
        let node = |node: &RedisServer| format!("127.0.0.1:{}", node.port());
        let nodes: Vec<_> = self.nodes.iter().map(node).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// The nodes, in the order in which they were started.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// A node, to kill or to restart.
    pub fn node_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.nodes[number]
    }

    /// The number of the node that owns the slot of a name, as a running node knows it.
    pub fn owner(&self, name: &str) -> usize {
        self.owner_of(self.slot(name))
    }

    /// The slot of a name.
    pub fn slot(&self, name: &str) -> i64 {
        let node = self.nodes.iter().find(|node| node.is_running()).expect("a node that runs");
        match node.command(&["CLUSTER", "KEYSLOT", name]) {
            Reply::Integer(slot) => slot,
            other => panic!("no slot: {other:?}"),
        }
    }

    /// The number of the node that owns a slot, as a running node knows it.
    pub fn owner_of(&self, slot: i64) -> usize {
        let node = self.nodes.iter().find(|node| node.is_running()).expect("a node that runs");
        let Reply::Array(ranges) = node.command(&["CLUSTER", "SLOTS"]) else { panic!("no slots") };
        let port = ranges.iter().find_map(|range| port_of_owner(range, slot)).expect("an owner");
        self.nodes.iter().position(|node| node.port() == port).expect("one of the nodes")
    }

    /// The number of the replica of a primary.
    pub fn replica_of(&self, primary: usize) -> usize {
        let port = self.nodes[primary].port().to_string();
        let is_its_replica = |node: &RedisServer| {
            node.is_running() && node.info("replication", "master_port").as_ref() == Some(&port)
        };
        self.nodes.iter().position(is_its_replica).expect("a replica")
    }

    /// Has a replica take the place of its primary, which hands over in peace. Waits until it has.
    pub fn fail_over(&self, primary: usize) -> usize {
        let replica = self.replica_of(primary);
        self.nodes[replica].command(&["CLUSTER", "FAILOVER"]);
        self.await_promotion(replica);
        replica
    }

    /// Waits until a node is a primary.
    pub fn await_promotion(&self, replica: usize) {
        let role = || self.nodes[replica].info("replication", "role");
        wait_until("the replica is promoted", || role().as_deref() == Some("master"));
    }

    /// Begins to move a slot: names that are not on its owner any more are asked for at `to`.
    pub fn begin_to_move(&self, slot: i64, to: usize) {
        let from = self.owner_of(slot);
        let [source, target] = [from, to].map(|node| &self.nodes[node]);
        let slot = slot.to_string();
        target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]);
        source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]);
    }

    /// Moves up to `count` names of a slot that is moving, and returns how many there were.
    pub fn move_names(&self, slot: i64, to: usize, count: usize) -> usize {
        let source = &self.nodes[self.owner_of(slot)];
        let [slot, count] = [slot.to_string(), count.to_string()];
        let names = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, &count]);
        let Reply::Array(names) = names else { panic!("no names") };
        let names: Vec<_> = names.into_iter().map(Reply::text).collect();
        if !names.is_empty() {
            let port = self.nodes[to].port().to_string();
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"].into_iter();
            let migrate: Vec<_> = migrate.chain(names.iter().map(|name| &**name)).collect();
            source.command(&migrate);
        }
        names.len()
    }

    /// Moves a slot with its names.
    pub fn move_slot(&self, slot: i64, to: usize) {
        self.begin_to_move(slot, to);
        while self.move_names(slot, to, 100) > 0 {}
        self.end_move(slot, to);
    }

    /// Gives a slot that has moved its new owner.
    pub fn end_move(&self, slot: i64, to: usize) {
        let id = id(&self.nodes[to]);
        let set = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id];
        // First the new owner, so that there is one at any time.
        self.nodes[to].command(&set);
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            // Replicas refuse it, and are told by their primaries.
            _ = node.try_command(&set);
        }
    }

    /// Has all primaries drop all names.
    pub fn flush(&self) {
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            _ = node.try_command(&["FLUSHALL"]);
        }
    }
}

impl RedisServer {
    /// Makes a server that was started with `--cluster-enabled yes` a cluster of its own. It serves
    /// requests a moment later.
    pub fn own_all_slots(&self) {
        add_slots(self, 0..SLOTS);
    }
}

/// One by one, because Redis 6.2 takes no ranges.
fn add_slots(node: &RedisServer, slots: Range<usize>) {
    let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
    let add = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(|slot| &**slot));
    node.command(&add.collect::<Vec<_>>());
}

fn id(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"]).text()
}

/// The port of the owner of a range of `CLUSTER SLOTS`, if a slot is in it.
fn port_of_owner(range: &Reply, slot: i64) -> Option<u16> {
    let Reply::Array(fields) = range else { return None };
    let [Reply::Integer(first), Reply::Integer(last), Reply::Array(owner), ..] = &**fields else {
        return None;
    };
    let [_, Reply::Integer(port), ..] = &**owner else { return None };
    (*first..=*last).contains(&slot).then(|| u16::try_from(*port).expect("a port"))
}

/// A free port whose bus port, 10,000 above it, is free as well.
pub fn free_cluster_port() -> u16 {
    loop {
        let port = free_port();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port + 10_000)).is_ok() {
            return port;
        }
    }
}
