//! Hand-overs of locks: from a release to the next holder's start, with eight waiters, against
//! eight callers that try every 50 ms.
//!
//! Each of the eight has connections of its own, as eight processes have. What the Redis server
//! counted is said as well: commands of clients, without those that scripts make inside.

use std::error::Error;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bellwether::Key;
use bellwether_lock::redis::RedisClientOptions;
use bellwether_lock::{
    FairLock, LocalLock, Lock, LockErrorKind, LockWait, Locks, MySqlOptions, MySqlRowLock,
    PostgresLock, PostgresOptions, RedisLock, Redlock, ReentrantLock, ZooKeeperLock,
    ZooKeeperOptions,
};
use bellwether_testkit::servers::{MariaDbServer, PostgresServer, RedisServer, ZooKeeperServer};
use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::figures::{Spread, Wanted, line};
use crate::paired::Effort;

pub(crate) fn run(effort: Effort) {
    let runtime = Runtime::new().expect("a runtime");
    let rounds = if effort.is_smoke() { 1 } else { 25 };
    let stage = Stage { rounds, is_smoke: effort.is_smoke() };
    runtime.block_on(async {
        let local = LocalLock::new();
        stage.play("local", None, || found(local.clone())).await;
        let redis = RedisServer::start();
        let options = || RedisClientOptions::new(&redis.url(), "test").expect("an address");
        stage.play("redis", Some(&redis), || made(RedisLock::connect(options()))).await;
        stage.play("reentrant", Some(&redis), || made(ReentrantLock::connect(options()))).await;
        stage.play("fair", Some(&redis), || made(FairLock::connect(options()))).await;
        let nodes: Vec<_> = (0..5).map(|_| RedisServer::start()).collect();
        let options = || {
            nodes
                .iter()
                .map(|node| RedisClientOptions::new(&node.url(), "test").expect("an address"))
        };
        let all = || options().collect::<Vec<_>>();
        stage.play("redlock", Some(&nodes[0]), || made(Redlock::connect(all()))).await;
        let zookeeper = ZooKeeperServer::start();
        let options = || ZooKeeperOptions::new(&zookeeper.hosts(), "test").expect("hosts");
        stage.play("zookeeper", None, || made(ZooKeeperLock::connect(options()))).await;
        let mariadb = MariaDbServer::start();
        let options = || MySqlOptions::new(&mariadb.url(), "test").expect("an address");
        stage.play("mysql row", None, || made(MySqlRowLock::connect(options()))).await;
        let postgres = PostgresServer::start();
        let options = || PostgresOptions::new(&postgres.url(), "test").expect("an address");
        stage.play("postgres", None, || made(PostgresLock::connect(options()))).await;
    });
}

type Made<'a> = Pin<Box<dyn Future<Output = Arc<dyn Lock>> + 'a>>;

fn made<'a, L: Lock, E: Error>(connecting: impl Future<Output = Result<L, E>> + 'a) -> Made<'a> {
    Box::pin(async { Arc::new(connecting.await.expect("a lock")) as Arc<dyn Lock> })
}

fn found<'a>(lock: impl Lock) -> Made<'a> {
    Box::pin(async { Arc::new(lock) as Arc<dyn Lock> })
}

struct Stage {
    /// How many times each of the eight holds the lock.
    rounds: usize,
    is_smoke: bool,
}

impl Stage {
    async fn play<'a>(&self, name: &str, redis: Option<&RedisServer>, lock: impl Fn() -> Made<'a>) {
        let services = join_all((0..WAITERS).map(|_| lock())).await;
        let services: Vec<_> = services
            .into_iter()
            .map(|lock| Locks::new(lock).wait(LockWait::at_most(Duration::from_secs(60))))
            .collect();
        // A lock connects at its first request, which is not measured.
        self.hand_over(&services, 1, true).await;
        let before = redis.map(commands);
        let notified = self.hand_over(&services, self.rounds, true).await;
        let after = redis.map(commands);
        let polled = self.hand_over(&services, self.rounds, false).await;
        let ours = spread(&notified);
        let theirs = spread(&polled);
        self.line(
            name,
            "notified",
            format_args!("{:>10.2} ms  ({:.2} to {:.2})", ours.median, ours.low, ours.high),
        );
        self.line(
            name,
            "polling at 50 ms",
            format_args!("{:>10.2} ms  ({:.2} to {:.2})", theirs.median, theirs.low, theirs.high),
        );
        let ratio = Spread {
            low: ours.low / theirs.median,
            median: ours.median / theirs.median,
            high: ours.high / theirs.median,
        };
        self.line(
            name,
            "notified / polling, time",
            format_args!("{:>10.2} x{}", ratio.median, Wanted::AtMost(1.0).verdict(ratio)),
        );
        if let (Some(before), Some(after)) = (before, after) {
            let each = (after - before) as f64 / (self.rounds * WAITERS) as f64;
            self.line(name, "commands of a hand-over", format_args!("{each:>10.1}"));
        }
    }

    /// From each release to the next holder's start, in milliseconds.
    async fn hand_over(
        &self,
        services: &[Locks<Arc<dyn Lock>>],
        rounds: usize,
        is_notified: bool,
    ) -> Vec<f64> {
        let key = Key::of("handover");
        let released = Mutex::new((None::<Instant>, Vec::new()));
        join_all(services.iter().map(async |locks| {
            for _ in 0..rounds {
                let held = loop {
                    if is_notified {
                        break locks.lock(&key).await.expect("the lock");
                    }
                    match locks.try_lock(&key).await {
                        Ok(held) => break held,
                        Err(error) if error.kind() == LockErrorKind::Busy => sleep(POLL).await,
                        Err(error) => panic!("{error}"),
                    }
                };
                {
                    let mut released = released.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(before) = released.0.take() {
                        released.1.push(before.elapsed().as_secs_f64() * 1e3);
                    }
                }
                sleep(WORK).await;
                // From here on another caller may have it.
                released.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(Instant::now());
                held.release().await.expect("it was held");
                // It is another caller's turn.
                sleep(WORK).await;
            }
        }))
        .await;
        released.into_inner().unwrap_or_else(PoisonError::into_inner).1
    }

    fn line(&self, case: &str, name: &str, figure: impl Display) {
        line("handover", case, name, &figure.to_string(), self.is_smoke);
    }
}

/// What clients have sent: these locks send scripts and nothing else.
fn commands(server: &RedisServer) -> u64 {
    let calls = |command: &str| {
        let stats = server.info("commandstats", &format!("cmdstat_{command}"))?;
        stats.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok()
    };
    ["eval", "evalsha"].into_iter().filter_map(calls).sum()
}

fn spread(times: &[f64]) -> Spread {
    Spread::of(times.iter().copied())
}

const WAITERS: usize = 8;

const POLL: Duration = Duration::from_millis(50);

/// How long the lock is held, and how long a holder waits before it asks again.
const WORK: Duration = Duration::from_millis(2);
