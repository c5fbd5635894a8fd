//! What a lock costs that is free: pairs of take and release, of tasks with keys of their own.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml
//! ```
//!
//! The contenders take turns of a fifth of a second against one server, so that whatever else the
//! machine does meets all of them alike. A figure is the median of the rounds' own ratios to
//! `rslock` in the same round, with the first and the third quartile. CPU is what a lock costs in time
//! of a processor, in the server and here. Commands are those that the server counts, with those inside
//! scripts.
//!
//! A number is how many rounds (15), and a text leaves out the contenders whose names lack it, but
//! for `rslock`.

use std::process::{self, Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs};

use bellwether::Key;
use bellwether::store::Claim;
use bellwether_lock::redis::RedisClientOptions;
use bellwether_lock::{
    Attempt, FairLock, Lock, Locks, RedisLock, ReentrantLock, Released, Request,
};
use redis::aio::MultiplexedConnection;
use redis::{Client, Script};
use rslock::LockManager;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

const TURN: Duration = Duration::from_millis(200);
const LEASE: Duration = Duration::from_secs(30);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What one turn came to.
#[derive(Clone, Copy)]
struct Turn {
    /// Locks in a second.
    rate: f64,
    /// Microseconds of a processor for each lock.
    server: f64,
    client: f64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut rounds = 15;
    let mut only = String::new();
    for told in env::args().skip(1) {
        match told.parse() {
            Ok(number) => rounds = number,
            Err(_) => only = told,
        }
    }
    let server = Server::start().await?;
    let mut contenders = Vec::new();
    for name in CONTENDERS {
        if name == RSLOCK || name.contains(&only) {
            contenders.push(Contender::connect(name, &server).await?);
        }
    }
    for tasks in [1, 64] {
        let mut turns = vec![Vec::new(); contenders.len()];
        for round in 0..=rounds {
            for (contender, turns) in contenders.iter().zip(&mut turns) {
                let turn = contender.turn(tasks, &server).await;
                // The first is for getting going.
                if round > 0 {
                    turns.push(turn);
                }
            }
        }
        let rslock = contenders.iter().position(|contender| contender.name == RSLOCK);
        let rslock = turns[rslock.ok_or("rslock is there")?].clone();
        for (contender, turns) in contenders.iter().zip(turns) {
            let commands = contender.commands(&server).await?;
            print(tasks, contender.name, &turns, &rslock, commands);
        }
    }
    Ok(())
}

fn print(tasks: usize, name: &str, turns: &[Turn], rslock: &[Turn], commands: f64) {
    let ratios = sorted(turns.iter().zip(rslock).map(|(ours, theirs)| ours.rate / theirs.rate));
    let part = |part: usize| ratios[(ratios.len() * part / 4).min(ratios.len() - 1)];
    let median = |figure: fn(&Turn) -> f64| sorted(turns.iter().map(figure))[turns.len() / 2];
    let [rate, server, client] =
        [median(|turn| turn.rate), median(|turn| turn.server), median(|turn| turn.client)];
    println!(
        "{tasks:3} tasks  {name:22} {rate:6.0} locks/s  {:4.2} x rslock ({:4.2} to {:4.2})  \
         CPU {server:4.1} + {client:4.1} us  {commands:4.1} commands",
        part(2),
        part(1),
        part(3)
    );
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

const CONTENDERS: [&str; 6] = [
    "plain SET NX and script",
    RSLOCK,
    "RedisLock by itself",
    "RedisLock",
    "ReentrantLock",
    "FairLock",
];

const RSLOCK: &str = "rslock";

struct Contender {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Plain(MultiplexedConnection, Arc<Script>),
    Rslock(LockManager),
    Bare(RedisLock),
    Ours(Locks<Arc<dyn Lock>>),
}

impl Contender {
    async fn connect(name: &'static str, server: &Server) -> Result<Self, Failure> {
        let options = || RedisClientOptions::new(&server.url(), "test");
        let kind = match name {
            "rslock" => Kind::Rslock(LockManager::new(vec![server.url()])),
            "RedisLock by itself" => Kind::Bare(RedisLock::connect(options()?).await?),
            "RedisLock" => ours(RedisLock::connect(options()?).await?),
            "ReentrantLock" => ours(ReentrantLock::connect(options()?).await?),
            "FairLock" => ours(FairLock::connect(options()?).await?),
            _ => {
                let client = Client::open(server.url())?;
                let connection = client.get_multiplexed_async_connection().await?;
                Kind::Plain(connection, Arc::new(Script::new(COMPARE_AND_DELETE)))
            }
        };
        Ok(Self { name, kind })
    }

    /// Takes and releases for one turn.
    async fn turn(&self, tasks: usize, server: &Server) -> Turn {
        let [server_ran, client_ran] = [server.process.id(), process::id()].map(time_run);
        let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let began = Instant::now();
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let (kind, over, done) = (self.kind.clone(), Arc::clone(&over), Arc::clone(&done));
            running.spawn(async move {
                let mut nth = 0;
                while !over.load(Ordering::Relaxed) {
                    kind.once(task, nth).await;
                    nth += 1;
                }
                done.fetch_add(nth, Ordering::Relaxed);
            });
        }
        sleep(TURN).await;
        over.store(true, Ordering::Relaxed);
        while running.join_next().await.is_some() {}
        let (took, done) = (began.elapsed(), done.load(Ordering::Relaxed) as f64);
        let each = |ran: Duration, pid| (time_run(pid) - ran).as_secs_f64() * 1e6 / done;
        Turn {
            rate: done / took.as_secs_f64(),
            server: each(server_ran, server.process.id()),
            client: each(client_ran, process::id()),
        }
    }

    /// How many commands one lock is, by the server's statistics.
    async fn commands(&self, server: &Server) -> Result<f64, Failure> {
        const TIMES: u64 = 100;
        let before = server.commands().await?;
        for nth in 0..TIMES {
            self.kind.once(0, nth).await;
        }
        // The question itself is one.
        Ok((server.commands().await? - before - 1) as f64 / TIMES as f64)
    }
}

/// How long the threads of a process have run. Zero where the system does not tell.
fn time_run(pid: u32) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let stats =
        threads.flatten().filter_map(|it| fs::read_to_string(it.path().join("schedstat")).ok());
    let nanos = stats.filter_map(|stat| stat.split(' ').next()?.parse().ok());
    nanos.map(Duration::from_nanos).sum()
}

fn ours(lock: impl Lock) -> Kind {
    Kind::Ours(Locks::new(Arc::new(lock)))
}

impl Kind {
    async fn once(&self, task: usize, nth: u64) {
        match self {
            Self::Plain(connection, script) => {
                let (name, token) = (format!("plain:{task}:{nth}"), Uuid::new_v4().to_string());
                let mut connection = connection.clone();
                let life = LEASE.as_secs();
                let mut set = redis::cmd("SET");
                set.arg(&name).arg(&token).arg("NX").arg("EX").arg(life);
                let set: redis::Value = set.query_async(&mut connection).await.expect("taken");
                assert_eq!(set, redis::Value::Okay);
                let mut freed = script.key(&name);
                let freed = freed.arg(&token).invoke_async(&mut connection).await;
                assert_eq!(freed.unwrap_or(0), 1);
            }
            Self::Rslock(manager) => {
                let name = format!("rslock:{task}:{nth}");
                let lock = manager.lock(name.as_bytes(), LEASE).await.expect("taken");
                manager.unlock(&lock).await;
            }
            Self::Bare(lock) => {
                let claim = Claim::new(Key::of("free").with(task).with(nth));
                let asked = lock.acquire(Request::new(claim.clone(), LEASE)).await;
                assert!(matches!(asked, Ok(Attempt::Granted(_))), "{asked:?}");
                assert_eq!(lock.release(claim).await.expect("an answer"), Released::Freed);
            }
            Self::Ours(locks) => {
                let held = locks.try_lock(&Key::of("free").with(task).with(nth)).await;
                held.expect("taken").release().await.expect("released");
            }
        }
    }
}

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A server of our own, which goes with this.
struct Server {
    process: Child,
    port: u16,
    /// Goes after the process.
    _directory: tempfile::TempDir,
}

impl Server {
    async fn start() -> Result<Self, Failure> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let directory = tempfile::tempdir()?;
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "no", "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server, of the package of that name: {error}"))?;
        let server = Self { process, port, _directory: directory };
        for _ in 0..100 {
            if server.commands().await.is_ok() {
                return Ok(server);
            }
            sleep(Duration::from_millis(50)).await;
        }
        Err("redis-server does not answer".into())
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn commands(&self) -> Result<u64, Failure> {
        let mut connection = Client::open(self.url())?.get_multiplexed_async_connection().await?;
        let stats: String = redis::cmd("INFO").arg("stats").query_async(&mut connection).await?;
        let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        Ok(line.ok_or("no such statistic")?.trim().parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have gone by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
