//! What a lock costs that is free: pairs of take and release, of tasks with keys of their own.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml
//! ```
//!
//! The contenders take turns of a fifth of a second against one server, so that whatever else the
//! machine does meets all of them alike. A figure is the median of the rounds' own ratios to
//! `rslock` in the same round. Commands are those that the server counts, with those inside scripts.

use std::env;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bellwether_lock::{Attempt, Claim, FairLock, Lock, Locks, RedisLock, ReentrantLock};
use bellwether_lock::{Released, Request};
use bellwether::{Key, RedisOptions};
use redis::aio::MultiplexedConnection;
use redis::{Client, Script};
use rslock::LockManager;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

const TURN: Duration = Duration::from_millis(200);
const LEASE: Duration = Duration::from_secs(30);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let rounds = env::args().nth(1).map_or(Ok(15), |rounds| rounds.parse())?;
    let server = Server::start().await?;
    let contenders = [
        Contender::connect("plain SET NX and script", &server).await?,
        Contender::connect("rslock", &server).await?,
        Contender::connect("RedisLock by itself", &server).await?,
        Contender::connect("RedisLock", &server).await?,
        Contender::connect("ReentrantLock", &server).await?,
        Contender::connect("FairLock", &server).await?,
    ];
    for tasks in [1, 64] {
        let mut rates = vec![Vec::new(); contenders.len()];
        for round in 0..=rounds {
            for (contender, rates) in contenders.iter().zip(&mut rates) {
                let rate = contender.turn(tasks).await;
                // The first is for getting going.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        let rslock = rates[1].clone();
        for (contender, rates) in contenders.iter().zip(rates) {
            let commands = contender.commands(&server).await?;
            let ratio = median(rates.iter().zip(&rslock).map(|(ours, theirs)| ours / theirs));
            let rate = median(rates.into_iter());
            let name = contender.name;
            println!("{tasks:3} tasks  {name:26} {rate:8.0} locks/s  {ratio:5.2} x rslock  {commands:4.1} commands each");
        }
    }
    Ok(())
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

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
        let options = || RedisOptions::new(&server.url());
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

    /// Takes and releases for one turn, and says how often in a second.
    async fn turn(&self, tasks: usize) -> f64 {
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
        done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
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
