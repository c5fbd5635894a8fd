//! The network: links between processes and servers, and what befalls them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::replace;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::sleep;

use crate::frames::frame_length;
use crate::host::{BEGIN, Millis};
use crate::journal::Journal;
use crate::locked;
use crate::server::{ClientId, ExecutedCommand, ModelServer, Snapshot};
use crate::time_costs::{EventLoop, Micros, Pace, READ_BUFFER, SerialWork, TimeCosts};

/// The place of a server in the network.
pub(crate) type NodeId = usize;

/// A link, by its server and its number there.
type LinkId = (NodeId, ClientId);

/// The network and the servers. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Network(Arc<NetworkParts>);

#[derive(Debug)]
struct NetworkParts {
    now: AtomicU64,
    /// Where links and servers run.
    runtime: Handle,
    state: Mutex<NetworkState>,
}

#[derive(Debug)]
pub(crate) struct NetworkState {
    random: SmallRng,
    now: Millis,
    pub(crate) nodes: Vec<NetworkNode>,
    links: BTreeMap<LinkId, Link>,
    /// One for each shard: a replica has that of its primary.
    clocks: Vec<ShardClock>,
    clock_set_at: Millis,
    /// Until when each process is cut off.
    pub(crate) cut_off_until: BTreeMap<usize, Millis>,
    /// Until when each process stands still.
    pub(crate) paused_until: BTreeMap<usize, Millis>,
    /// When faults have last ended a link of each process.
    cuts: BTreeMap<usize, Millis>,
    /// Since when each process has had its requests executed, after faults that may make some fail.
    well_since: BTreeMap<usize, Millis>,
    /// Links that processes have gone on to use, although nothing arrives.
    pub(crate) silent: BTreeSet<(usize, LinkId)>,
    /// Until when a process does not reach a server.
    pub(crate) severed_until: BTreeMap<(usize, NodeId), Millis>,
    /// One transmission of so many is delayed, by so many milliseconds at most.
    delays: (u32, Millis),
    delayed: DelayedLinks,
    /// How fast bytes of a process pass, and until when.
    throttled: BTreeMap<usize, (Pace, Millis)>,
    /// How long processes and servers need. None if they need no time.
    costs: Option<TimeCosts>,
    /// When a link was last opened or used, and how many have something under way.
    used_at: Millis,
    under_way: usize,
    /// What the processes have to do.
    work: BTreeMap<usize, SerialWork>,
    pub(crate) commands: u64,
    pub(crate) journal: Journal,
}

/// The clock of a primary and its replica.
#[derive(Debug)]
struct ShardClock {
    /// By how much it differs from that of the world, in microseconds.
    error: i64,
    /// The last time that it has shown.
    last: u64,
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

/// Whose transmissions are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DelayedLinks {
    All,
    /// Those of half of the links, so that replies overtake each other.
    Slow,
    /// Those of links that subscribe, so that replies overtake messages.
    Subscribed,
}

#[derive(Debug)]
struct Link {
    process: usize,
    replies: UnboundedSender<Vec<u8>>,
    tasks: [AbortHandle; 2],
    /// Its process has been killed.
    ended: Arc<Notify>,
    is_slow: bool,
    opened_at: Millis,
    fate: Option<Fate>,
    /// What has arrived at a server that needs time, and is not read.
    inbox: Vec<u8>,
    /// Until when the bytes so far take to pass, in both directions.
    paced_until: [Micros; 2],
    /// When its process has first and last sent what did not arrive, without a long pause between.
    in_vain: Option<[Millis; 2]>,
}

/// What becomes of a link with the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It ends in the middle of what the process sends.
    CutRequest,
    /// It ends after the server has executed what it has received, before the reply.
    LoseReply,
    /// It ends in the middle of a reply.
    CutReply,
    /// Nothing arrives any more, in either direction, and it does not end.
    HalfOpen,
    /// Nothing arrives at the server any more. What that says does.
    Deaf,
    /// Nothing arrives at the process any more. The server executes its requests.
    Mute,
}

impl Fate {
    fn swallows_requests(self) -> bool {
        matches!(self, Self::HalfOpen | Self::Deaf)
    }

    fn swallows_replies(self) -> bool {
        matches!(self, Self::HalfOpen | Self::Mute)
    }
}

impl Network {
    /// A network of these servers. The clocks of their shards differ from that of the world by these errors,
    /// in microseconds. Servers and processes need so much time.
    pub(crate) fn new(
        seed: u64,
        runtime: Handle,
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
        let state = NetworkState {
            random: SmallRng::seed_from_u64(seed),
            now: 0,
            nodes: servers.into_iter().map(node).collect(),
            links: BTreeMap::new(),
            clocks: clock_errors
                .iter()
                .map(|error| ShardClock { error: *error, last: 0 })
                .collect(),
            clock_set_at: 0,
            cut_off_until: BTreeMap::new(),
            cuts: BTreeMap::new(),
            well_since: BTreeMap::new(),
            silent: BTreeSet::new(),
            severed_until: BTreeMap::new(),
            delays: (u32::MAX, 1),
            delayed: DelayedLinks::All,
            throttled: BTreeMap::new(),
            paused_until: BTreeMap::new(),
            costs,
            used_at: 0,
            under_way: 0,
            work: BTreeMap::new(),
            commands: 0,
            journal: Journal::default(),
        };
        Self(Arc::new(NetworkParts { now: AtomicU64::new(0), runtime, state: Mutex::new(state) }))
    }

    pub(crate) fn now(&self) -> Millis {
        self.0.now.load(Ordering::Relaxed)
    }

    pub(crate) fn set_now(&self, now: Millis) {
        self.0.now.store(now, Ordering::Relaxed);
        self.with(|state| state.now = now);
    }

    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut NetworkState) -> T) -> T {
        change(&mut locked(&self.0.state))
    }

    /// Opens a link of a process to the server at an address.
    pub(crate) async fn connect(self, process: usize, to: String) -> io::Result<DuplexStream> {
        let node = self.with(|state| state.nodes.iter().position(|node| node.address == to));
        let node = node.ok_or(io::ErrorKind::HostUnreachable)?;
        // No packet of the handshake gets through before.
        while let Some(wait) = self.with(|state| state.held_up(process, node, self.now(), None)) {
            sleep(wait).await;
        }
        let (ours, theirs) = duplex(BUFFER);
        let mut state = locked(&self.0.state);
        let server = state.nodes[node].server.as_mut().ok_or(io::ErrorKind::ConnectionRefused)?;
        let client = (node, server.connect());
        let (replies, queue) = unbounded_channel();
        let (reader, writer) = split(theirs);
        let ended = Arc::<Notify>::default();
        let send_up = self.clone().send_up(client, reader, Arc::clone(&ended));
        let tasks = [
            self.0.runtime.spawn(send_up).abort_handle(),
            self.0.runtime.spawn(self.clone().send_down(client, queue, writer)).abort_handle(),
        ];
        let is_slow = state.random.random();
        let link = Link {
            process,
            replies,
            tasks,
            ended,
            is_slow,
            opened_at: state.now,
            fate: None,
            inbox: Vec::new(),
            paced_until: [0; 2],
            in_vain: None,
        };
        state.links.insert(client, link);
        state.used_at = state.now;
        Ok(ours)
    }

    async fn send_up(self, client: LinkId, mut reader: ReadHalf<DuplexStream>, ended: Arc<Notify>) {
        let mut buffer = vec![0; READ_BUFFER];
        let mut received = Vec::new();
        'link: loop {
            let read = select! {
                biased;
                read = reader.read(&mut buffer) => read,
                () = ended.notified() => continue,
            };
            let Ok(length @ 1..) = read else { break };
            received.extend_from_slice(&buffer[..length]);
            self.delay(client).await;
            while let Some(bytes) = self.with(|state| state.next_message(&mut received)) {
                let _under_way = BytesUnderWay::begin(&self);
                self.work(client).await;
                self.pass(client, true).await;
                self.keep_pace(client, true, bytes.len()).await;
                if self.with(|state| state.loses(client, &bytes)) {
                    continue;
                }
                if !self.with(|state| state.deliver(client, &bytes, self.now())) {
                    break 'link;
                }
            }
        }
        self.delay(client).await;
        self.pass(client, true).await;
        if !self.with(|state| state.is_any(client, Fate::swallows_requests)) {
            self.with(|state| state.cut(client));
        }
    }

    async fn send_down(
        self,
        client: LinkId,
        mut queue: UnboundedReceiver<Vec<u8>>,
        mut writer: WriteHalf<DuplexStream>,
    ) {
        let mut sent = Vec::new();
        'link: while let Some(bytes) = queue.recv().await {
            sent.extend(bytes);
            while let Ok(more) = queue.try_recv() {
                sent.extend(more);
            }
            self.delay(client).await;
            while let Some(bytes) = self.with(|state| state.next_message(&mut sent)) {
                self.pass(client, false).await;
                let _under_way = BytesUnderWay::begin(&self);
                self.work(client).await;
                let is_cut = self.with(|state| state.is_doomed(client, Fate::CutReply));
                let length = if is_cut { bytes.len() / 2 } else { bytes.len() };
                if self.write(client, &mut writer, &bytes[..length]).await.is_err() || is_cut {
                    break 'link;
                }
            }
        }
        self.with(|state| state.cut(client));
    }

    /// Writes to a process, as fast as the bytes pass.
    async fn write(
        &self,
        client: LinkId,
        writer: &mut WriteHalf<DuplexStream>,
        mut bytes: &[u8],
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let most = self.with(|state| state.pace(client, false).map(|pace| pace.bytes));
            let (part, rest) = bytes.split_at(bytes.len().min(most.unwrap_or(usize::MAX)));
            self.keep_pace(client, false, part.len()).await;
            writer.write_all(part).await?;
            bytes = rest;
        }
        Ok(())
    }

    /// Waits as long as these bytes take to pass.
    async fn keep_pace(&self, client: LinkId, is_up: bool, bytes: usize) {
        let wait = self.with(|state| state.passes_after(client, is_up, bytes));
        if wait > 0 {
            sleep(Duration::from_millis(wait)).await;
        }
    }

    /// Waits until a process has handled a message. Those of its links take turns.
    async fn work(&self, client: LinkId) {
        while let Some(is_done) = self.with(|state| state.work(client)) {
            if is_done {
                return yield_now().await;
            }
            sleep(TICK).await;
        }
    }

    async fn delay(&self, client: LinkId) {
        let delay = self.with(|state| state.draw_delay(client));
        if delay > 0 {
            let _under_way = BytesUnderWay::begin(self);
            sleep(Duration::from_millis(delay)).await;
        }
    }

    /// Waits until bytes get through.
    async fn pass(&self, client: LinkId, is_up: bool) {
        while let Some(wait) = self.with(|state| state.blocked(client, is_up, self.now())) {
            sleep(wait).await;
        }
    }
}

/// Bytes of a link are under way, until this is dropped.
struct BytesUnderWay(Network);

impl BytesUnderWay {
    fn begin(network: &Network) -> Self {
        network.with(|state| state.under_way += 1);
        Self(network.clone())
    }
}

impl Drop for BytesUnderWay {
    fn drop(&mut self) {
        self.0.with(|state| {
            state.under_way -= 1;
            state.used_at = state.now;
        });
    }
}

impl NetworkState {
    fn draw_delay(&mut self, client: LinkId) -> Millis {
        let (one_of, longest) = self.delays;
        let is_delayed = match self.delayed {
            DelayedLinks::All => true,
            DelayedLinks::Slow => self.links.get(&client).is_some_and(|link| link.is_slow),
            DelayedLinks::Subscribed => {
                let server = self.nodes[client.0].server.as_ref();
                server.is_some_and(|server| server.is_subscribed(client.1))
            }
        };
        if is_delayed && self.random.random_ratio(1, one_of) {
            self.random.random_range(1..=longest)
        } else {
            0
        }
    }

    /// For how long no bytes of a process get through to a server.
    fn held_up(
        &self,
        process: usize,
        node: NodeId,
        now: Millis,
        is_up: Option<bool>,
    ) -> Option<Duration> {
        let cut_off = self.cut_off_until.get(&process).copied().unwrap_or_default();
        let severed = self.severed_until.get(&(process, node)).copied().unwrap_or_default();
        // What a server has sent before it was stopped arrives. The system accepts connections for it.
        let stalled = if is_up == Some(true) { self.nodes[node].stalled_until } else { 0 };
        let wait = cut_off.max(severed).max(stalled).saturating_sub(now);
        (wait > 0).then(|| Duration::from_millis(wait))
    }

    fn blocked(&self, client: LinkId, is_up: bool, now: Millis) -> Option<Duration> {
        let link = self.links.get(&client)?;
        match link.fate {
            Some(fate) if !is_up && fate.swallows_replies() => Some(FOR_EVER),
            Some(Fate::HalfOpen) => None,
            _ => self.held_up(link.process, client.0, now, Some(is_up)),
        }
    }

    fn is_any(&self, client: LinkId, is_it: impl FnOnce(Fate) -> bool) -> bool {
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
    fn next_message(&self, bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
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
    fn pace(&self, client: LinkId, is_up: bool) -> Option<Pace> {
        if !is_up && self.nodes[client.0].trickles_until > self.now {
            return Some(Pace { bytes: 1, each: 1_000 });
        }
        let (pace, until) = self.throttled.get(&self.links.get(&client)?.process)?;
        (*until > self.now).then_some(*pace)
    }

    /// For how long bytes of a link are under way.
    fn passes_after(&mut self, client: LinkId, is_up: bool, bytes: usize) -> Millis {
        let (pace, now) = (self.pace(client, is_up), 1_000 * self.now);
        let (Some(pace), Some(link)) = (pace, self.links.get_mut(&client)) else { return 0 };
        let until = &mut link.paced_until[usize::from(is_up)];
        // A part of a tick is not waited for, and made up for by the next bytes.
        let takes = 1_000 * pace.each * bytes as Micros / pace.bytes as Micros;
        *until = (*until).max(now.saturating_sub(1_000)) + takes;
        until.saturating_sub(now).div_ceil(1_000)
    }

    /// The bytes of a process pass at this pace for a while.
    pub(crate) fn throttle(&mut self, process: usize, pace: Pace, until: Millis) {
        self.throttled.insert(process, (pace, until));
    }

    /// A process has run for a tick.
    pub(crate) fn process_has_run(&mut self, process: usize) {
        if self.costs.is_some() {
            self.work.entry(process).or_default().grant();
        }
    }

    /// Handles a message in its process. Returns whether that has had the time, or None if it needs none.
    fn work(&mut self, client: LinkId) -> Option<bool> {
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
        let time = self.time(node, self.now);
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
            self.well_since.entry(link.process).or_insert(self.now);
        }
        if let Some(log) = log {
            self.journal.list(self.now, link.process, client.0, log);
        }
    }

    /// Whether what a process sends does not arrive. It notices that by a reply that is late, but does not wait
    /// for one that another node can give.
    fn loses(&mut self, client: LinkId, bytes: &[u8]) -> bool {
        let Some(fate) = self.links.get(&client).and_then(|link| link.fate) else { return false };
        let is_lost = fate.swallows_requests();
        if !is_lost && !fate.swallows_replies() {
            return false;
        }
        let (now, process) = (self.now, self.links[&client].process);
        if is_lost && self.journal.lines.is_some() {
            let lost = format!("loses by link {}: {}", client.1, bytes.escape_ascii());
            self.journal.list(now, process, client.0, vec![lost]);
        }
        if bytes.windows(SLOTS.len()).any(|it| it == SLOTS) {
            return is_lost;
        }
        let in_vain = self.links.get_mut(&client).map(|link| &mut link.in_vain);
        // A process that has stood still has noticed nothing. What it sent before may have come meanwhile.
        let resumed = self.paused_until.get(&process).copied().unwrap_or_default();
        let begin = |[first, last]: [Millis; 2]| match last + PAUSE < now || first < resumed {
            true => now,
            false => first,
        };
        let first = in_vain.map(|it| it.insert([it.map_or(now, begin), now])[0]);
        let longest = if self.costs.is_some() { SLOW_SILENCE } else { LONGEST_SILENCE };
        if first.is_some_and(|first| first + longest < now) {
            self.silent.insert((process, client));
        }
        is_lost
    }

    fn is_doomed(&self, client: LinkId, fate: Fate) -> bool {
        self.links.get(&client).is_none_or(|link| link.fate == Some(fate))
    }

    /// Gives bytes to the server, and sends what it says, unless that needs time. Returns whether the link goes on.
    fn deliver(&mut self, client: LinkId, bytes: &[u8], now: Millis) -> bool {
        let time = if self.costs.is_some() { 0 } else { self.time(client.0, now) };
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

    /// Sets the clock of the servers forward or back, by microseconds.
    ///
    /// Not twice during a load: if it is set back and then forward past the time of the grant again, there is
    /// the gap that `how_it_works.md` says of late writers.
    pub(crate) fn set_clock(&mut self, by: i64, now: Millis) {
        if now >= self.clock_set_at + LONGEST_COMMIT {
            self.clock_set_at = now;
            self.clocks.iter_mut().for_each(|clock| clock.error += by);
            self.journal.note(now, format_args!("the clock is set by {by} us"));
        }
    }

    /// The time of a server in microseconds. Two commands never have the same.
    pub(crate) fn time(&mut self, node: NodeId, now: Millis) -> u64 {
        // Primaries come first, and then their replicas.
        let shard = node % self.clocks.len();
        let clock = &mut self.clocks[shard];
        let time = (BEGIN.as_micros() as i64 + 1000 * now as i64 + clock.error) as u64;
        // Within a millisecond, so that a clock that is set back is behind at once.
        clock.last = if clock.last / 1000 == time / 1000 { clock.last + 1 } else { time };
        clock.last
    }

    /// Ends a link.
    pub(crate) fn cut(&mut self, client: LinkId) {
        if let Some(link) = self.links.remove(&client) {
            if link.fate.is_some() {
                let before = self.cuts.insert(link.process, self.now);
                // An attempt to connect is not repeated, and a request that waits for it fails.
                let handshake = if self.costs.is_some() { SLOW_HANDSHAKE } else { HANDSHAKE };
                let is_new = link.opened_at + handshake > self.now;
                if is_new || before.is_some_and(|at| at + LATEST_FAILURE >= self.now) {
                    self.well_since.remove(&link.process);
                }
            }
            link.tasks.iter().for_each(AbortHandle::abort);
            if let Some(server) = &mut self.nodes[client.0].server {
                server.disconnect(client.1);
            }
        }
    }

    /// Whether a process may still have failures of which faults that have ended two of its links are the reason.
    pub(crate) fn may_fail(&self, process: usize) -> bool {
        let well_since = self.well_since.get(&process);
        well_since.is_none_or(|since| since + LATEST_FAILURE >= self.now)
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
    fn doom(&mut self, client: LinkId, fate: Fate) {
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

    /// Delays transmissions from now on, of all links or of slow ones.
    pub(crate) fn delay(&mut self, random: &mut SmallRng) {
        let longest = *[3, 30, 300].choose(random).expect("one");
        self.delays = (random.random_range(1..20), longest);
        self.delayed = if random.random() { DelayedLinks::All } else { DelayedLinks::Slow };
    }

    /// Delays messages from now on, and no replies.
    pub(crate) fn delay_messages(&mut self, random: &mut SmallRng) {
        self.delays = (random.random_range(1..3), 600);
        self.delayed = DelayedLinks::Subscribed;
    }

    /// All faults end, and half-open links with them.
    pub(crate) fn heal(&mut self) {
        self.delays = (u32::MAX, 1);
        for node in &mut self.nodes {
            (node.stalled_until, node.trickles_until) = (0, 0);
            node.server.iter_mut().for_each(|server| {
                server.set_full(false);
                server.lead_to_primary();
            });
        }
        self.cut_off_until.clear();
        self.severed_until.clear();
        self.throttled.clear();
        for client in self.links() {
            if self.links[&client].fate.is_some() {
                self.cut(client);
            }
        }
    }
}

/// The bytes that are under way in one direction at most.
const BUFFER: usize = 64 * 1024;

/// How long a load and its commit take at most, where the network delays nothing.
const LONGEST_COMMIT: Millis = 500;

/// How long a process takes at most to use a new link, where the network delays nothing.
const HANDSHAKE: Millis = 20;

/// The same where processes and servers need time.
const SLOW_HANDSHAKE: Millis = 60;

const TICK: Duration = Duration::from_millis(1);

/// How long requests may fail after links have ended, and one is executed: until the pause of the circuit breaker
/// is over.
const LATEST_FAILURE: Millis = 2_000;

/// How long a process may go on to send over a link that loses all. A reply is late after a quarter of a second.
const LONGEST_SILENCE: Millis = 2_000;

/// The same where processes and servers need time. Replies are late, so the process has more patience, and a process
/// with a quota is late itself.
const SLOW_SILENCE: Millis = 5_000;

const SLOTS: &[u8] = b"CLUSTER\r\n$5\r\nSLOTS";

/// If it has sent nothing for so long, it may have stood still.
const PAUSE: Millis = 1_500;

const FOR_EVER: Duration = Duration::from_secs(1_000_000);

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;
    use crate::server::ServerVersion;

    /// A link of the process 0, and the network.
    async fn linked() -> (Network, DuplexStream) {
        let servers =
            vec![("10.0.0.1:6379".to_owned(), ModelServer::new(ServerVersion::V7, [].into()))];
        let network = Network::new(1, Handle::current(), servers, &[0], None);
        let link = network.clone().connect(0, "10.0.0.1:6379".to_owned()).await;
        (network, link.expect("a link"))
    }

    /// Sends a command at each of these times. Returns whether the process counts as one that uses a link that
    /// loses all.
    async fn uses_lost_link(times: &[Millis]) -> bool {
        let (network, link) = linked().await;
        uses(network, link, times).await
    }

    async fn uses(network: Network, mut link: DuplexStream, times: &[Millis]) -> bool {
        network.with(|state| state.doom((0, 1), Fate::HalfOpen));
        for time in times {
            network.set_now(*time);
            link.write_all(b"*1\r\n$4\r\nPING\r\n").await.expect("it takes bytes");
            for _ in 0..10 {
                yield_now().await;
            }
        }
        network.with(|state| !state.silent.is_empty())
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_may_not_go_on_to_use_a_link_that_loses_all() {
        assert!(uses_lost_link(&[10, 900, 1_800, 2_700]).await);
        assert!(!uses_lost_link(&[10, 900, 1_800]).await);
        assert!(!uses_lost_link(&[10, 3_000]).await, "it has stood still");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_has_stood_still_begins_its_time_anew() {
        let paused = async |until| {
            let (network, link) = linked().await;
            network.with(|state| state.paused_until.insert(0, until));
            uses(network, link, &[10, 900, 1_800, 2_700]).await
        };
        assert!(!paused(1_000).await);
        assert!(paused(5).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_that_ends_while_it_is_new_counts_twice() {
        for (cut_at, is_twice) in [(10, true), (100, false)] {
            let (network, _link) = linked().await;
            network.with(|state| state.well_since.insert(0, 0));
            network.set_now(cut_at);
            network.with(|state| state.doom((0, 1), Fate::CutReply));
            network.with(|state| state.cut((0, 1)));
            network.set_now(cut_at + LATEST_FAILURE);
            assert_eq!(network.with(|state| state.may_fail(0)), is_twice);
        }
    }
}
