//! A worker: a process with two stores, one with near copies and one without, whose tasks read, change and put.

mod caches;
mod checker;
mod database;
mod readers;
mod source;
mod writers;

use std::panic;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bellwether::CacheStatus;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use self::caches::Caches;
use self::checker::Checker;
use self::database::Database;
use self::source::Source;
use crate::clock::now;
use crate::floors::Floors;
use crate::kinds::{Kind, RowKey};
use crate::messages::{Order, Report, Setup};
use crate::row::mixed;
use crate::tally::Counts;

/// How often counts are sent. What a killed process has not sent is not counted.
const TALLY_EVERY: Duration = Duration::from_millis(500);

/// How long tasks may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

const WRITERS: u64 = 6;
const READERS: u64 = 24;
const NEAR_READERS: u64 = 8;

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// What all tasks of a worker share.
pub(super) struct World {
    setup: Setup,
    source: Source,
    caches: Caches,
    database: Option<Database>,
    checker: Checker,
    is_ending: AtomicBool,
}

impl World {
    async fn of(setup: Setup, source: Source) -> Result<Arc<Self>, Fault> {
        let floors = Floors::open(setup.floors.as_ref(), setup.workers)?;
        let caches = Caches::connect(&setup.url)?;
        let database = match &setup.database {
            Some(url) => Some(Database::open(url, caches.plain_store()).await?),
            None => None,
        };
        let checker = Checker::new(floors, &setup, source.clone());
        let is_ending = AtomicBool::new(false);
        Ok(Arc::new(Self { setup, source, caches, database, checker, is_ending }))
    }

    /// Starts the tasks that read, change and put.
    fn begin(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let rng = |task: u64| StdRng::seed_from_u64(mixed(self.setup.seed, task));
        let mut tasks = Vec::new();
        for task in 0..NEAR_READERS {
            tasks.push(tokio::spawn(Arc::clone(self).read_near(rng(task))));
        }
        for task in 0..READERS {
            tasks.push(tokio::spawn(Arc::clone(self).read(rng(100 + task))));
        }
        for task in 0..WRITERS {
            tasks.push(tokio::spawn(Arc::clone(self).write(rng(200 + task))));
        }
        tasks.push(tokio::spawn(Arc::clone(self).put(rng(300))));
        if self.setup.plants_stale {
            tasks.push(tokio::spawn(Arc::clone(self).plant(rng(400))));
        }
        tasks
    }
}

/// Runs until it is told to end, or the main process has gone.
pub(crate) fn run(setup: &str) -> ExitCode {
    let setup: Setup = serde_json::from_str(setup).expect("a setup of this program");
    die_of_any_panic();
    // Also while it is frozen.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.expect("a runtime").block_on(work(setup)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("proof: a worker ends: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// The main process sees that a worker has ended. A task that has panicked alone would be missed.
fn die_of_any_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::exit(101);
    }));
}

async fn work(setup: Setup) -> Result<(), Fault> {
    let (source, mut orders) = Source::connect(&setup.socket, setup.worker).await?;
    let world = World::of(setup, source).await?;
    world.source.report(Report::Ready { worker: world.setup.worker });
    let tasks = world.begin();
    let tallies = tokio::spawn(Arc::clone(&world).send_tallies());
    while let Some(order) = orders.recv().await {
        match order {
            Order::Burst { round, at, callers } => {
                tokio::spawn(Arc::clone(&world).burst(round, at, callers));
            }
            Order::Faulty(is_faulty) => world.checker.set_faulty(is_faulty),
            Order::End => break,
            Order::Answer { .. } => {}
        }
    }
    world.is_ending.store(true, Ordering::Relaxed);
    if timeout(PATIENCE, join_all(tasks)).await.is_err() {
        world.checker.count("tasks that did not end");
    }
    tallies.abort();
    world.send_tally();
    world.source.report(Report::Ended);
    // The main process closes the socket when it has read this.
    sleep(PATIENCE).await;
    Ok(())
}

impl World {
    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    async fn send_tallies(self: Arc<Self>) {
        loop {
            sleep(TALLY_EVERY).await;
            self.send_tally();
        }
    }

    fn send_tally(&self) {
        self.source.report(Report::Tally(Box::new(self.checker.take_tally())));
        self.source.report(Report::Late(self.checker.take_late()));
    }

    /// Callers that miss one key together, here and in the other workers.
    async fn burst(self: Arc<Self>, round: u64, at: u64, callers: usize) {
        let key = RowKey { kind: Kind::Burst, number: round };
        let stalled = self.checker.stalled();
        sleep(Duration::from_micros(at.saturating_sub(now()))).await;
        let store = usize::from(self.setup.worker.is_multiple_of(2));
        let reading = (0..callers).map(|_| {
            let world = Arc::clone(&self);
            tokio::spawn(async move {
                let mut counts = Counts::default();
                let answered = world.read_one(key, store, None, &mut counts).await;
                world.checker.flush(&mut counts);
                (answered.answer.is_ok(), matches!(answered.status, Some(CacheStatus::Bypass(_))))
            })
        });
        let answered = join_all(reading).await;
        let count = |is: fn(&(bool, bool)) -> bool| {
            answered.iter().filter(|it| it.as_ref().is_ok_and(is)).count() as u64
        };
        let errors = callers as u64 - count(|(is_answered, _)| *is_answered);
        let bypassed = count(|(_, is_bypassed)| *is_bypassed);
        let stalled = self.checker.stalled().saturating_sub(stalled);
        self.source.report(Report::Burst { round, errors, bypassed, stalled });
    }
}

/// A random time of up to so many microseconds.
async fn pause(rng: &mut StdRng, most: u64) {
    sleep(Duration::from_micros(rng.random_range(0..most))).await;
}
