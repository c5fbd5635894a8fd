//! Servers: processes that end with the test, however it ends.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::processes::{freeze, signal, thaw};
use crate::wait::block_until;

/// Becomes the server, after leaving a guard behind that reads our standard input.
///
/// The guard reads the end of the file when the test process dies, because the pipe closes with it;
/// then it kills the server and removes its directory. A line means that the test process has seen
/// to both. Signals meant for the whole group leave the guard alone.
const GUARDED_SERVER: &str = r#"
dir=$1
shift
exec 3<&0
{ trap '' HUP INT QUIT TERM; read -r _ || { kill -9 $$; rm -rf "$dir"; }; } <&3 3<&- &
exec "$@" </dev/null 3<&-
"#;

/// How long anything asked of a server may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// How many ports are tried before a start fails.
pub(super) const PORTS_TRIED: usize = 50;

/// A server's process; killed and reaped on drop.
#[derive(Debug)]
pub(super) struct Guarded {
    child: Child,
    guard: ChildStdin,
}

impl Guarded {
    /// Starts a server. What it says goes to a file `log` in its directory.
    pub(super) fn start(dir: &Path, command: &[String]) -> Self {
        let log = File::create(dir.join("log")).expect("a log for the server");
        let mut child = Command::new("sh")
            .args(["-c", GUARDED_SERVER, "sh"])
            .arg(dir)
            .args(command)
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

    pub(super) fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait().expect("the server is our child");
        status.is_some()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Freezes it: the system still takes connections and bytes for it, and it answers nothing.
    pub(super) fn stop(&self) {
        freeze(self.pid());
    }

    /// Lets it go on after a stop.
    pub(super) fn resume(&self) {
        thaw(self.pid());
    }

    /// Asks it to end at once, with all that it has started.
    pub(super) fn quit(&self) {
        signal(self.pid(), Signal::QUIT);
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // An error means that it has ended already: there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Only now: the guard keeps watch until the server is reaped.
        let _ = self.guard.write_all(b"reaped\n");
    }
}

/// Runs a program to its end, and returns its output. Panics with its messages if it fails.
pub(super) fn run(program: &str, arguments: &[String]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Whether a program ends well.
pub(super) fn succeeds(program: &str, arguments: &[String]) -> bool {
    let status =
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

pub(super) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    block_until(PATIENCE, what, holds);
}

/// A directory for a server.
pub(super) fn directory() -> TempDir {
    let builder = tempfile::Builder::new().prefix("bellwether-").tempdir();
    builder.expect("a directory for the server")
}

/// A port of the loopback address that is free.
///
/// It lies below the ports that systems hand to outgoing connections. On one of those, a client
/// that calls while the server is down may be connected to itself, and so keep the port.
pub fn free_port() -> u16 {
    loop {
        let port = rand::random_range(10_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut candidates = env::split_paths(&path).map(|dir| dir.join(name));
    candidates.find(|candidate| candidate.is_file())
}

/// The log of a server that does not start.
pub(super) fn log(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// Where templates are kept. (What cargo names for that is named to tests only.)
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tmp");

/// Puts into a directory what `install` would, which is asked once for every build of a server.
pub(super) fn from_template(server: &str, binary: &str, dir: &Path, install: impl FnOnce()) {
    let built = fs::metadata(binary).map_or(0, |metadata| metadata.len());
    let kept = Path::new(KEPT).join(format!("{server}-{built}"));
    let copy = |from: &Path, to: &Path| {
        let [from, to] = [from, to].map(|path| path.display().to_string());
        run("cp", &["-a".into(), from, to])
    };
    if kept.is_dir() {
        copy(&kept, &dir.join("data"));
        return;
    }
    install();
    fs::create_dir_all(KEPT).expect("a directory");
    let ours = tempfile::tempdir_in(KEPT).expect("a directory");
    copy(&dir.join("data"), &ours.path().join("data"));
    // Of several that come first together, one is kept.
    let _ = fs::rename(ours.path().join("data"), &kept);
}
