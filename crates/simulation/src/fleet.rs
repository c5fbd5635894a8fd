//! The servers of a run: which are primaries, what their replicas lack, and what is about to befall them.

use std::collections::{BTreeMap, VecDeque};

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::faults::FaultKind;
use crate::history::Shared;
use crate::host::Millis;
use crate::network::{NetworkState, NodeId};
use crate::promises::DataLoss;
use crate::server::{ModelServer, Mutations, NamedPrimary, ServerRole, Snapshot};
use crate::topology::Topology;

/// The servers.
#[derive(Debug)]
pub(crate) struct ServerFleet {
    topology: Topology,
    mutations: Mutations,
    shards: Vec<Shard>,
    /// How many failovers there were.
    epoch: u64,
    /// Until when a sentinel learns of no failover.
    deaf_until: BTreeMap<NodeId, Millis>,
    /// What is about to happen, when, and by the order in which it was planned.
    planned: BTreeMap<(Millis, u64), Step>,
    plans: u64,
}

/// A primary and its replica.
#[derive(Debug)]
struct Shard {
    primary: NodeId,
    replica: Option<NodeId>,
    /// What the primary has stored, with the times.
    stored: VecDeque<(Millis, Snapshot)>,
    /// What a restart brings back.
    saved: (Millis, Snapshot),
    /// Until when a failover or a restart goes on.
    busy_until: Millis,
}

#[derive(Debug)]
enum Step {
    /// The server of a shard starts again, with what it has saved or without data.
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
    /// A server is made the replica of its shard.
    Demote {
        shard: usize,
    },
    CloseLinks(NodeId),
    Start(NodeId, ServerRole),
    /// A sentinel is told which server is the primary.
    Tell(NodeId),
}

impl ServerFleet {
    pub(crate) fn new(topology: Topology, mutations: Mutations) -> Self {
        let empty = ModelServer::new(Mutations::clone(&mutations)).snapshot();
        let shard = |primary| Shard {
            primary,
            replica: topology.replica_of(primary),
            stored: VecDeque::new(),
            saved: (0, empty.clone()),
            busy_until: 0,
        };
        Self {
            topology,
            mutations,
            shards: topology.primaries().map(shard).collect(),
            epoch: 0,
            deaf_until: BTreeMap::new(),
            planned: BTreeMap::new(),
            plans: 0,
        }
    }

    /// Whether nothing is about to happen.
    pub(crate) fn is_settled(&self) -> bool {
        self.planned.is_empty()
    }

    fn plan(&mut self, at: Millis, step: Step) {
        self.plans += 1;
        self.planned.insert((at, self.plans), step);
    }

    /// Does what is due, before the servers run.
    pub(crate) fn tick(&mut self, shared: &Shared) {
        let now = shared.network.now();
        while let Some(first) = self.planned.first_entry().filter(|it| it.key().0 <= now) {
            let step = first.remove();
            self.step(step, shared, now);
        }
        if now % COPIED_EVERY == 0 {
            let shards = self.shards.iter_mut().filter(|it| it.replica.is_some());
            shared.network.with(|state| shards.for_each(|it| it.copy(state, now)));
        }
    }

    /// Saves what is stored, now and then.
    pub(crate) fn save(&mut self, shared: &Shared) {
        let now = shared.network.now();
        for Shard { primary, saved, .. } in &mut self.shards {
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
            _ => {
                let primary = self.shards[shard].primary;
                shared.network.with(|state| drop(state.kill(primary)));
                let at = now + random.random_range(1..1_500);
                self.shards[shard].busy_until = at;
                let has_data = kind == FaultKind::RestartOld;
                self.plan(at, Step::Restart { shard, has_data });
            }
        }
    }

    /// A primary is killed. Its replica is promoted after a while, and it starts again as the replica.
    fn fail_over(&mut self, shard: usize, shared: &Shared, random: &mut SmallRng, now: Millis) {
        let Some(stored) = self.shards[shard].stored(shared, random, now) else { return };
        let old = self.shards[shard].primary;
        shared.network.with(|state| drop(state.kill(old)));
        let at = now + random.random_range(1..1_500);
        self.plan(at, Step::Promote { shard, stored, until: at });
        self.tell_sentinels(at, random);
        let starts_at = at + random.random_range(1..1_000);
        let role = ServerRole::Replica(self.topology.address(old));
        self.plan(starts_at, Step::Start(old, role));
        self.plan(starts_at, Step::Demote { shard });
        self.shards[shard].busy_until = starts_at;
    }

    /// A replica is promoted while the old primary goes on. Each process reaches both sides, or one. The
    /// old primary becomes a replica when it hears of it, and closes its links then or soon after.
    fn split(
        &mut self,
        shard: usize,
        shared: &Shared,
        random: &mut SmallRng,
        processes: usize,
        now: Millis,
    ) {
        let Some(stored) = self.shards[shard].stored(shared, random, now) else { return };
        let Shard { primary: old, replica: Some(new), .. } = self.shards[shard] else { return };
        let demoted_at = now + random.random_range(1..3_000);
        let until =
            demoted_at + *[0, 0, random.random_range(1..1_000)].choose(random).expect("one");
        self.plan(now, Step::Promote { shard, stored, until });
        self.tell_sentinels(now, random);
        self.plan(demoted_at, Step::Demote { shard });
        self.plan(until, Step::CloseLinks(old));
        self.shards[shard].busy_until = until;
        for process in 0..processes {
            let is_severed_from: Vec<_> = match random.random_range(0..3) {
                0 => Vec::new(),
                1 => vec![old],
                _ => self.topology.sentinels().chain([new]).collect(),
            };
            shared.network.with(|state| {
                let pairs = is_severed_from.into_iter().map(|node| ((process, node), demoted_at));
                state.severed_until.extend(pairs);
            });
        }
    }

    /// The sentinels learn of a failover: one at once, and the others within their exchange.
    fn tell_sentinels(&mut self, at: Millis, random: &mut SmallRng) {
        let sentinels = self.topology.sentinels();
        let leader = sentinels.clone().nth(random.random_range(0..3));
        for sentinel in sentinels {
            let later = random.random_range(0..2_000);
            let later = if Some(sentinel) == leader { 0 } else { later };
            self.plan(at + later, Step::Tell(sentinel));
        }
    }

    fn stop_sentinel(&mut self, shared: &Shared, random: &mut SmallRng, now: Millis) {
        let sentinel = random.random_range(self.topology.sentinels());
        let at = now + random.random_range(1..4_000);
        let heard_at = at + random.random_range(0..2_000);
        if let Some(server) = shared.network.with(|state| state.kill(sentinel)) {
            self.plan(at, Step::Start(sentinel, server.role()));
            self.plan(heard_at, Step::Tell(sentinel));
        }
    }

    fn step(&mut self, step: Step, shared: &Shared, now: Millis) {
        shared.note(format_args!("{}", step.name()));
        match step {
            Step::Restart { shard, has_data } => {
                let Shard { primary, saved: (at, saved), .. } = &self.shards[shard];
                let mut server = ModelServer::new(Mutations::clone(&self.mutations));
                if has_data {
                    server.restore(saved.clone());
                }
                shared.network.with(|state| state.nodes[*primary].server = Some(server));
                let snapshot_of = has_data.then_some(*at);
                shared.lost(DataLoss { at: now, snapshot_of, until: now });
            }
            Step::Promote { shard, stored: (at, stored), until } => {
                let Shard { primary, replica: Some(new), .. } = &mut self.shards[shard] else {
                    return;
                };
                std::mem::swap(primary, new);
                self.epoch += 1;
                shared.network.with(|state| {
                    state.change(*primary, |server| {
                        server.restore(stored);
                        server.set_role(ServerRole::Primary);
                    });
                });
                shared.lost(DataLoss { at: now, snapshot_of: Some(at), until });
            }
            Step::Demote { shard } => {
                let Shard { primary, replica: Some(old), .. } = self.shards[shard] else { return };
                let role = ServerRole::Replica(self.topology.address(primary));
                shared.network.with(|state| {
                    let stored = state.snapshot(primary);
                    state.change(old, |server| {
                        server.set_role(role);
                        stored.into_iter().for_each(|stored| server.restore(stored));
                    });
                });
            }
            Step::CloseLinks(node) => shared.network.with(|state| state.close_links(node)),
            Step::Start(node, role) => {
                let mut server = ModelServer::new(Mutations::clone(&self.mutations));
                server.set_role(role);
                shared.network.with(|state| state.nodes[node].server = Some(server));
            }
            Step::Tell(sentinel) => self.tell(sentinel, shared, now),
        }
    }

    fn tell(&mut self, sentinel: NodeId, shared: &Shared, now: Millis) {
        if let Some(until) = self.deaf_until.get(&sentinel).filter(|until| **until > now) {
            return self.plan(*until, Step::Tell(sentinel));
        }
        let address = self.topology.address(self.shards[0].primary);
        let now = ServerRole::Sentinel(NamedPrimary { address, epoch: self.epoch });
        shared.network.with(|state| {
            state.change(sentinel, |server| {
                if server.role() != now {
                    server.set_role(now);
                }
            });
        });
    }
}

impl Shard {
    /// Keeps what the primary stores now.
    fn copy(&mut self, state: &NetworkState, now: Millis) {
        if let Some(snapshot) = state.snapshot(self.primary) {
            self.stored.push_back((now, snapshot));
            while self.stored.front().is_some_and(|(at, _)| at + LONGEST_LAG < now) {
                self.stored.pop_front();
            }
        }
    }

    /// What the replica has now, which lags. None without a replica.
    fn stored(
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

impl Step {
    fn name(&self) -> String {
        match self {
            Self::Restart { .. } => "the server starts again".into(),
            Self::Promote { stored: (at, _), until, .. } => {
                format!(
                    "the replica is promoted with the data of {at}, the old one goes on until {until}"
                )
            }
            Self::Demote { .. } => "the old primary is made a replica".into(),
            Self::CloseLinks(node) => format!("server {node} closes its links"),
            Self::Start(node, _) => format!("server {node} starts"),
            Self::Tell(node) => format!("sentinel {node} hears of the primary"),
        }
    }
}

/// How often it is kept what a primary stores, and for how long: a replica lags by that at most.
const COPIED_EVERY: Millis = 20;
const LONGEST_LAG: Millis = 500;
