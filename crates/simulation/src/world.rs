//! The world: processes, servers and a network, moved on tick by tick from one seed.

use std::hash::{BuildHasher, RandomState};
use std::mem::{replace, take};
use std::ops::ControlFlow;
use std::sync::{Arc, Once};
use std::{panic, thread};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::burst::{Burst, BurstFigures, BurstRecord, BurstTrouble};
use crate::drawn_operation::DrawnOperation;
use crate::faults::FaultKind;
use crate::fleet::ServerFleet;
use crate::history::Shared;
use crate::host::{Host, LONGEST_STEP, Millis, PANICS};
use crate::leaks::find_leaks;
use crate::network::{Network, NetworkState};
use crate::plan::{LONGEST_BURST, RunPlan, WARM_KEYS};
use crate::process::{Process, QUOTA_PERIOD};
use crate::reduction::{FAULTS, OPERATIONS, Reduction};
use crate::run::{Run, RunOutcome};

/// Does a run, in a thread of its own: the name of that makes the random numbers of the system those of
/// the seed.
pub fn simulate(run: &Run) -> RunOutcome {
    static COUNTS_PANICS: Once = Once::new();
    COUNTS_PANICS.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            report(info);
        }));
    });
    let run = run.clone();
    let name = format!("sim:{:x}", run.seed & 0xff_ffff_ffff);
    let simulated = thread::Builder::new().name(name).spawn(move || World::new(&run).run(&run));
    simulated.expect("a thread").join().expect("it does not panic")
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
        let places = 0..world.plan.near.len();
        world.processes =
            places.map(|place| Process::start(&world.plan, &world.shared, place, 0, 0)).collect();
        world
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
        self.use_connections();
        self.shared.has_applied_again();
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
        find_leaks(&self.shared, &self.plan, &self.processes);
        ControlFlow::Continue(())
    }

    /// Each process asks for each key, and whether its store has connected. A connection that has ended is noticed when
    /// it is used, and what the process has invalidated is then repeated, which ends loads.
    fn use_connections(&mut self) {
        for process in self.processes.iter_mut().filter(|process| process.runs(self.now)) {
            let store = process.store.clone();
            process.spawn(async move { _ = store.opened().await }, self.now);
            for key in 0..self.plan.keys {
                process.spawn(process.caller.clone().lookup(key, None), self.now);
            }
        }
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
        self.ask_at_once(burst)?;
        let took = self.now - began_at;
        self.processes.iter_mut().for_each(|it| (it.paused_until, it.quota.0) = (0, 0));
        self.ticks(6_000, false)?;
        self.check_burst(took);
        find_leaks(&self.shared, &self.plan, &self.processes);
        ControlFlow::Continue(())
    }

    /// The burst itself, until all callers are answered.
    fn ask_at_once(&mut self, burst: Burst) -> ControlFlow<()> {
        let ends_at = self.now + LONGEST_BURST;
        if burst.beside == BurstTrouble::Quotas {
            for process in &mut self.processes {
                process.quota = (ends_at, self.random.random_range(0..QUOTA_PERIOD));
            }
        }
        let mut begins: Vec<_> = (0..self.processes.len())
            .map(|place| (self.now + self.random.random_range(0..=burst.spread), place))
            .collect();
        let callers = (self.plan.keys - WARM_KEYS) * self.processes.len() as u64;
        let end = self.shared.with(|history| history.operations) + callers;
        while self.now < ends_at && self.shared.with(|history| history.operations) < end {
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
        self.processes.iter_mut().for_each(|process| process.tick(&self.shared, self.now));
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

    /// Lets all hosts that run do what they have put off.
    fn catch_up(&mut self, now: Millis) {
        if self.servers_ran_until < now {
            self.server_host.run(self.servers_ran_until, now);
            self.servers_ran_until = now;
        }
        self.processes.iter_mut().for_each(|process| process.catch_up(now));
    }

    /// Each process takes a row that a database has recorded, if one is due, and looks whether its store may have lost
    /// others.
    fn follow(&mut self) {
        for process in self.processes.iter_mut().filter(|it| it.runs(self.now)) {
            let caller = &process.caller;
            let taken = self.shared.with(|it| it.recorded.take(caller.process, self.now));
            if let Some(what) = taken {
                process.spawn(caller.clone().apply_recorded(what), self.now);
            }
            if self.shared.with(|it| it.recorded.looks(process.caller.process, self.now)) {
                let again = process.caller.clone().apply_again(process.store.clone());
                process.spawn(again, self.now);
            }
        }
    }

    /// Begins an operation in a process.
    fn operate(&mut self) {
        let Some(random) = &mut self.begin(OPERATIONS) else { return };
        let (now, count) = (self.now, self.processes.len());
        let process = &mut self.processes[random.random_range(0..MOST_PROCESSES) % count];
        if !process.runs(now) {
            return;
        }
        let caller = process.caller.clone();
        let (operation, leaves_after) = DrawnOperation::draw(random, &self.plan);
        match operation {
            DrawnOperation::One(get) => process.spawn(caller.get(get, leaves_after), now),
            DrawnOperation::Many(get) => {
                process.spawn(caller.get_many(get, MOST_AT_ONCE, leaves_after), now);
            }
            DrawnOperation::Lookup(key) => process.spawn(caller.lookup(key, leaves_after), now),
            DrawnOperation::Change(what, how) => {
                process.spawn(caller.change(what, how, leaves_after), now);
            }
            DrawnOperation::Recorded(what, after) => self.shared.record(what, after),
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
                let next = Process::start(&self.plan, &self.shared, place, times + 1, now);
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
            self.shared.network.with(|state| state.hindrances.cut_off(place, until + 300));
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

    fn outcome(self) -> RunOutcome {
        // All hash tables of a thread share a count. One that is made once per process would shift it in
        // the first run only, so it is part of what a run does.
        let hash_tables = RandomState::new().hash_one(0);
        self.shared.note(format_args!("the next hash table is that of {hash_tables:x}"));
        let (commands, journal) =
            self.shared.network.with(|it| (it.commands, take(&mut it.journal)));
        self.shared.with(|history| RunOutcome {
            operations: history.operations,
            loads: history.loads,
            commands,
            millis: self.now,
            faults: take(&mut history.counts),
            begun_at_violation: self
                .begun_at_violation
                .or_else(|| (!history.violations.is_empty()).then_some(self.begun)),
            violated_at: self.violated_at,
            violations: take(&mut history.violations),
            trace: journal.hash,
            lines: journal.lines.unwrap_or_default(),
        })
    }
}

/// For how many keys one call asks.
const MOST_AT_ONCE: usize = 4;

/// A multiple of all numbers of processes.
const MOST_PROCESSES: usize = 12;

/// How long there are faults at most.
const LONGEST_CHAOS: Millis = 120_000;
