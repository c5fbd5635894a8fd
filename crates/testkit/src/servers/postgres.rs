//! A real PostgreSQL server of a test's own, as `redis_server` is.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::guarded::{Guarded, free_port, from_template, log, run, succeeds, wait_until};
use super::missing::MissingServer;

/// How many ports are tried before the fault is thought to lie elsewhere.
const PORTS_TRIED: usize = 20;

/// A running server, unless it was killed.
#[derive(Debug)]
pub struct PostgresServer {
    /// `None` from [`kill`](Self::kill) to [`restart`](Self::restart).
    process: Option<Guarded>,
    port: u16,
    // After `process`, which writes in it.
    dir: TempDir,
}

impl PostgresServer {
    /// Whether this machine has one to start.
    ///
    /// # Errors
    /// If it has none.
    pub fn installed() -> Result<(), MissingServer> {
        found("postgres").map(drop)
    }

    /// Starts a server with an empty database.
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("bw-").tempdir().expect("a directory");
        from_template("postgres", &binary("postgres"), dir.path(), || install(dir.path()));
        for _ in 0..PORTS_TRIED {
            let port = free_port();
            if let Some(process) = launch(dir.path(), port) {
                return Self { process: Some(process), port, dir };
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
        format!("postgresql://postgres@{address}/postgres")
    }

    /// The address of its database.
    pub fn url(&self) -> String {
        Self::url_by(self.address())
    }

    /// Freezes the server that takes connections, and not those that it has started.
    pub fn stop(&self) {
        self.process.as_ref().expect("it runs").stop();
    }

    /// Lets a stopped server go on.
    pub fn resume(&self) {
        self.process.as_ref().expect("it runs").resume();
    }

    /// Ends the server at once, with its sessions.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Its children would outlive it otherwise, and keep its memory.
            process.quit();
            wait_until("the server ends", || process.has_ended());
        }
    }

    /// Ends the server if it runs, and starts it on the same port, with what it had stored.
    pub fn restart(&mut self) {
        self.kill();
        self.process = Some(launch(self.dir.path(), self.port).expect("its port is still free"));
    }

    /// Runs statements, as the user that may do everything, and gives the values they find.
    pub fn command(&self, statements: &str) -> String {
        let arguments = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statements];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
        arguments.push(self.url());
        run(&binary("psql"), &arguments)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where Debian keeps it, of whatever version, or else in PATH.
fn binary(name: &str) -> String {
    let found = found(name).unwrap_or_else(|missing| panic!("{missing}"));
    found.display().to_string()
}

/// The same, if it is there.
fn found(name: &str) -> Result<PathBuf, MissingServer> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let in_debian = versions.map(|version| version.path().join("bin").join(name));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<_> = env::split_paths(&path).map(|dir| dir.join(name)).collect();
    let found: Option<PathBuf> = in_debian.chain(in_path).find(|path| path.is_file());
    found.ok_or(MissingServer { server: "PostgreSQL", package: "postgresql" })
}

/// It refuses to run as root, and so becomes the user that its package has made.
fn as_unprivileged_user(dir: &Path) -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    run("chown", &["postgres".into(), dir.display().to_string()]);
    let command = "setpriv --reuid=postgres --regid=postgres --init-groups env HOME=/tmp";
    command.split(' ').map(str::to_owned).collect()
}

fn install(dir: &Path) {
    let mut command = as_unprivileged_user(dir);
    command.push(binary("initdb"));
    command.push("-D".into());
    command.push(dir.join("data").display().to_string());
    let options =
        "-U postgres -A trust -E UTF8 --no-locale --no-sync --no-instructions --wal-segsize=1";
    command.extend(options.split(' ').map(str::to_owned));
    run(&command[0], &command[1..]);
}

/// Starts it on a port. `None` if the port is taken.
fn launch(dir: &Path, port: u16) -> Option<Guarded> {
    let mut command = as_unprivileged_user(dir);
    command.push(binary("postgres"));
    command.push("-D".into());
    command.push(dir.join("data").display().to_string());
    command.extend(["-p".into(), port.to_string()]);
    for option in OPTIONS {
        command.extend(["-c".into(), option.to_owned()]);
    }
    let mut process = Guarded::start(dir, &command);
    let ready = format!("-q -h 127.0.0.1 -p {port}");
    let ready: Vec<_> = ready.split(' ').map(str::to_owned).collect();
    let is_ready = binary("pg_isready");
    wait_until("the server is ready", || process.has_ended() || succeeds(&is_ready, &ready));
    if process.has_ended() {
        let log = log(dir);
        assert!(log.contains("could not bind"), "no server: {log}");
        return None;
    }
    Some(process)
}

const OPTIONS: [&str; 8] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "max_connections=300",
    "autovacuum=off",
];
