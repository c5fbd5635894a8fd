//! The database behind the loaders: the source of truth, in the test's own process.
//!
//! It counts loads where no worker can miscount them, and holds them back until the test lets them
//! go, so that nothing has to be waited for by the clock.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::adapter::locked;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

/// Rows of versions, served to the workers over TCP.
#[derive(Debug)]
pub(crate) struct Database {
    address: SocketAddr,
    rows: Arc<Rows>,
}

#[derive(Debug, Default)]
struct Rows {
    /// Held for a map operation, never across an `.await`.
    rows: Mutex<HashMap<u64, Row>>,
    /// After how long loads fail, if they do.
    fails: Mutex<Option<Duration>>,
    under_way: AtomicUsize,
    /// The most loads that were under way at once.
    most_at_once: AtomicUsize,
}

#[derive(Debug)]
struct Row {
    version: u64,
    loads: u64,
    /// When they began.
    times: Vec<Instant>,
    /// Receives the loads that are held.
    held: Option<mpsc::UnboundedSender<Load>>,
}

/// What a worker asks, a line of JSON; the answer is a version.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum Query {
    /// Reads a row, so many microseconds after the request, and answers so many after that.
    Load { key: u64, before: u64, after: u64 },
    /// Raises the version of a row.
    Write { key: u64 },
}

impl Database {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port for the database");
        let address = listener.local_addr().expect("it has an address");
        let rows = Arc::new(Rows::default());
        tokio::spawn(listen(listener, Arc::clone(&rows)));
        Self { address, rows }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds the loads of a key from now on, until what is returned is dropped.
    pub(crate) fn hold(&self, key: u64) -> Loads {
        let (held, loads) = mpsc::unbounded_channel();
        self.rows.row(key, |row| row.held = Some(held));
        Loads(loads)
    }

    /// Raises the version of a row.
    pub(crate) fn write(&self, key: u64) -> u64 {
        self.rows.write(key)
    }

    /// How many loads of a key have begun.
    pub(crate) fn loads(&self, key: u64) -> u64 {
        self.rows.row(key, |row| row.loads)
    }

    /// When the loads of a key have begun, since the first.
    pub(crate) fn times(&self, key: u64) -> Vec<Duration> {
        self.rows.row(key, |row| row.times.iter().map(|at| *at - row.times[0]).collect())
    }

    /// When loads have begun since then.
    pub(crate) fn begun_since(&self, since: Instant) -> Vec<Duration> {
        let rows = locked(&self.rows.rows);
        let times = rows.values().flat_map(|row| &row.times);
        times.filter(|at| **at >= since).map(|at| *at - since).collect()
    }

    /// How many loads were under way at once, at most, since this was last asked.
    pub(crate) fn take_most_at_once(&self) -> usize {
        self.rows.most_at_once.swap(0, Ordering::Relaxed)
    }

    /// From now on every load fails after a while.
    pub(crate) fn fails_after(&self, after: Duration) {
        *locked(&self.rows.fails) = Some(after);
    }

    /// How many loads have begun in all.
    pub(crate) fn all_loads(&self) -> u64 {
        locked(&self.rows.rows).values().map(|row| row.loads).sum()
    }
}

/// The held loads of a key, as they begin. When it is dropped, no more are held.
#[derive(Debug)]
pub(crate) struct Loads(mpsc::UnboundedReceiver<Load>);

impl Loads {
    /// Waits for a load to begin.
    pub(crate) async fn next(&mut self) -> Load {
        let load = timeout(PATIENCE, self.0.recv()).await;
        load.expect("a load begins").expect("the database runs")
    }

    /// A load that has begun, if there is one.
    pub(crate) fn try_next(&mut self) -> Option<Load> {
        self.0.try_recv().ok()
    }
}

/// A load that has read its row and is held. Dropped without an answer, it fails.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) version: u64,
    answer: oneshot::Sender<()>,
}

impl Load {
    pub(crate) fn answer(self) {
        // The worker may have died meanwhile.
        let _ = self.answer.send(());
    }
}

impl Rows {
    fn row<T>(&self, key: u64, act: impl FnOnce(&mut Row) -> T) -> T {
        act(locked(&self.rows).entry(key).or_insert_with(|| Row {
            version: 1,
            loads: 0,
            times: vec![],
            held: None,
        }))
    }

    fn write(&self, key: u64) -> u64 {
        self.row(key, |row| {
            row.version += 1;
            row.version
        })
    }

    /// Reads a row for a load, and says what holds it back.
    fn load(&self, key: u64) -> (u64, Option<oneshot::Receiver<()>>) {
        self.row(key, |row| {
            row.loads += 1;
            row.times.push(Instant::now());
            let (answer, gate) = oneshot::channel();
            let version = row.version;
            let held = row.held.as_ref();
            let held = held.is_some_and(|held| held.send(Load { version, answer }).is_ok());
            (version, held.then_some(gate))
        })
    }

    /// Counts a load until what is returned is dropped.
    fn begin(&self) -> UnderWay<'_> {
        let at_once = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_at_once.fetch_max(at_once, Ordering::Relaxed);
        UnderWay(self)
    }
}

/// A load that is under way.
struct UnderWay<'a>(&'a Rows);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn listen(listener: TcpListener, rows: Arc<Rows>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(serve(client, Arc::clone(&rows)));
    }
}

/// Serves until the client has gone or a load fails.
async fn serve(client: TcpStream, rows: Arc<Rows>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut lines = BufReader::new(client).lines();
    while let Some(line) = lines.next_line().await? {
        let Some(version) = answer(serde_json::from_str(&line)?, &rows).await else {
            return Ok(());
        };
        let client = lines.get_mut().get_mut();
        client.write_all(format!("{version}\n").as_bytes()).await?;
    }
    Ok(())
}

async fn answer(query: Query, rows: &Rows) -> Option<u64> {
    match query {
        Query::Load { key, before, after } => {
            let _under_way = rows.begin();
            pass(before).await;
            let (version, gate) = rows.load(key);
            let fails = *locked(&rows.fails);
            if let Some(fails) = fails {
                sleep(fails).await;
                return None;
            }
            if let Some(gate) = gate {
                gate.await.ok()?;
            }
            pass(after).await;
            Some(version)
        }
        Query::Write { key } => Some(rows.write(key)),
    }
}

async fn pass(micros: u64) {
    if micros > 0 {
        sleep(Duration::from_micros(micros)).await;
    }
}

/// A worker's connections to the database, one per request under way.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    /// Held to take one or to put one back, never across an `.await`.
    idle: Mutex<Vec<BufReader<TcpStream>>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::new(Vec::new()) }
    }

    /// Asks. A connection whose answer is not awaited is closed.
    pub(crate) async fn ask(&self, query: Query) -> io::Result<u64> {
        let idle = locked(&self.idle).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let line = serde_json::to_string(&query)? + "\n";
        connection.get_mut().write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        connection.read_line(&mut answer).await?;
        let version = answer.trim().parse().map_err(io::Error::other)?;
        locked(&self.idle).push(connection);
        Ok(version)
    }

    async fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let connection = TcpStream::connect(self.address).await?;
        connection.set_nodelay(true)?;
        Ok(BufReader::new(connection))
    }
}

/// How long anything may take that a test waits for. Nothing that works comes near it.
const PATIENCE: Duration = Duration::from_secs(60);
