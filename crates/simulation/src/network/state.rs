//! What the network and the servers are at a moment, and how bytes move on between them.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;

use super::clocks::ShardClocks;
use super::excuses::Excuses;
use super::hindrances::{DelayedLinks, Hindrances};
use super::link::{Fate, Link, LinkId, NodeId};
use crate::frames::frame_length;
use crate::host::Millis;
use crate::journal::Journal;
use crate::server::{ExecutedCommand, ModelServer, Snapshot};
use crate::time_costs::{EventLoop, Pace, READ_BUFFER, SerialWork, TimeCosts};

#[derive(Debug)]
pub(crate) struct NetworkState {
    random: SmallRng,
    pub(super) now: Millis,
    pub(crate) nodes: Vec<NetworkNode>,
    links: BTreeMap<LinkId, Link>,
    clocks: ShardClocks,
    pub(crate) hindrances: Hindrances,
    pub(super) excuses: Excuses,
    /// Until when each process stands still.
    pub(crate) paused_until: BTreeMap<usize, Millis>,
    /// Links that processes have gone on to use, although nothing arrives.
    pub(crate) silent: BTreeSet<(usize, LinkId)>,
    /// How long processes and servers need. None if they need no time.
    costs: Option<TimeCosts>,
    /// When a link was last opened or used, and how many have something under way.
    pub(super) used_at: Millis,
    pub(super) under_way: usize,
    /// What the processes have to do.
    work: BTreeMap<usize, SerialWork>,
    pub(crate) commands: u64,
    pub(crate) journal: Journal,
}

/// A server and its address.
#[derive(Debug)]
pub(crate) struct NetworkNode {
    pub(crate) address: String,
    /// None while it is down.
    pub(crate) server: Option<ModelServer>,
    /// Until when it stands still.
    pub(crate) stalled_until: Millis,
    /// Until when it answers a byte a second.
    pub(crate) trickles_until: Millis,
    event_loop: EventLoop,
}

impl NetworkState {
    pub(super) fn new(
        seed: u64,
        servers: Vec<(String, ModelServer)>,
        clock_errors: &[i64],
        costs: Option<TimeCosts>,
    ) -> Self {
        let node = |(address, server)| NetworkNode {
            address,
            server: Some(server),
            stalled_until: 0,
            trickles_until: 0,
            event_loop: EventLoop::default(),
        };
        Self {
            random: SmallRng::seed_from_u64(seed),
            now: 0,
            nodes: servers.into_iter().map(node).collect(),
            links: BTreeMap::new(),
            clocks: ShardClocks::new(clock_errors),
            hindrances: Hindrances::none(),
            excuses: Excuses::default(),
            paused_until: BTreeMap::new(),
            silent: BTreeSet::new(),
            costs,
            used_at: 0,
            under_way: 0,
            work: BTreeMap::new(),
            commands: 0,
            journal: Journal::default(),
        }
    }

    /// A process has opened a link, which these tasks serve.
    pub(super) fn open(
        &mut self,
        client: LinkId,
        process: usize,
        replies: UnboundedSender<Vec<u8>>,
        tasks: [AbortHandle; 2],
        ended: Arc<Notify>,
    ) {
        let is_slow = self.random.random();
        let link = Link::new(process, replies, tasks, ended, is_slow, self.now);
        self.links.insert(client, link);
        self.used_at = self.now;
    }

    pub(super) fn draw_delay(&mut self, client: LinkId) -> Millis {
        let is_delayed = match self.hindrances.delayed {
            DelayedLinks::All => true,
            DelayedLinks::Slow => self.links.get(&client).is_some_and(|link| link.is_slow),
            DelayedLinks::Subscribed => {
                let server = self.nodes[client.0].server.as_ref();
                server.is_some_and(|server| server.is_subscribed(client.1))
            }
        };
        if is_delayed { self.hindrances.draw_delay(&mut self.random) } else { 0 }
    }

    /// For how long no bytes of a process get through to a server.
    pub(super) fn held_up(
        &self,
        process: usize,
        node: NodeId,
        is_up: Option<bool>,
    ) -> Option<Duration> {
        // What a server has sent before it was stopped arrives. The system accepts connections for it.
        let stalled = if is_up == Some(true) { self.nodes[node].stalled_until } else { 0 };
        let until = self.hindrances.held_up_until(process, node).max(stalled);
        let wait = until.saturating_sub(self.now);
        (wait > 0).then(|| Duration::from_millis(wait))
    }

    pub(super) fn blocked(&self, client: LinkId, is_up: bool) -> Option<Duration> {
        let link = self.links.get(&client)?;
        match link.fate {
            Some(fate) if !is_up && fate.swallows_replies() => Some(FOR_EVER),
            Some(Fate::HalfOpen) => None,
            _ => self.held_up(link.process, client.0, Some(is_up)),
        }
    }

    pub(super) fn is_any(&self, client: LinkId, is_it: impl FnOnce(Fate) -> bool) -> bool {
        self.links.get(&client).and_then(|link| link.fate).is_some_and(is_it)
    }

    /// Whether nothing is under way, and servers that need time have nothing to do.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_idle = |node: &NetworkNode| node.event_loop.is_idle();
        self.under_way == 0
            && self.used_at + 2 < self.now
            && (self.costs.is_none() || self.nodes.iter().all(is_idle))
    }

    /// What passes next of some bytes: a message if each of them takes time, or else all. None if there is none.
    pub(super) fn next_message(&self, bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
        let length = match self.costs {
            Some(_) => frame_length(bytes)?,
            None => bytes.len(),
        };
        if length == 0 {
            return None;
        }
        let rest = bytes.split_off(length);
        Some(replace(bytes, rest))
    }

    /// How fast the bytes of a link pass. None if they take no time.
    pub(super) fn pace(&self, client: LinkId, is_up: bool) -> Option<Pace> {
        if !is_up && self.nodes[client.0].trickles_until > self.now {
            return Some(Pace { bytes: 1, each: 1_000 });
        }
        self.hindrances.pace(self.links.get(&client)?.process, self.now)
    }

    /// For how long bytes of a link are under way.
    pub(super) fn passes_after(&mut self, client: LinkId, is_up: bool, bytes: usize) -> Millis {
        let Some(pace) = self.pace(client, is_up) else { return 0 };
        self.links.get_mut(&client).map_or(0, |link| link.pass(is_up, bytes, pace, self.now))
    }

    /// A process has run for a tick.
    pub(crate) fn process_has_run(&mut self, process: usize) {
        if self.costs.is_some() {
            self.work.entry(process).or_default().grant();
        }
    }

    /// Handles a message in its process. Returns whether that has had the time, or None if it needs none.
    pub(super) fn work(&mut self, client: LinkId) -> Option<bool> {
        let message = self.costs?.message;
        let work = self.work.entry(self.links.get(&client)?.process).or_default();
        let has_time = work.has_time();
        if has_time {
            work.spend(message);
        }
        Some(has_time)
    }

    /// Lets servers that need time go on for a tick.
    pub(crate) fn serve(&mut self) {
        let Some(costs) = self.costs else { return };
        for node in 0..self.nodes.len() {
            let NetworkNode { server, stalled_until, event_loop, .. } = &mut self.nodes[node];
            if server.is_none() {
                event_loop.end();
            } else if *stalled_until <= self.now {
                event_loop.work.grant();
                while self.nodes[node].event_loop.work.has_time() && self.go_on(node, costs) {}
            }
        }
    }

    /// Goes on with the turn of a server, or begins the next one. Returns false if nothing is to be done.
    fn go_on(&mut self, node: NodeId, costs: TimeCosts) -> bool {
        if let Some(number) = self.nodes[node].event_loop.current {
            let spent = self.execute((node, number)).map(|command| costs.of(&command));
            let event_loop = &mut self.nodes[node].event_loop;
            match spent {
                Some(spent) => event_loop.work.spend(spent),
                None => event_loop.current = None,
            }
            return true;
        }
        if self.nodes[node].event_loop.ready.is_empty() {
            self.send_output(node);
            let links = self.links.range((node, 0)..(node + 1, 0));
            let ready = links.filter(|(_, link)| !link.inbox.is_empty()).map(|(link, _)| link.1);
            self.nodes[node].event_loop.ready = ready.collect();
        }
        let NetworkNode { server, event_loop, .. } = &mut self.nodes[node];
        event_loop.current = event_loop.ready.pop_front();
        let Some(number) = event_loop.current else { return false };
        if let (Some(link), Some(server)) = (self.links.get_mut(&(node, number)), server) {
            let length = link.inbox.len().min(READ_BUFFER);
            server.feed(number, &link.inbox[..length]);
            link.inbox.drain(..length);
        }
        true
    }

    /// Executes the next command of a link. None if its server has not received a whole one.
    fn execute(&mut self, client: LinkId) -> Option<ExecutedCommand> {
        let (node, number) = client;
        let time = self.time(node);
        let server = self.nodes[node].server.as_mut()?;
        server.log = self.journal.lines.as_ref().map(|_| Vec::new());
        let command = server.execute_next(number, time);
        let log = server.log.take();
        let command = command?;
        self.commands += 1;
        self.executed(client, command.has_key, log);
        if self.is_doomed(client, Fate::LoseReply) {
            self.cut(client);
        }
        self.publish(node);
        Some(command)
    }

    /// Notes that commands of a process were executed.
    fn executed(&mut self, client: LinkId, have_key: bool, log: Option<Vec<String>>) {
        let Some(link) = self.links.get(&client) else { return };
        if have_key {
            self.excuses.executed(link.process, self.now);
        }
        if let Some(log) = log {
            self.journal.list(self.now, link.process, client.0, log);
        }
    }

    /// Whether what a process sends does not arrive. It notices that by a reply that is late, but does not wait
    /// for one that another node can give.
    pub(super) fn loses(&mut self, client: LinkId, bytes: &[u8]) -> bool {
        let Some(link) = self.links.get_mut(&client) else { return false };
        let Some(fate) = link.fate else { return false };
        let is_lost = fate.swallows_requests();
        if !is_lost && !fate.swallows_replies() {
            return false;
        }
        let (now, process) = (self.now, link.process);
        if is_lost && self.journal.lines.is_some() {
            let lost = format!("loses by link {}: {}", client.1, bytes.escape_ascii());
            self.journal.list(now, process, client.0, vec![lost]);
        }
        if bytes.windows(SLOTS.len()).any(|it| it == SLOTS) {
            return is_lost;
        }
        let resumed = self.paused_until.get(&process).copied().unwrap_or_default();
        let first = link.send_in_vain(now, resumed);
        let longest = if self.costs.is_some() { SLOW_SILENCE } else { LONGEST_SILENCE };
        if first + longest < now {
            self.silent.insert((process, client));
        }
        is_lost
    }

    pub(super) fn is_doomed(&self, client: LinkId, fate: Fate) -> bool {
        self.links.get(&client).is_none_or(|link| link.fate == Some(fate))
    }

    /// Gives bytes to the server, and sends what it says, unless that needs time. Returns whether the link goes on.
    pub(super) fn deliver(&mut self, client: LinkId, bytes: &[u8]) -> bool {
        let time = if self.costs.is_some() { 0 } else { self.time(client.0) };
        let is_cut = self.is_doomed(client, Fate::CutRequest);
        let is_lost = self.is_doomed(client, Fate::LoseReply);
        let (node, number) = client;
        let Some(server) = &mut self.nodes[node].server else { return false };
        let length = if is_cut { bytes.len() / 2 } else { bytes.len() };
        if self.costs.is_some() {
            let link = self.links.get_mut(&client);
            link.into_iter().for_each(|link| link.inbox.extend_from_slice(&bytes[..length]));
            if is_cut {
                self.cut(client);
            }
            return self.links.contains_key(&client);
        }
        server.log = self.journal.lines.as_ref().map(|_| Vec::new());
        self.commands += server.receive(number, &bytes[..length], time);
        let log = server.log.take();
        // Those that name keys: neither handshakes nor subscriptions.
        self.executed(client, bytes.contains(&b'{'), log);
        if is_cut || is_lost {
            self.cut(client);
        }
        self.publish(node);
        self.send_output(node);
        self.links.contains_key(&client)
    }

    /// The other nodes of a cluster publish what one has published.
    fn publish(&mut self, node: NodeId) {
        let server = self.nodes[node].server.as_mut();
        let published = server.map(ModelServer::take_published).unwrap_or_default();
        for message in published {
            for other in (0..self.nodes.len()).filter(|other| *other != node) {
                self.change(other, |server| server.publish(&message));
            }
        }
    }

    /// Sends what a server says.
    fn send_output(&mut self, node: NodeId) {
        let Some(server) = &mut self.nodes[node].server else { return };
        for (client, bytes) in server.take_output() {
            if let Some(link) = self.links.get(&(node, client)) {
                // The other end has gone.
                _ = link.replies.send(bytes);
            }
        }
    }

    /// Sets the clocks of the servers forward or back, by microseconds.
    pub(crate) fn set_clock(&mut self, by: i64) {
        let now = self.now;
        if self.clocks.set(by, now) {
            self.journal.note(now, format_args!("the clock is set by {by} us"));
        }
    }

    /// The time of a server in microseconds. Two commands never have the same.
    pub(crate) fn time(&mut self, node: NodeId) -> u64 {
        self.clocks.time(node, self.now)
    }

    /// Ends a link.
    pub(super) fn cut(&mut self, client: LinkId) {
        if let Some(link) = self.links.remove(&client) {
            if link.fate.is_some() {
                let handshake = if self.costs.is_some() { SLOW_HANDSHAKE } else { HANDSHAKE };
                let is_new = link.opened_at + handshake > self.now;
                self.excuses.link_ended(link.process, is_new, self.now);
            }
            link.tasks.iter().for_each(AbortHandle::abort);
            if let Some(server) = &mut self.nodes[client.0].server {
                server.disconnect(client.1);
            }
        }
    }

    /// Whether a process may still have failures of which faults that have ended two of its links are the reason.
    pub(crate) fn may_fail(&self, process: usize) -> bool {
        self.excuses.may_fail(process, self.now)
    }

    /// Changes a server that is not down, and sends what it says then.
    pub(crate) fn change(&mut self, node: NodeId, change: impl FnOnce(&mut ModelServer)) {
        if let Some(server) = &mut self.nodes[node].server {
            change(server);
            self.send_output(node);
        }
    }

    /// How many connections each server has.
    pub(crate) fn connections(&self) -> Vec<usize> {
        let connections =
            |node: &NetworkNode| node.server.as_ref().map_or(0, ModelServer::connections);
        self.nodes.iter().map(connections).collect()
    }

    /// What a server stores. None while it is down.
    pub(crate) fn snapshot(&self, node: NodeId) -> Option<Snapshot> {
        self.nodes[node].server.as_ref().map(ModelServer::snapshot)
    }

    /// The servers that take writes and are not down.
    pub(crate) fn primaries(&self) -> Vec<NodeId> {
        let is_primary = |server: &ModelServer| server.role().is_primary();
        let nodes = self.nodes.iter().enumerate();
        let primaries = nodes.filter(|(_, node)| node.server.as_ref().is_some_and(is_primary));
        primaries.map(|(place, _)| place).collect()
    }

    /// Ends a server with all its links.
    pub(crate) fn kill(&mut self, node: NodeId) -> Option<ModelServer> {
        self.close_links(node);
        self.nodes[node].server.take()
    }

    /// Ends all links of a server.
    pub(crate) fn close_links(&mut self, node: NodeId) {
        let of_node = self.links().into_iter().filter(|link| link.0 == node);
        of_node.for_each(|link| self.cut(link));
    }

    /// A process is about to be killed. Its links notice it in their order, not in that in which its tasks
    /// end.
    pub(crate) fn process_ends(&self, process: usize) {
        let of_process = self.links.values().filter(|link| link.process == process);
        of_process.for_each(|link| link.ended.notify_one());
    }

    /// The links, in order.
    fn links(&self) -> Vec<LinkId> {
        self.links.keys().copied().collect()
    }

    /// Decides what becomes of a link.
    pub(super) fn doom(&mut self, client: LinkId, fate: Fate) {
        if let Some(link) = self.links.get_mut(&client) {
            link.fate = Some(fate);
        }
    }

    /// Decides what becomes of one of the links.
    pub(crate) fn doom_one(&mut self, random: &mut SmallRng, fate: Fate) {
        if let Some(client) = self.links().choose(random) {
            self.doom(*client, fate);
        }
    }

    /// All faults end, and half-open links with them.
    pub(crate) fn heal(&mut self) {
        self.hindrances.end();
        for node in &mut self.nodes {
            (node.stalled_until, node.trickles_until) = (0, 0);
            node.server.iter_mut().for_each(|server| {
                server.set_full(false);
                server.lead_to_primary();
            });
        }
        for client in self.links() {
            if self.links[&client].fate.is_some() {
                self.cut(client);
            }
        }
    }
}

/// How long a process takes at most to use a new link, where the network delays nothing.
const HANDSHAKE: Millis = 20;

/// The same where processes and servers need time.
const SLOW_HANDSHAKE: Millis = 60;

/// How long a process may go on to send over a link that loses all. A reply is late after a quarter of a second.
const LONGEST_SILENCE: Millis = 2_000;

/// The same where processes and servers need time. Replies are late, so the process has more patience, and a process
/// with a quota is late itself.
const SLOW_SILENCE: Millis = 5_000;

const SLOTS: &[u8] = b"CLUSTER\r\n$5\r\nSLOTS";

const FOR_EVER: Duration = Duration::from_secs(1_000_000);
