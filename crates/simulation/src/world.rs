//! The world: processes, servers and a network, moved on tick by tick from one seed.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::mem::replace;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Once};
use std::time::Duration;
use std::{panic, thread};

use bellwether::adapter::BoxFuture;
use bellwether_redis::{RedisClientOptions, RedisOptions, RedisStore};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::burst::{Burst, BurstFigures, BurstRecord, BurstTrouble};
use crate::faults::FaultKind;
use crate::fleet::ServerFleet;
use crate::history::Shared;
use crate::host::{Host, Millis, PANICS};
use crate::network::{Network, NetworkState, NodeId};
use crate::operations::{Caller, Get, Telling};
use crate::plan::{LONGEST_BURST, RunPlan, WARM_KEYS};
use crate::plan_kind::PlanKind;
use crate::promises::ChangeOf;
use crate::reduction::{FAULTS, OPERATIONS, Reduction};
use crate::server::Mutations;

/// What is simulated.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// It decides all that is random.
    pub seed: u64,
    /// What it is about. None lets the seed decide.
    pub kind: Option<PlanKind>,
    /// How many operations of callers there are, about. A burst has its own number.
    pub operations: u64,
    /// Replacements in the texts of the scripts.
    pub mutations: Mutations,
    /// Whether all that happens is listed.
    pub shows_trace: bool,
    /// What of it is left out.
    pub reduction: Reduction,
    /// When it ends, in simulated milliseconds, or with its first violation before. None runs all of it.
    pub ends_at: Option<u64>,
}

/// What has happened in a run.
#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    /// The operations of callers.
    pub operations: u64,
    /// The loads.
    pub loads: u64,
    /// The commands of the server.
    pub commands: u64,
    /// The simulated time in milliseconds.
    pub millis: u64,
    /// The faults of each kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The promises that were broken.
    pub violations: Vec<String>,
    /// How many operations and faults had begun when the first promise was found broken.
    pub begun_at_violation: Option<[u64; 2]>,
    /// When that was, in simulated milliseconds.
    pub violated_at: Option<u64>,
    /// A hash of all that has happened.
    pub trace: u64,
    /// All that has happened, if it was to be listed.
    pub lines: Vec<String>,
}

impl Run {
    /// What it is about.
    pub fn kind(&self) -> PlanKind {
        self.kind.unwrap_or_else(|| PlanKind::of(self.seed))
    }

    /// Runs it, in a thread of its own: the name of that makes the random numbers of the system those of
    /// the seed.
    pub fn run(&self) -> RunOutcome {
        static COUNTS_PANICS: Once = Once::new();
        COUNTS_PANICS.call_once(|| {
            let report = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                PANICS.set(PANICS.get() + 1);
                report(info);
            }));
        });
        let run = self.clone();
        let name = format!("sim:{:x}", self.seed & 0xff_ffff_ffff);
        let simulated = thread::Builder::new().name(name).spawn(move || World::new(&run).run(&run));
        simulated.expect("a thread").join().expect("it does not panic")
    }
}

struct World {
    plan: RunPlan,
    /// When something begins. What it is has random numbers of its own, so that one can be left out.
    random: SmallRng,
    reduction: Reduction,
    /// How many operations and faults have begun, also those that are left out.
    begun: [u64; 2],
    begun_at_violation: Option<[u64; 2]>,
    violated_at: Option<Millis>,
    ends_at: Option<Millis>,
    now: Millis,
    shared: Arc<Shared>,
    servers: ServerFleet,
    /// Where the servers run, and until when they have.
    server_host: Host,
    servers_ran_until: Millis,
    processes: Vec<Process>,
}

struct Process {
    host: Host,
    caller: Caller,
    store: RedisStore,
    /// Until when it stands still.
    paused_until: Millis,
    /// Until when it has a quota, and where it is in that at the begin of the world.
    quota: (Millis, Millis),
    /// Whether it has run in the last tick.
    has_run: bool,
    /// Until when its host has run. While nothing happens in it, that is behind.
    ran_until: Millis,
    /// Until when something may follow from what has begun in it.
    is_awake_until: Millis,
}

impl Process {
    /// Whether its quota lets it run at a time.
    fn is_within_quota(&self, now: Millis) -> bool {
        let (until, place) = self.quota;
        until <= now || (now + place) % QUOTA_PERIOD < QUOTA
    }

    fn runs(&self, now: Millis) -> bool {
        self.paused_until <= now && self.is_within_quota(now)
    }

    /// Lets it run between two moments.
    fn run(&mut self, from: Millis, until: Millis) {
        if self.ran_until < until {
            self.host.run(from, until);
            self.ran_until = until;
        }
    }

    /// Begins something at a time, for which its clock is right.
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static, now: Millis) {
        if self.has_run && !self.host.has_input() {
            self.run(self.ran_until, now - 1);
        }
        self.is_awake_until = now + AWAKE;
        // Futures of operations are large, and the runtime would move them.
        self.host.spawn(Box::pin(task));
    }

    /// Asks for all keys at once.
    fn ask_for_all(&self, burst: Burst, keys: Range<u64>) {
        let load = [burst.load, 0];
        let get = |key| Get { key, load, load_fails: false, deadline: None, forces_refresh: false };
        if burst.is_batch {
            let count = (keys.end - keys.start) as usize;
            return self.host.spawn(self.caller.clone().get_many(get(keys.start), count, None));
        }
        for key in keys {
            self.host.spawn(self.caller.clone().get(get(key), None));
        }
    }
}

impl World {
    fn new(run: &Run) -> Self {
        let mut random = SmallRng::seed_from_u64(run.seed);
        let mut plan = RunPlan::new(&mut random, run.kind());
        run.reduction.simplify(&mut plan);
        let server_host = Host::new(0);
        let servers = ServerFleet::new(plan.topology, plan.version, Arc::clone(&run.mutations));
        let models = servers.start();
        let runtime = server_host.handle();
        let network =
            Network::new(random.random(), runtime, models, &plan.clock_errors, plan.costs);
        let shared = Shared::new(network, plan.keys, plan.tags, run.shows_trace);
        let mut world = Self {
            plan,
            random,
            reduction: run.reduction.clone(),
            begun: [0; 2],
            begun_at_violation: None,
            violated_at: None,
            ends_at: run.ends_at,
            now: 0,
            shared,
            servers,
            server_host,
            servers_ran_until: 0,
            processes: Vec::new(),
        };
        world.shared.note(format_args!("{:?}", world.plan));
        world.processes = (0..world.plan.near.len()).map(|place| world.start(place, 0)).collect();
        world
    }

    /// Starts a process.
    fn start(&self, place: usize, times: u32) -> Process {
        let host = Host::new(self.now);
        let network = self.shared.network.clone();
        let connect =
            move |to| Box::pin(network.clone().connect(place, to)) as BoxFuture<'static, _>;
        let url = self.plan.topology.url();
        let options = RedisClientOptions::new(&url, "sim").expect("an address");
        let options = options.connections(self.plan.connections);
        let options = RedisOptions::from(options.network(Arc::new(connect)))
            .pending_invalidations(self.plan.kept)
            // The promises are of what others have invalidated, to the microsecond.
            .outage_ttl(Duration::ZERO);
        let is_near = self.plan.near[place];
        let options = if is_near { options.near(1 << 20) } else { options };
        let store = host.enter(|| options.connect_lazily().expect("options"));
        let caller = Caller {
            shared: Arc::clone(&self.shared),
            process: (place, times),
            cache: host.enter(|| self.plan.cache(store.clone())),
            near: is_near.then_some(OLDEST_COPY),
            tags_of_answers: self.plan.tags_of_answers,
            never_fails: self.plan.failures.is_none(),
            loads_alone_after: self.plan.loads_alone_after(),
            outlives_faults: self.plan.faults.iter().all(|it| it.ends_links_only()),
            bounds: self.plan.bounds(),
        };
        Process {
            host,
            caller,
            store,
            paused_until: 0,
            quota: (0, 0),
            has_run: false,
            ran_until: self.now,
            is_awake_until: self.now + AWAKE,
        }
    }

    fn run(mut self, run: &Run) -> RunOutcome {
        _ = match self.plan.burst {
            Some(burst) => self.live_burst(burst),
            None => self.live(run),
        };
        if PANICS.get() > 0 {
            self.shared.violation(format_args!("{} panics", PANICS.get()));
        }
        self.outcome()
    }

    /// Goes on to its end. It breaks off where the run says so.
    fn live(&mut self, run: &Run) -> ControlFlow<()> {
        let chaos = if self.plan.faults.is_empty() { 0 } else { run.operations * 4 / 5 };
        // Where a fault follows the other, little else may happen.
        while self.begun[OPERATIONS] < chaos && self.now < LONGEST_CHAOS {
            self.befall();
            self.tick(true)?;
        }
        self.heal()?;
        // Leases of the dead end, breakers close, and what was kept is repeated.
        self.ticks(6_000, false)?;
        self.ticks(1_000, true)?;
        // After the clock was set back, a lease without a holder ends only when it is asked for.
        if !self.plan.faults.contains(&FaultKind::ClockJump) {
            self.shared.calm_down();
        }
        let end = self.now + 500;
        while self.begun[OPERATIONS] < run.operations || self.now < end {
            self.tick(true)?;
        }
        self.ticks(5_000, false)?;
        self.find_leaks();
        ControlFlow::Continue(())
    }

    /// All processes ask for the same keys at once. It breaks off where the run says so.
    fn live_burst(&mut self, burst: Burst) -> ControlFlow<()> {
        // Their connections are open before, and mostly they have loaded others.
        for process in &self.processes {
            match burst.is_warm {
                true => process.ask_for_all(Burst { load: 1, ..burst }, 0..WARM_KEYS),
                false => process.host.spawn(process.caller.clone().lookup(0, None)),
            }
        }
        self.ticks(500, false)?;
        self.shared.with(|history| {
            history.burst = Some(BurstRecord::default());
            *history.counts.entry(burst.name()).or_default() += 1;
        });
        let began_at = self.now;
        if burst.beside == BurstTrouble::Quotas {
            for process in &mut self.processes {
                process.quota =
                    (began_at + LONGEST_BURST, self.random.random_range(0..QUOTA_PERIOD));
            }
        }
        let mut begins: Vec<_> = (0..self.processes.len())
            .map(|place| (began_at + self.random.random_range(0..=burst.spread), place))
            .collect();
        let callers = (self.plan.keys - WARM_KEYS) * self.processes.len() as u64;
        let end = self.shared.with(|history| history.operations) + callers;
        while self.now < began_at + LONGEST_BURST
            && self.shared.with(|history| history.operations) < end
        {
            let now = self.now;
            let begin: Vec<_> = begins.extract_if(.., |(at, _)| *at <= now).collect();
            if !begin.is_empty() {
                self.catch_up(now);
            }
            begin.into_iter().for_each(|(_, place)| {
                self.processes[place].ask_for_all(burst, WARM_KEYS..self.plan.keys);
            });
            for place in 0..self.processes.len() {
                if let Some(stop) = burst.draw_stop(&mut self.random)
                    && self.processes[place].runs(now)
                {
                    self.pause(place, now + stop, false);
                }
            }
            self.tick(false)?;
        }
        let took = self.now - began_at;
        self.processes.iter_mut().for_each(|it| (it.paused_until, it.quota.0) = (0, 0));
        self.ticks(6_000, false)?;
        self.check_burst(took);
        self.find_leaks();
        ControlFlow::Continue(())
    }

    fn check_burst(&self, took: Millis) {
        let record = self.shared.with(|history| history.burst.clone()).unwrap_or_default();
        let figures = BurstFigures {
            processes: self.processes.len(),
            keys: self.plan.keys - WARM_KEYS,
            loads: record.loads,
            errors: record.errors,
            outages: self.processes.iter().map(|it| it.store.stats().outages).sum(),
            took,
        };
        match figures.is_kept() {
            true => self.shared.note(format_args!("{figures}")),
            false => {
                let (topology, burst) = (self.plan.topology, self.plan.burst);
                self.shared.violation(format_args!("{figures}, {topology:?}, {burst:?}"));
            }
        }
    }

    /// The random numbers of the next operation or fault. None if that is left out.
    fn begin(&mut self, kind: usize) -> Option<SmallRng> {
        let number = self.begun[kind];
        self.begun[kind] += 1;
        if kind == FAULTS {
            self.catch_up(self.now);
        }
        let seed = self.random.random();
        self.reduction.keeps(kind, number).then(|| {
            self.shared.note(format_args!("{} {number}", ["operation", "fault"][kind]));
            SmallRng::seed_from_u64(seed)
        })
    }

    fn ticks(&mut self, count: Millis, is_busy: bool) -> ControlFlow<()> {
        (0..count).try_for_each(|_| self.tick(is_busy))?;
        self.catch_up(self.now);
        ControlFlow::Continue(())
    }

    fn tick(&mut self, is_busy: bool) -> ControlFlow<()> {
        self.now += 1;
        self.shared.network.set_now(self.now);
        if is_busy {
            let mut rate = self.plan.rate;
            while rate > 0 && self.random.random_ratio(rate.min(1_000), 1_000) {
                self.operate();
                rate = rate.saturating_sub(1_000);
            }
        }
        self.follow();
        self.servers.tick(&self.shared);
        self.run_servers();
        for place in 0..self.processes.len() {
            self.run_process(place);
        }
        if self.begun_at_violation.is_none() && self.shared.with(|it| !it.violations.is_empty()) {
            (self.begun_at_violation, self.violated_at) = (Some(self.begun), Some(self.now));
        }
        match self.ends_at {
            Some(end) if self.now >= end || self.violated_at.is_some() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Lets the servers go on for a tick. If nothing was sent, they do so later.
    fn run_servers(&mut self) {
        let (now, ran_until) = (self.now, self.servers_ran_until);
        let has_input = self.server_host.has_input();
        if !has_input
            && now - ran_until < LONGEST_STEP
            && self.servers.is_settled()
            && self.shared.network.with(|state| state.is_quiet())
        {
            return;
        }
        self.shared.network.with(NetworkState::serve);
        self.server_host.run(if has_input { now - 1 } else { ran_until }, now);
        self.servers_ran_until = now;
    }

    /// Lets a process go on for a tick, if it runs. If nothing happens in it, it does so later.
    fn run_process(&mut self, place: usize) {
        let (process, now) = (&mut self.processes[place], self.now);
        let runs = process.runs(now);
        let had_run = replace(&mut process.has_run, runs);
        if !process.has_run {
            if process.paused_until <= now {
                self.shared.with(|history| *history.paused.entry(place).or_default() += 1);
            }
            return;
        }
        if had_run {
            self.shared.network.with(|state| state.process_has_run(place));
        }
        let has_input = process.host.has_input();
        if had_run
            && !has_input
            && process.is_awake_until < now
            && now - process.ran_until < LONGEST_STEP
            && self.shared.with(|it| it.is_quiet(process.caller.process))
        {
            return;
        }
        if has_input {
            process.is_awake_until = now + AWAKE;
        }
        process.run(if has_input || !had_run { now - 1 } else { process.ran_until }, now);
    }

    /// Lets all hosts that run do what they have put off.
    fn catch_up(&mut self, now: Millis) {
        if self.servers_ran_until < now {
            self.server_host.run(self.servers_ran_until, now);
            self.servers_ran_until = now;
        }
        for process in self.processes.iter_mut().filter(|it| it.has_run) {
            process.run(process.ran_until, now);
        }
    }

    /// Each process takes a row that a database has recorded, if one is due.
    fn follow(&mut self) {
        if self.shared.with(|it| it.recorded.pending()) == 0 {
            return;
        }
        for process in self.processes.iter_mut().filter(|it| it.runs(self.now)) {
            let caller = &process.caller;
            let taken = self.shared.with(|it| it.recorded.take(caller.process, self.now));
            if let Some(what) = taken {
                process.spawn(caller.clone().apply_recorded(what), self.now);
            }
        }
    }

    /// Begins an operation in a process.
    fn operate(&mut self) {
        let Some(random) = &mut self.begin(OPERATIONS) else { return };
        let now = self.now;
        let Self { plan, processes, .. } = self;
        let count = processes.len();
        let process = &mut processes[random.random_range(0..MOST_PROCESSES) % count];
        if !process.runs(now) {
            return;
        }
        let caller = process.caller.clone();
        let leaves_after = random.random_ratio(1, plan.leaving).then(|| random.random_range(1..5));
        let key = random.random_range(0..MOST_KEYS) % plan.keys;
        if random.random_ratio(1, plan.changes) {
            let is_of_tag = plan.tags > 0 && random.random_ratio(1, 3);
            let what = if is_of_tag { ChangeOf::Tag(key % plan.tags) } else { ChangeOf::Key(key) };
            let how = match random.random_range(0..4) {
                0 => Telling::Expire,
                1 if !is_of_tag => Telling::Put,
                2 if random.random() => {
                    return self.shared.record(what, random.random_range(0..LATEST_FOLLOWER));
                }
                _ => Telling::Invalidate,
            };
            return process.spawn(caller.change(what, how, leaves_after), now);
        }
        if random.random_ratio(1, 20) {
            return process.spawn(caller.lookup(key, leaves_after), now);
        }
        let mut load = || random.random_range(0..=plan.longest_load);
        let get = Get {
            key,
            load: [load(), load()],
            load_fails: plan.failures.is_some_and(|one_of| random.random_ratio(1, one_of)),
            deadline: random.random_ratio(1, 20).then(|| random.random_range(5..400)),
            forces_refresh: random.random_ratio(1, 100),
        };
        match random.random_ratio(1, 10) {
            true => process.spawn(caller.get_many(get, MOST_AT_ONCE, leaves_after), now),
            false => process.spawn(caller.get(get, leaves_after), now),
        }
    }

    /// Now and then, a fault.
    fn befall(&mut self) {
        if !self.random.random_ratio(1, self.plan.pause) {
            return;
        }
        let Some(random) = &mut self.begin(FAULTS) else { return };
        if random.random_ratio(1, 4) {
            self.servers.save(&self.shared);
        }
        let kind = *self.plan.faults.choose(random).expect("one");
        self.shared.note(format_args!("{}", kind.name()));
        self.shared.with(|history| *history.counts.entry(kind.name()).or_default() += 1);
        let (now, processes) = (self.now, self.processes.len());
        if self.shared.network.with(|state| kind.befall(state, random, processes, now)) {
            return;
        }
        let place = random.random_range(0..processes);
        let until = now + random.random_range(1..4_000);
        match kind {
            FaultKind::Pause if self.processes[place].paused_until > now => {}
            FaultKind::Pause => self.pause(place, until, random.random()),
            FaultKind::Quota => {
                self.processes[place].quota = (until, random.random_range(0..QUOTA_PERIOD));
            }
            FaultKind::KillProcess => {
                let (_, times) = self.processes[place].caller.process;
                self.shared.ended((place, times));
                self.shared.network.with(|state| state.process_ends(place));
                let next = self.start(place, times + 1);
                let killed = replace(&mut self.processes[place], next);
                PANICS.set(PANICS.get() + killed.host.kill());
            }
            _ => self.servers.befall(kind, &self.shared, random, processes),
        }
    }

    fn pause(&mut self, place: usize, until: Millis, cuts_off: bool) {
        self.catch_up(self.now);
        self.processes[place].paused_until = until;
        self.shared.network.with(|state| state.paused_until.insert(place, until));
        let more = until - self.now;
        if cuts_off {
            // Its machine has no network for a moment after that.
            self.shared.network.with(|state| state.cut_off_until.insert(place, until + 300));
        }
        self.shared.with(|history| *history.paused.entry(place).or_default() += more);
    }

    /// Ends all faults.
    fn heal(&mut self) -> ControlFlow<()> {
        while !self.servers.is_settled() {
            self.tick(true)?;
        }
        self.catch_up(self.now);
        self.shared.network.with(NetworkState::heal);
        self.processes.iter_mut().for_each(|process| process.quota.0 = 0);
        let latest = self.processes.iter().map(|it| it.paused_until).max();
        self.ticks(latest.unwrap_or_default().saturating_sub(self.now), true)
    }

    /// Nothing is under way any more, so nothing may be left.
    fn find_leaks(&self) {
        let shared = &self.shared;
        let (under_way, recorded) = shared.with(|it| (it.under_way, it.recorded.pending()));
        if recorded > 0 {
            shared.violation(format_args!("{recorded} recorded changes were never applied"));
        }
        // Those of killed processes have not ended.
        let killed = self.processes.iter().any(|it| it.caller.process.1 > 0);
        if under_way > 0 && !killed {
            shared.violation(format_args!("{under_way} operations have not ended"));
        }
        let each = self.plan.connections as usize;
        for Process { host, caller, store, .. } in &self.processes {
            let (flights, pending) = (caller.cache.in_flight(), store.stats().replay.pending);
            if flights > 0 || pending > 0 || host.tasks() > self.plan.topology.tasks(each) {
                let tasks = host.tasks();
                shared.violation(format_args!(
                    "{:?} has {flights} flights, {pending} pending invalidations and {tasks} tasks",
                    caller.process
                ));
            }
        }
        for (process, (node, _)) in shared.network.with(|state| state.silent.clone()) {
            shared.violation(format_args!("{process} uses a link to {node} that loses all"));
        }
        let primaries = shared.network.with(|state| state.primaries());
        primaries.iter().for_each(|node| self.find_leases(*node));
        let open = shared.network.with(|state| state.connections());
        for (node, connections) in open.into_iter().enumerate() {
            let most = self.plan.topology.connections(each, node, primaries.contains(&node))
                * self.processes.len();
            if connections > most {
                shared.violation(format_args!("server {node} has {connections} connections"));
            }
        }
    }

    fn find_leases(&self, node: NodeId) {
        let leases = self.shared.network.with(|state| {
            let time = state.time(node, self.now);
            let server = state.nodes[node].server.as_ref().expect("it runs");
            let names = server.names(time);
            names.iter().filter(|name| name.ends_with(b":lease")).count()
        });
        if leases > 0 {
            self.shared.violation(format_args!("server {node} has {leases} leases"));
        }
    }

    fn outcome(self) -> RunOutcome {
        // All hash tables of a thread share a count. One that is made once per process would shift it in
        // the first run only, so it is part of what a run does.
        let hash_tables = RandomState::new().hash_one(0);
        self.shared.note(format_args!("the next hash table is that of {hash_tables:x}"));
        let (commands, journal) =
            self.shared.network.with(|it| (it.commands, std::mem::take(&mut it.journal)));
        self.shared.with(|history| RunOutcome {
            operations: history.operations,
            loads: history.loads,
            commands,
            millis: self.now,
            faults: std::mem::take(&mut history.counts),
            begun_at_violation: self
                .begun_at_violation
                .or_else(|| (!history.violations.is_empty()).then_some(self.begun)),
            violated_at: self.violated_at,
            violations: std::mem::take(&mut history.violations),
            trace: journal.hash,
            lines: journal.lines.unwrap_or_default(),
        })
    }
}

/// For how many milliseconds a host runs at once, at most: what it sends then is late by these, or its timers are.
const LONGEST_STEP: Millis = 16;

/// For how long a process does not after something has begun in it, or has come from a server.
const AWAKE: Millis = 2;

/// For how long a process with a quota runs, of each period.
const QUOTA: Millis = 20;
const QUOTA_PERIOD: Millis = 100;

/// How long after its commit a follower takes a row, at most.
const LATEST_FOLLOWER: Millis = 400;

/// For how many keys one call asks.
const MOST_AT_ONCE: usize = 4;

/// Multiples of all numbers of processes and of keys.
const MOST_PROCESSES: usize = 12;
const MOST_KEYS: u64 = 20;

/// How long there are faults at most.
const LONGEST_CHAOS: Millis = 120_000;

/// How old a near copy may be that was invalidated: what the guide says, and two ticks.
const OLDEST_COPY: Millis = 1_252;
