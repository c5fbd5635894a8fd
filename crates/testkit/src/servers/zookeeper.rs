//! Real ZooKeeper servers for tests.
//!
//! 1. A server that was started answers, and belongs to this test.
//! 2. It is gone, with its directory, when its [`ZooKeeperServer`] is dropped, or when the test
//!    process is killed.
//! 3. It remembers its sessions and nodes when it is killed and [restarted](ZooKeeperServer::restart).

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::guarded::{Guarded, PORTS_TRIED, directory, free_port, in_path, log, wait_until};
use super::missing::MissingServer;

/// The length of a tick. Sessions end at a multiple of it.
pub const TICK: Duration = Duration::from_millis(100);

/// How long a server may take to answer a word.
const INTRODUCTION: Duration = Duration::from_secs(1);

/// Where Debian's package has it. The second one keeps the server from logging.
const CLASSES: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar";

/// What runs it: small, and not careful with its files.
const JAVA: [&str; 9] = [
    "java",
    "-Xmx64m",
    "-Xms16m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=512",
    "-Dznode.container.checkIntervalMs=200",
];

/// The file of its settings, in its directory.
const SETTINGS: &str = "zoo.cfg";

/// A running server, unless it was killed.
#[derive(Debug)]
pub struct ZooKeeperServer {
    /// `None` from [`kill`](Self::kill) to [`restart`](Self::restart).
    process: Option<Guarded>,
    port: u16,
    /// What its settings say of the servers of its ensemble, if it is not alone.
    peers: Vec<String>,
    // After `process`, which writes in it.
    dir: TempDir,
}

impl ZooKeeperServer {
    /// Whether this machine has one to start, and the Java that runs it.
    ///
    /// # Errors
    /// If it has none.
    pub fn installed() -> Result<(), MissingServer> {
        let is_there = CLASSES.split(':').all(|classes| Path::new(classes).is_file());
        let missing = MissingServer { server: "ZooKeeper", package: "zookeeper" };
        (is_there && in_path("java").is_some()).then_some(()).ok_or(missing)
    }

    /// Starts a server that forgets nothing as long as it is not dropped.
    pub fn start() -> Self {
        let dir = directory();
        for _ in 0..PORTS_TRIED {
            let port = free_port();
            if let Some(process) = launch(dir.path(), port, &[]) {
                return Self { process: Some(process), port, peers: Vec::new(), dir };
            }
        }
        panic!("no free port in {PORTS_TRIED} tries");
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Starts three servers that are one ensemble.
    pub fn start_ensemble() -> [Self; 3] {
        let ports = [(); 3].map(|()| [free_port(), free_port(), free_port()]);
        let peer = |(id, [_, quorum, election]): (usize, &[u16; 3])| {
            format!("server.{id}=127.0.0.1:{quorum}:{election}")
        };
        let peers: Vec<_> = (1..).zip(&ports).map(peer).collect();
        let mut id = 0;
        let mut servers = ports.map(|[port, _, _]| {
            id += 1;
            let dir = directory();
            fs::create_dir(dir.path().join("data")).expect("a place for its data");
            let id = id.to_string();
            fs::write(dir.path().join("data/myid"), id).expect("a place for its number");
            let process = Some(begin(dir.path(), port, &peers));
            Self { process, port, peers: peers.clone(), dir }
        });
        for server in &mut servers {
            let process = server.process.as_mut().expect("it was begun");
            let dir = server.dir.path();
            wait_until("all servers are ready", || {
                assert!(!process.has_ended(), "no server: {}", log(dir));
                answers(dir, server.port)
            });
        }
        servers
    }

    /// Whether it leads its ensemble.
    pub fn leads(&self) -> bool {
        say(self.port, "srvr").is_ok_and(|answer| answer.contains("Mode: leader"))
    }

    /// Its address as clients take it.
    pub fn hosts(&self) -> String {
        self.address().to_string()
    }

    /// Freezes the server: it still takes connections and bytes, and answers nothing.
    pub fn stop(&self) {
        self.process().stop();
    }

    /// Lets a stopped server go on.
    pub fn resume(&self) {
        self.process().resume();
    }

    /// Kills the server without a clean shutdown.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the server if it runs, and starts it on the same port, with what it had written.
    pub fn restart(&mut self) {
        self.kill();
        self.process = launch(self.dir.path(), self.port, &self.peers);
        assert!(self.process.is_some(), "no server: {}", log(self.dir.path()));
    }

    /// Kills the server, and starts one on the same port that has forgotten everything.
    pub fn restart_empty(&mut self) {
        self.kill();
        fs::remove_dir_all(self.dir.path().join("data")).expect("its data");
        self.restart();
    }

    /// Its answer to a four-letter word, such as `mntr`.
    pub fn word(&self, word: &str) -> String {
        say(self.port, word).unwrap_or_else(|error| panic!("{word}: {error}"))
    }

    /// A number among its statistics.
    pub fn number(&self, name: &str) -> u64 {
        let statistics = self.word("mntr");
        let mut lines = statistics.lines().filter_map(|line| line.split_once('\t'));
        let value = lines.find(|(found, _)| *found == name).map(|(_, value)| value);
        let value = value.unwrap_or_else(|| panic!("no {name} in {statistics}"));
        value.parse::<f64>().expect("a number") as u64
    }

    fn process(&self) -> &Guarded {
        self.process.as_ref().expect("the server was killed")
    }
}

/// Starts a server on a port. `None` if it has been taken meanwhile.
fn launch(dir: &Path, port: u16, peers: &[String]) -> Option<Guarded> {
    let mut process = begin(dir, port, peers);
    wait_until("the server is ready", || process.has_ended() || answers(dir, port));
    if !process.has_ended() {
        return Some(process);
    }
    assert!(log(dir).contains("Address already in use"), "no server: {}", log(dir));
    None
}

/// Starts a server, and does not wait until it serves.
fn begin(dir: &Path, port: u16, peers: &[String]) -> Guarded {
    ZooKeeperServer::installed().unwrap_or_else(|missing| panic!("{missing}"));
    fs::write(dir.join(SETTINGS), settings(dir, port, peers)).expect("a place for its settings");
    let program = if peers.is_empty() { "ZooKeeperServerMain" } else { "quorum.QuorumPeerMain" };
    let mut command = JAVA.map(str::to_owned).to_vec();
    command.extend(["-cp".to_owned(), CLASSES.to_owned()]);
    command.extend([format!("org.apache.zookeeper.server.{program}"), SETTINGS.to_owned()]);
    Guarded::start(dir, &command)
}

fn settings(dir: &Path, port: u16, peers: &[String]) -> String {
    let data = dir.join("data");
    let tick = TICK.as_millis();
    let peers = peers.join("\n");
    format!(
        "tickTime={tick}\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n\
         minSessionTimeout={tick}\nmaxSessionTimeout=60000\n\
         initLimit=50\nsyncLimit=20\n{peers}\n",
        data.display()
    )
}

/// Whether the server on `port` has this directory, and serves.
fn answers(dir: &Path, port: u16) -> bool {
    let has = |word, part: &str| say(port, word).is_ok_and(|answer| answer.contains(part));
    // `ruok` and `conf` are answered before it serves.
    has("srvr", "\nMode: ") && has("conf", &dir.display().to_string())
}

fn say(port: u16, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(INTRODUCTION))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
