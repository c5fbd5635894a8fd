//! Real database servers of a test's own, as `redis_server` is.

use std::fs::{self, Permissions};
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::certificates::Identity;
use super::guarded::{Guarded, PATIENCE, free_port, from_template, log, wait_until};
use super::missing::MissingServer;

/// How many ports are tried before the fault is thought to lie elsewhere.
const PORTS_TRIED: usize = 20;

/// A kind of database server.
pub trait DatabaseKind {
    /// The name of its template.
    const NAME: &'static str;
    /// What its log says if its port was taken.
    const PORT_TAKEN: &'static str;
    /// Whether it has to end its own children, because they would outlive it and keep its memory.
    const HAS_CHILDREN: bool;
    /// The statements that make the database of the tests. Empty if it is there.
    const PREPARING: &'static str;

    /// The program that serves, if this machine has it.
    ///
    /// # Errors
    /// If it has none.
    fn found() -> Result<PathBuf, MissingServer>;

    /// Makes a server without data in a directory.
    fn install(dir: &Path);

    /// What starts the server of a directory on a port.
    fn starting(dir: &Path, port: u16) -> Vec<String>;

    /// The options of its command to take connections with TLS.
    fn encrypting(chain: &str, key: &str) -> Vec<String>;

    /// Whether it takes connections.
    fn is_ready(port: u16) -> bool;

    /// Runs statements, as the user that may do everything, and gives the values they find.
    fn run(port: u16, statements: &str) -> String;

    /// The address of its database, by way of this one.
    fn url_by(address: SocketAddr) -> String;
}

/// A running server, unless it was killed.
#[derive(Debug)]
pub struct DatabaseServer<K: DatabaseKind> {
    /// `None` from [`kill`](Self::kill) to [`restart`](Self::restart).
    process: Option<Guarded>,
    pub(super) port: u16,
    // After `process`, which writes in it.
    pub(super) dir: TempDir,
    /// Options of the command besides those of all tests.
    pub(super) options: Vec<String>,
    kind: PhantomData<fn() -> K>,
}

impl<K: DatabaseKind> DatabaseServer<K> {
    /// Whether this machine has one to start.
    ///
    /// # Errors
    /// If it has none.
    pub fn installed() -> Result<(), MissingServer> {
        K::found().map(drop)
    }

    /// Starts a server with an empty database.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with an empty database, and with further options of its command.
    pub fn start_with(options: &[&str]) -> Self {
        Self::start_in(|_| options.iter().map(ToString::to_string).collect())
    }

    /// Starts a server with an empty database that also takes connections with TLS.
    pub fn start_tls(identity: &Identity) -> Self {
        Self::start_in(|dir| {
            let [chain, key] = ["server.crt", "server.key"].map(|name| dir.join(name));
            fs::write(&chain, &identity.chain).expect("a certificate");
            fs::write(&key, &identity.key).expect("a key");
            fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("a secret key");
            K::encrypting(&chain.display().to_string(), &key.display().to_string())
        })
    }

    fn start_in(options: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let dir = tempfile::Builder::new().prefix("bw-").tempdir().expect("a directory");
        from_template(K::NAME, &program(K::found()), dir.path(), || K::install(dir.path()));
        let options = options(dir.path());
        let server = Self::start_on(dir, options);
        if !K::PREPARING.is_empty() {
            server.command(K::PREPARING);
        }
        server
    }

    /// Starts the server of a directory on a free port.
    pub(super) fn start_on(dir: TempDir, options: Vec<String>) -> Self {
        for _ in 0..PORTS_TRIED {
            let port = free_port();
            if let Some(process) = launch::<K>(dir.path(), port, &options) {
                return Self { process: Some(process), port, dir, options, kind: PhantomData };
            }
        }
        panic!("no free port in {PORTS_TRIED} tries");
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The address of its database, by way of this one: its own, or that of a proxy.
    pub fn url_by(address: SocketAddr) -> String {
        K::url_by(address)
    }

    /// The address of its database.
    pub fn url(&self) -> String {
        K::url_by(self.address())
    }

    /// Freezes the process that takes connections, and not those that it has started. It still takes
    /// connections and bytes, and answers nothing.
    pub fn stop(&self) {
        self.process.as_ref().expect("it runs").stop();
    }

    /// Lets a stopped server go on.
    pub fn resume(&self) {
        self.process.as_ref().expect("it runs").resume();
    }

    /// Ends the server at once, with its sessions and without a clean shutdown.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        if K::HAS_CHILDREN {
            process.quit();
            // One that takes longer is killed. What it has started notices that, and ends.
            let began = Instant::now();
            while !process.has_ended() && began.elapsed() < PATIENCE / 2 {
                sleep(Duration::from_millis(2));
            }
        }
    }

    /// Ends the server if it runs, and starts it on the same port, with what it had stored.
    pub fn restart(&mut self) {
        self.kill();
        let process = launch::<K>(self.dir.path(), self.port, &self.options);
        self.process = Some(process.expect("its port is still free"));
    }

    /// Runs statements, as the user that may do everything, and gives the values they find.
    pub fn command(&self, statements: &str) -> String {
        K::run(self.port, statements)
    }
}

impl<K: DatabaseKind> Drop for DatabaseServer<K> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The path of a program; panics with the remedy if there is none.
pub(super) fn program(found: Result<PathBuf, MissingServer>) -> String {
    found.unwrap_or_else(|missing| panic!("{missing}")).display().to_string()
}

/// Starts it on a port. `None` if the port is taken.
fn launch<K: DatabaseKind>(dir: &Path, port: u16, options: &[String]) -> Option<Guarded> {
    let command = [&K::starting(dir, port), options].concat();
    let mut process = Guarded::start(dir, &command);
    wait_until("the server is ready", || process.has_ended() || K::is_ready(port));
    if process.has_ended() {
        let log = log(dir);
        assert!(log.contains(K::PORT_TAKEN), "no server: {log}");
        return None;
    }
    Some(process)
}
