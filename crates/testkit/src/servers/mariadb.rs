//! A real MariaDB server of a test's own, as `redis_server` is.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::guarded::{Guarded, free_port, from_template, log, run, succeeds, wait_until};
use super::missing::MissingServer;

/// How many ports are tried before the fault is thought to lie elsewhere.
const PORTS_TRIED: usize = 20;

/// A running server, unless it was killed.
#[derive(Debug)]
pub struct MariaDbServer {
    /// `None` from [`kill`](Self::kill) to [`restart`](Self::restart).
    process: Option<Guarded>,
    port: u16,
    // After `process`, which writes in it.
    dir: TempDir,
}

impl MariaDbServer {
    /// Whether this machine has one to start.
    ///
    /// # Errors
    /// If it has none.
    pub fn installed() -> Result<(), MissingServer> {
        found().map(drop)
    }

    /// Starts a server with an empty database `test`.
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("bw-").tempdir().expect("a directory");
        from_template("mariadb", &binary(), dir.path(), || install(dir.path()));
        for _ in 0..PORTS_TRIED {
            let port = free_port();
            if let Some(process) = launch(dir.path(), port) {
                let server = Self { process: Some(process), port, dir };
                server.command("CREATE DATABASE test");
                return server;
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
        format!("mysql://root@{address}/test")
    }

    /// The address of its database.
    pub fn url(&self) -> String {
        Self::url_by(self.address())
    }

    /// Freezes the server: it still takes connections and bytes, and answers nothing.
    pub fn stop(&self) {
        self.process.as_ref().expect("it runs").stop();
    }

    /// Lets a stopped server go on.
    pub fn resume(&self) {
        self.process.as_ref().expect("it runs").resume();
    }

    /// Kills the server without a clean shutdown.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the server if it runs, and starts it on the same port, with what it had stored.
    pub fn restart(&mut self) {
        self.kill();
        self.process = Some(launch(self.dir.path(), self.port).expect("its port is still free"));
    }

    /// Runs statements, as the user that may do everything, and gives the values they find.
    pub fn command(&self, statements: &str) -> String {
        run("mariadb", &client(self.port, &["-N", "-e", statements]))
    }
}

fn client(port: u16, more: &[&str]) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--no-defaults", "-h127.0.0.1", "-uroot"].map(str::to_owned).into();
    arguments.push(format!("-P{port}"));
    arguments.extend(more.iter().map(ToString::to_string));
    arguments
}

fn install(dir: &Path) {
    let data = format!("--datadir={}", dir.join("data").display());
    let mut arguments = vec!["--no-defaults".into(), data, "--skip-test-db".into()];
    arguments.push("--innodb-log-file-size=4M".into());
    // Those of others have the same names.
    arguments.push(format!("--tmpdir={}", dir.display()));
    arguments.push("--auth-root-authentication-method=normal".into());
    arguments.extend(as_root());
    run("mariadb-install-db", &arguments);
}

/// The server to run; panics with the remedy if there is none.
fn binary() -> String {
    let found = found().unwrap_or_else(|missing| panic!("{missing}"));
    found.display().to_string()
}

/// The server to run, if there is one.
fn found() -> Result<PathBuf, MissingServer> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<_> = env::split_paths(&path).collect();
    // It is not in every user's PATH.
    places.push("/usr/sbin".into());
    let found = places.iter().map(|place| place.join("mariadbd")).find(|path| path.is_file());
    found.ok_or(MissingServer { server: "MariaDB", package: "mariadb-server" })
}

/// It refuses to run as root without this option.
fn as_root() -> Option<String> {
    rustix::process::geteuid().is_root().then(|| "--user=root".to_owned())
}

/// Starts it on a port. `None` if the port is taken.
fn launch(dir: &Path, port: u16) -> Option<Guarded> {
    let path = |name: &str| dir.join(name).display().to_string();
    let mut command: Vec<String> = vec![
        binary(),
        "--no-defaults".into(),
        format!("--datadir={}", path("data")),
        format!("--tmpdir={}", dir.display()),
        format!("--port={port}"),
        format!("--socket={}", path("s")),
        format!("--pid-file={}", path("pid")),
    ];
    command.extend(OPTIONS.map(str::to_owned));
    command.extend(as_root());
    let mut process = Guarded::start(dir, &command);
    let ping = client(port, &["ping"]);
    wait_until("the server is ready", || process.has_ended() || succeeds("mariadb-admin", &ping));
    if process.has_ended() {
        let log = log(dir);
        assert!(log.contains("port"), "no server: {log}");
        return None;
    }
    Some(process)
}

const OPTIONS: [&str; 9] = [
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=4M",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-flush-method=nosync",
    "--skip-log-bin",
    "--performance-schema=OFF",
    "--max-connections=300",
];
