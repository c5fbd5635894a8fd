//! The servers of a run: which are primaries, what their replicas lack, and what is about to befall them.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::faults::FaultKind;
use crate::history::Shared;
use crate::host::Millis;
use crate::network::NodeId;
use crate::promises::DataLoss;
use crate::server::{
    ClusterView, ModelServer, Mutations, NamedPrimary, ServerRole, ServerVersion, Snapshot, slot_of,
};
use crate::slots::{SlotMove, SlotParts};
use crate::topology::{Topology, address};

/// The servers.
#[derive(Debug)]
pub(crate) struct ServerFleet {
    topology: Topology,
    version: ServerVersion,
    mutations: Mutations,
    shards: Vec<FleetShard>,
    /// Which shard of a cluster owns which slots, and which of them move.
    slots: SlotParts,
    moving: Option<SlotMove>,
    /// How many failovers there were.
    epoch: u64,
    /// Until when a sentinel learns of no failover.
    deaf_until: BTreeMap<NodeId, Millis>,
    /// What is about to happen, when, and by the order in which it was planned.
    planned: BTreeMap<(Millis, u64), FleetStep>,
    plans: u64,
}

/// A primary and its replica.
#[derive(Debug)]
struct FleetShard {
    primary: NodeId,
    replica: Option<NodeId>,
    /// What the primary has stored, with the times.
    stored: VecDeque<(Millis, Snapshot)>,
    /// What a restart brings back.
    saved: (Millis, Snapshot),
    /// Until when something befalls it.
    busy_until: Millis,
    /// Until when a primary of before its last failover was in use, if it kept its links.
    replaced_until: Millis,
}

#[derive(Debug)]
enum FleetStep {
    /// The primary of a shard starts again, with what it has saved or without data.
    Restart {
        shard: usize,
        has_data: bool,
    },
    /// The replica of a shard becomes its primary, with this. The old one is in use until then.
    Promote {
        shard: usize,
        stored: (Millis, Snapshot),
        until: Millis,
    },
    /// A server starts, as what it is now or as what it was.
    Start(NodeId, Option<ServerRole>),
    /// A server is told what the others are.
    Tell(NodeId),
    /// A node of a cluster takes no requests any more.
    Refuse(NodeId),
    CloseLinks(NodeId),
    /// The next name of slots that move goes to its node. After the last one, the slots do.
    MoveName {
        pause: Millis,
    },
}

impl ServerFleet {
    pub(crate) fn new(topology: Topology, version: ServerVersion, mutations: Mutations) -> Self {
        let empty = ModelServer::new(version, Mutations::clone(&mutations)).snapshot();
        let shard = |primary| FleetShard {
            primary,
            replica: topology.replica(primary),
            stored: VecDeque::new(),
            saved: (0, empty.clone()),
            busy_until: 0,
            replaced_until: 0,
        };
        Self {
            topology,
            version,
            mutations,
            shards: (0..topology.shards()).map(shard).collect(),
            slots: SlotParts::new(topology.shards()),
            moving: None,
            epoch: 0,
            deaf_until: BTreeMap::new(),
            planned: BTreeMap::new(),
            plans: 0,
        }
    }

    /// All servers, and their addresses.
    pub(crate) fn start(&self) -> Vec<(String, ModelServer)> {
        let server = |node| (address(node), self.server(self.role(node)));
        self.topology.nodes().map(server).collect()
    }

    fn server(&self, role: ServerRole) -> ModelServer {
        let mut server = ModelServer::new(self.version, Mutations::clone(&self.mutations));
        server.set_role(role);
        server
    }

    /// What a server is, if it is told now.
    fn role(&self, node: NodeId) -> ServerRole {
        if self.topology.is_cluster() {
            return ServerRole::Node(self.view(node));
        }
        let primary = self.shards[0].primary;
        match node {
            _ if node == primary => ServerRole::Primary,
            _ if self.topology.sentinels().contains(&node) => {
                let (address, epoch) = (address(primary), self.epoch);
                ServerRole::Sentinel(NamedPrimary { address, epoch })
            }
            _ => ServerRole::Replica(address(primary)),
        }
    }

    fn view(&self, node: NodeId) -> ClusterView {
        let ranges = self.slots.ranges().into_iter().map(|(slots, shard)| {
            let FleetShard { primary, replica, .. } = &self.shards[shard];
            (slots, [Some(*primary), *replica].into_iter().flatten().map(address).collect())
        });
        let moving = self.moving.as_ref().and_then(|moving| {
            let [from, to] = self.movers(moving);
            let other = if node == from { Some(to) } else { (node == to).then_some(from) };
            Some((moving.slots(), address(other?)))
        });
        ClusterView { own: address(node), ranges: ranges.collect(), moving, is_down: false }
    }

    /// The nodes between which slots move.
    fn movers(&self, moving: &SlotMove) -> [NodeId; 2] {
        [moving.from, moving.to].map(|shard| self.shards[shard].primary)
    }

    /// Whether nothing is about to happen.
    pub(crate) fn is_settled(&self) -> bool {
        self.planned.is_empty()
    }

    fn plan(&mut self, at: Millis, step: FleetStep) {
        self.plans += 1;
        self.planned.insert((at, self.plans), step);
    }

    /// Does what is due, before the servers run.
    pub(crate) fn tick(&mut self, shared: &Shared) {
        let now = shared.network.now();
        while let Some(first) = self.planned.first_entry().filter(|it| it.key().0 <= now) {
            let step = first.remove();
            shared.note(format_args!("{}", step.name()));
            self.step(step, shared, now);
        }
        if now.is_multiple_of(COPIED_EVERY) {
            let shards = self.shards.iter_mut().filter(|it| it.replica.is_some());
            shards.for_each(|it| it.copy(shared, now));
        }
    }

    /// Saves what is stored, for a restart.
    pub(crate) fn save(&mut self, shared: &Shared) {
        let now = shared.network.now();
        for FleetShard { primary, saved, .. } in &mut self.shards {
            if let Some(it) = shared.network.with(|state| state.snapshot(*primary)) {
                *saved = (now, it);
            }
        }
    }

    /// Does what a fault does to servers.
    pub(crate) fn befall(
        &mut self,
        kind: FaultKind,
        shared: &Shared,
        random: &mut SmallRng,
        processes: usize,
    ) {
        let now = shared.network.now();
        let shard = random.random_range(0..self.shards.len());
        let is_busy = self.shards[shard].busy_until >= now;
        match kind {
            FaultKind::SentinelDown => self.stop_sentinel(shared, random, now),
            FaultKind::StaleSentinel => {
                let sentinel = random.random_range(self.topology.sentinels());
                self.deaf_until.insert(sentinel, now + random.random_range(1..5_000));
            }
            _ if is_busy => {}
            FaultKind::Failover => self.fail_over(shard, shared, random, now),
            FaultKind::SplitBrain => self.split(shard, shared, random, processes, now),
            FaultKind::MoveSlots => self.move_slots(shard, 0, random, now),
            FaultKind::MigrateSlots => {
                let pause = random.random_range(1..40);
                self.move_slots(shard, pause, random, now);
            }
            _ => {
                let primary = self.shards[shard].primary;
                shared.network.with(|state| drop(state.kill(primary)));
                let at = now + random.random_range(1..1_500);
                self.shards[shard].busy_until = at;
                let has_data = kind == FaultKind::RestartOld;
                self.plan(at, FleetStep::Restart { shard, has_data });
            }
        }
    }

    /// A primary is killed. Its replica is promoted after a while, and it starts again as the replica.
    fn fail_over(&mut self, shard: usize, shared: &Shared, random: &mut SmallRng, now: Millis) {
        let Some(stored) = self.shards[shard].lagging(shared, random, now) else { return };
        let old = self.shards[shard].primary;
        shared.network.with(|state| drop(state.kill(old)));
        let at = now + random.random_range(1..1_500);
        self.plan(at, FleetStep::Promote { shard, stored, until: at });
        self.tell_others(at, old, random);
        if self.topology.is_cluster() && random.random() {
            // By default, no node takes requests while some slots have no primary.
            let others = self.topology.nodes().filter(|node| *node != old);
            others
                .for_each(|node| self.plan(random.random_range(now..at), FleetStep::Refuse(node)));
        }
        let starts_at = at + random.random_range(1..1_000);
        self.plan(starts_at, FleetStep::Start(old, None));
        self.shards[shard].busy_until = starts_at;
    }

    /// A replica is promoted while the old primary goes on. Each process reaches both sides, or one. The
    /// old primary becomes a replica when it hears of that. The sentinels have it close its
    /// links in the same transaction. In a cluster it refuses requests before.
    fn split(
        &mut self,
        shard: usize,
        shared: &Shared,
        random: &mut SmallRng,
        processes: usize,
        now: Millis,
    ) {
        let Some(stored) = self.shards[shard].lagging(shared, random, now) else { return };
        let old = self.shards[shard].primary;
        let demoted_at = now + random.random_range(2..3_000);
        let refuses_at = random.random_range(now + 1..demoted_at);
        let (until, last) = match self.topology.is_cluster() {
            true => (refuses_at, FleetStep::Refuse(old)),
            false => (demoted_at, FleetStep::CloseLinks(old)),
        };
        self.plan(now, FleetStep::Promote { shard, stored, until });
        self.tell_others(now, old, random);
        self.plan(demoted_at, FleetStep::Tell(old));
        self.plan(until, last);
        self.shards[shard].busy_until = demoted_at;
        for process in 0..processes {
            let is_severed: fn(NodeId, NodeId) -> bool = match random.random_range(0..3) {
                0 => |_, _| false,
                1 => |node, old| node == old,
                _ => |node, old| node != old,
            };
            let nodes = self.topology.nodes().filter(|node| is_severed(*node, old));
            let pairs = nodes.map(|node| ((process, node), demoted_at));
            shared.network.with(|state| state.hindrances.sever(pairs));
        }
    }

    /// The sentinels, or the other nodes of a cluster, learn of a failover: one at once, and the others
    /// within their exchange.
    fn tell_others(&mut self, at: Millis, old: NodeId, random: &mut SmallRng) {
        let (others, longest) = match self.topology {
            Topology::Cluster(_) => (self.topology.nodes(), 1_000),
            _ => (self.topology.sentinels(), 2_000),
        };
        let first = random.random_range(others.clone());
        for other in others.filter(|other| *other != old) {
            let later = random.random_range(0..longest);
            let later = if other == first { 0 } else { later };
            self.plan(at + later, FleetStep::Tell(other));
        }
    }

    fn stop_sentinel(&mut self, shared: &Shared, random: &mut SmallRng, now: Millis) {
        let sentinel = random.random_range(self.topology.sentinels());
        let at = now + random.random_range(1..4_000);
        let told_at = at + random.random_range(0..2_000);
        if let Some(server) = shared.network.with(|state| state.kill(sentinel)) {
            self.plan(at, FleetStep::Start(sentinel, Some(server.role())));
            self.plan(told_at, FleetStep::Tell(sentinel));
        }
    }

    /// Slots of a shard go to another one: at once, or name by name.
    fn move_slots(&mut self, from: usize, pause: Millis, random: &mut SmallRng, now: Millis) {
        let to = (from + random.random_range(1..self.shards.len())) % self.shards.len();
        if self.moving.is_some() || self.shards[to].busy_until >= now {
            return;
        }
        self.moving = self.slots.draw(from, to, random);
        let Some(moving) = &self.moving else { return };
        let movers = self.movers(moving);
        for shard in [from, to] {
            self.shards[shard].busy_until = Millis::MAX;
        }
        movers.into_iter().for_each(|node| self.plan(now, FleetStep::Tell(node)));
        self.plan(now + pause, FleetStep::MoveName { pause });
    }

    fn step(&mut self, step: FleetStep, shared: &Shared, now: Millis) {
        match step {
            FleetStep::Restart { shard, has_data } => self.restart(shard, has_data, shared, now),
            FleetStep::Promote { shard, stored: (at, stored), until } => {
                let is_cluster = self.topology.is_cluster();
                let FleetShard { primary, replica: Some(new), replaced_until, .. } =
                    &mut self.shards[shard]
                else {
                    return;
                };
                mem::swap(primary, new);
                let primary = *primary;
                let links_until = if is_cluster { until } else { 0 };
                let unnoticed_until = mem::replace(replaced_until, links_until);
                self.epoch += 1;
                let role = self.role(primary);
                let promote = |server: &mut ModelServer| {
                    server.restore(stored);
                    server.set_role(role);
                };
                shared.network.with(|state| state.change(primary, promote));
                shared.lost(DataLoss { at: now, snapshot_of: Some(at), until, unnoticed_until });
            }
            FleetStep::Start(node, role) => {
                let server = self.server(role.unwrap_or_else(|| self.role(node)));
                shared.network.with(|state| state.nodes[node].server = Some(server));
            }
            FleetStep::Tell(node) => self.tell(node, shared, now),
            FleetStep::Refuse(node) => {
                let refuse = |server: &mut ModelServer| {
                    if let ServerRole::Node(view) = server.role() {
                        server.set_role(ServerRole::Node(ClusterView { is_down: true, ..view }));
                    }
                };
                shared.network.with(|state| state.change(node, refuse));
            }
            FleetStep::CloseLinks(node) => shared.network.with(|state| state.close_links(node)),
            FleetStep::MoveName { pause } => self.go_on_moving(pause, shared, now),
        }
    }

    fn restart(&self, shard: usize, has_data: bool, shared: &Shared, now: Millis) {
        let FleetShard { primary, saved: (at, saved), .. } = &self.shards[shard];
        let mut server = self.server(self.role(*primary));
        if has_data {
            server.restore(saved.clone());
        }
        shared.network.with(|state| state.nodes[*primary].server = Some(server));
        let snapshot_of = has_data.then_some(*at);
        shared.lost(DataLoss { at: now, snapshot_of, until: now, unnoticed_until: 0 });
    }

    fn tell(&mut self, node: NodeId, shared: &Shared, now: Millis) {
        if let Some(until) = self.deaf_until.get(&node).filter(|until| **until > now) {
            return self.plan(*until, FleetStep::Tell(node));
        }
        let role = self.role(node);
        let tell = |server: &mut ModelServer| {
            if server.role() != role {
                server.set_role(role);
            }
        };
        shared.network.with(|state| state.change(node, tell));
    }

    fn go_on_moving(&mut self, pause: Millis, shared: &Shared, now: Millis) {
        let Some(moving) = self.moving.clone() else { return };
        let mut is_left = self.move_name(&moving, shared);
        while is_left && pause == 0 {
            is_left = self.move_name(&moving, shared);
        }
        if is_left {
            return self.plan(now + pause, FleetStep::MoveName { pause });
        }
        self.slots.moved(&moving);
        self.moving = None;
        self.movers(&moving).into_iter().for_each(|node| self.tell(node, shared, now));
        for shard in [moving.from, moving.to] {
            self.shards[shard].busy_until = now;
            // A failover or a restart would bring back names that have left.
            self.shards[shard].stored.clear();
        }
        self.save(shared);
        for (place, node) in (1..).zip(self.topology.nodes()) {
            self.plan(now + 150 * place, FleetStep::Tell(node));
        }
    }

    /// Moves a name. Returns false if none is left.
    fn move_name(&self, moving: &SlotMove, shared: &Shared) -> bool {
        let [from, to] = self.movers(moving);
        shared.network.with(|state| {
            let [time, time_there] = [from, to].map(|node| state.time(node));
            let mut taken = None;
            state.change(from, |server| {
                let mut names = server.names(time).into_iter();
                let name = names.find(|name| moving.slots().contains(&slot_of(name)));
                taken = name.and_then(|name| Some((server.take(&name)?, name)));
            });
            let Some((mut stored, name)) = taken else { return false };
            // What is left of its life goes along, and not when it ends.
            let ahead = (time_there / 1000) as i64 - (time / 1000) as i64;
            stored.expires_at.iter_mut().for_each(|at| *at += ahead);
            state.change(to, |server| server.give(&name, stored));
            true
        })
    }
}

impl FleetShard {
    /// Keeps what the primary stores now.
    fn copy(&mut self, shared: &Shared, now: Millis) {
        if let Some(snapshot) = shared.network.with(|state| state.snapshot(self.primary)) {
            self.stored.push_back((now, snapshot));
            while self.stored.front().is_some_and(|(at, _)| at + LONGEST_LAG < now) {
                self.stored.pop_front();
            }
        }
    }

    /// What the replica has now, which lags. None without a replica.
    fn lagging(
        &self,
        shared: &Shared,
        random: &mut SmallRng,
        now: Millis,
    ) -> Option<(Millis, Snapshot)> {
        let lag = *[0, random.random_range(0..LONGEST_LAG)].choose(random)?;
        let stored = self.stored.iter().rfind(|(at, _)| lag > 0 && at + lag <= now);
        let latest = || Some((now, shared.network.with(|state| state.snapshot(self.primary))?));
        self.replica.and_then(|_| stored.cloned().or_else(latest))
    }
}

impl FleetStep {
    fn name(&self) -> String {
        match self {
            Self::Restart { shard, .. } => format!("the primary of shard {shard} starts again"),
            Self::Promote { shard, stored: (at, _), until } => format!(
                "the replica of shard {shard} is promoted with the data of {at}, and the old primary goes on until {until}"
            ),
            Self::Start(node, _) => format!("server {node} starts"),
            Self::Tell(node) => format!("server {node} hears of the others"),
            Self::Refuse(node) => format!("server {node} takes no requests"),
            Self::CloseLinks(node) => format!("server {node} closes its links"),
            Self::MoveName { .. } => "a name moves".into(),
        }
    }
}

/// How often it is kept what a primary stores, and for how long: a replica lags by that at most.
const COPIED_EVERY: Millis = 20;
const LONGEST_LAG: Millis = 500;
