//! One turn: servers of one kind, the workers that use them, and the faults that both have.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::args::{Args, Plant, ServerKind};
use crate::bursts;
use crate::clock::now;
use crate::faults::{FaultLog, KILLED_WORKER, Loss};
use crate::floors::Floors;
use crate::hub::Hub;
use crate::judge::{self, Judged};
use crate::locked::locked;
use crate::messages::{Order, Setup};
use crate::process::Process;
use crate::servers::database::Database;
use crate::servers::{Injector, Servers, pause};

/// How long the workers may take to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Without faults before the first one, and after the last one.
const CALM: Duration = Duration::from_secs(2);

/// How turns are counted that a worker or a server has ended.
pub(crate) const BROKEN_OFF: &str = "turns broken off";

/// In microseconds.
const SEEN_EVERY: u64 = 1_000_000;

/// What is known of a turn while it lasts, and what stops it.
pub(crate) struct Turn {
    pub(crate) kind: ServerKind,
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    pub(crate) hub: Arc<Hub>,
    pub(crate) log: Arc<Mutex<FaultLog>>,
    pub(crate) stop: Arc<AtomicBool>,
    // The socket and the file of floors are in it.
    dir: TempDir,
}

impl Turn {
    pub(crate) fn new(
        kind: ServerKind,
        length: Duration,
        seed: u64,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("bellwether-proof-").tempdir()?;
        let hub = Hub::listen(&dir.path().join("socket"), seed)?;
        Ok(Self { kind, length, seed, hub, log: Arc::default(), stop, dir })
    }

    /// Runs it, on a thread of its own: workers die with the thread that has started them.
    pub(crate) fn run(self: &Arc<Self>, args: &Args, runtime: &Handle) -> io::Result<Judged> {
        let broken = catch_unwind(AssertUnwindSafe(|| self.play(args, runtime)));
        let interrupted = match broken {
            Ok(played) => played.err().map(|error| error.to_string()),
            Err(panic) => Some(said(&*panic)),
        };
        if let Some(why) = &interrupted {
            eprintln!("\nproof: a turn was broken off: {why}");
            self.hub.count(BROKEN_OFF);
        }
        let log = locked(&self.log).clone();
        Ok(judge::judge(self.kind.name(), self.seed, &self.hub, &log))
    }

    fn play(self: &Arc<Self>, args: &Args, runtime: &Handle) -> io::Result<()> {
        Floors::create(&self.floors(), args.workers)?;
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mut servers = Servers::start(self.kind, runtime);
        let mut database = Database::start();
        let mut fleet = Fleet::start(self, args, &servers, database.as_ref())?;
        let mut seen = Seen { at: now(), primaries: servers.primaries() };
        let (hub, log) = (Arc::clone(&self.hub), Arc::clone(&self.log));
        let bursts = runtime.spawn(bursts::run(hub, log, args.workers));
        let until = Instant::now() + self.length;
        self.rest(&mut fleet, &servers, &mut seen, CALM);
        while Instant::now() < until && !self.is_stopped() && !args.calm {
            let calm = match rng.random_range(0..4) {
                // Long enough for bursts on servers that have settled.
                0 => Duration::from_millis(rng.random_range(7_000..10_000)),
                _ => Duration::from_millis(rng.random_range(50..1_500)),
            };
            let calm = calm.min(until.saturating_duration_since(Instant::now()));
            self.rest(&mut fleet, &servers, &mut seen, calm);
            if Instant::now() < until && !self.is_stopped() {
                self.hub.order(&Order::Faulty(true));
                self.disturb(&mut rng, &mut servers, database.as_mut(), &mut fleet, runtime);
                seen.note_failovers(&servers, &self.log);
                let settled = Duration::from_millis(200);
                sleep(settled);
                self.hub.order(&Order::Faulty(false));
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        self.rest(&mut fleet, &servers, &mut seen, left);
        if !args.calm {
            sleep(CALM);
        }
        seen.note_failovers(&servers, &self.log);
        bursts.abort();
        fleet.end(self);
        Ok(())
    }

    fn disturb(
        &self,
        rng: &mut StdRng,
        servers: &mut Servers,
        database: Option<&mut Database>,
        fleet: &mut Fleet,
        runtime: &Handle,
    ) {
        let mut injector = Injector { log: &self.log, rng };
        match (injector.rng.random_range(0..11), database) {
            (0, _) => fleet.kill_one(self, &mut injector, servers),
            (1 | 2, _) => fleet.stop_one(&mut injector),
            (3, _) => injector.inject("source fails", Loss::Nothing, None, |rng| {
                self.hub.is_failing.store(true, Ordering::Relaxed);
                pause(rng, 50, 1_500);
                self.hub.is_failing.store(false, Ordering::Relaxed);
            }),
            (4, Some(database)) => database.disturb(&mut injector),
            _ => servers.disturb(&mut injector, runtime),
        }
    }

    /// Lets the workers work.
    fn rest(&self, fleet: &mut Fleet, servers: &Servers, seen: &mut Seen, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.is_stopped() {
            fleet.all_live();
            if seen.at + SEEN_EVERY < now() {
                seen.note_failovers(servers, &self.log);
            }
            sleep(Duration::from_millis(20).min(until.saturating_duration_since(Instant::now())));
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn floors(&self) -> PathBuf {
        self.dir.path().join("floors")
    }

    fn setup(
        &self,
        args: &Args,
        servers: &Servers,
        database: Option<&Database>,
        worker: u32,
    ) -> Setup {
        let path = |path: PathBuf| path.display().to_string();
        Setup {
            worker,
            workers: args.workers,
            url: servers.url(worker),
            database: database.map(Database::url),
            socket: path(self.dir.path().join("socket")),
            floors: path(self.floors()),
            seed: self.seed.wrapping_add(1 + u64::from(worker)),
            near_rate: args.near_rate / args.workers as u64,
            plants_stale: args.plant == Some(Plant::Stale),
            is_faulty: false,
        }
    }
}

/// Which servers were the primaries, and when. A machine that is too busy for a server to answer its peers in
/// half a second makes failovers of its own.
struct Seen {
    at: u64,
    primaries: Vec<usize>,
}

impl Seen {
    fn note_failovers(&mut self, servers: &Servers, log: &Mutex<FaultLog>) {
        let primaries = servers.primaries();
        let mut log = locked(log);
        let is_injected = log.faults.last().is_some_and(|fault| {
            fault.loss == Loss::LastWrites && fault.ended.is_none_or(|ended| ended >= self.at)
        });
        if primaries != self.primaries && !is_injected {
            log.note_failover(self.at);
        }
        drop(log);
        if primaries != self.primaries {
            self.primaries = primaries;
        }
        self.at = now();
    }
}

/// The worker processes.
struct Fleet {
    processes: Vec<Process>,
    setups: Vec<Setup>,
    starts: u64,
}

impl Fleet {
    fn start(
        turn: &Turn,
        args: &Args,
        servers: &Servers,
        database: Option<&Database>,
    ) -> io::Result<Self> {
        let workers = 0..args.workers as u32;
        let setups: Vec<_> =
            workers.map(|worker| turn.setup(args, servers, database, worker)).collect();
        let processes = setups.iter().map(Process::start).collect::<Result<_, _>>()?;
        let fleet = Self { processes, setups, starts: 0 };
        let began = Instant::now();
        while turn.hub.ready() < args.workers {
            assert!(began.elapsed() < PATIENCE, "the workers are not ready");
            sleep(Duration::from_millis(5));
        }
        Ok(fleet)
    }

    fn all_live(&mut self) {
        for process in &mut self.processes {
            assert!(!process.has_ended(), "a worker has ended by itself");
        }
    }

    fn kill_one(&mut self, turn: &Turn, injector: &mut Injector<'_>, servers: &Servers) {
        let worker = injector.rng.random_range(0..self.processes.len());
        self.starts += 1;
        let starts = self.starts;
        injector.inject(KILLED_WORKER, Loss::Nothing, Some(worker as u32), |rng| {
            self.processes[worker].kill();
            turn.hub.forget(worker as u32);
            pause(rng, 1, 1_500);
            let setup = &mut self.setups[worker];
            setup.seed = setup.seed.wrapping_add(starts * 1_000);
            setup.is_faulty = true;
            setup.url = servers.url(worker as u32);
            match Process::start(setup) {
                Ok(process) => self.processes[worker] = process,
                Err(error) => panic!("a worker does not start: {error}"),
            }
        });
    }

    fn stop_one(&self, injector: &mut Injector<'_>) {
        let worker = injector.rng.random_range(0..self.processes.len());
        injector.inject("worker stopped", Loss::Nothing, Some(worker as u32), |rng| {
            self.processes[worker].stop();
            // Sometimes longer than a lease, and than the bound of near copies.
            let most = if rng.random_ratio(1, 3) { 5_000 } else { 800 };
            pause(rng, 20, most);
            self.processes[worker].resume();
        });
    }

    /// Tells all workers to end, and waits until they have said what they counted.
    fn end(&mut self, turn: &Turn) {
        turn.hub.order(&Order::End);
        let began = Instant::now();
        while turn.hub.ended() < self.processes.len() && began.elapsed() < PATIENCE {
            sleep(Duration::from_millis(10));
        }
        self.processes.clear();
    }
}

/// What a panic says.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    text.unwrap_or_else(|| "a panic".to_owned())
}

/// The faults so far, and the one that is on.
pub(crate) fn shown(turn: &Turn) -> (usize, Option<String>) {
    let log = locked(&turn.log);
    let on = log.faults.last().filter(|fault| fault.ended.is_none());
    (log.faults.len(), on.map(|fault| fault.kind.clone()))
}
