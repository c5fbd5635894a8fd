//! Another process, as a test sees it: to be commanded, stopped and killed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::bench::Bench;

/// Set for a process that is to be a worker: the kind of lock, and the address.
pub(crate) const WORKER: &str = "BELLWETHER_LOCK_WORKER";

/// What begins a line of a worker's, among those of its test harness.
pub(crate) const MARK: char = '@';

/// A process that locks. Killed and reaped on drop.
///
/// If the test dies, its input ends, and it dies too. A stopped one cannot read: but its process
/// group, being its own, is orphaned then, and the system sends such a group a hang-up.
pub(crate) struct Worker {
    child: Child,
    commands: ChildStdin,
    said: mpsc::UnboundedReceiver<String>,
}

impl Worker {
    pub(crate) fn start(on: &Bench) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("the path of this binary"))
            .args(["worker::works", "--exact", "--ignored", "--nocapture"])
            .env(WORKER, format!("{:?} {}", on.kind, on.url()))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let commands = child.stdin.take().expect("stdin is piped");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let (say, said) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(line) = line.strip_prefix(MARK) {
                    let _ = say.send(line.to_owned());
                }
            }
        });
        Self { child, commands, said }
    }

    pub(crate) fn command(&mut self, line: &str) {
        writeln!(self.commands, "{line}").expect("the worker reads");
    }

    /// The next thing it says.
    pub(crate) async fn says(&mut self) -> String {
        let said = timeout(PATIENCE, self.said.recv()).await;
        said.expect("the worker answers").expect("the worker lives")
    }

    /// Lets it take a key, and gives the fence.
    pub(crate) async fn holds(&mut self, key: u64) -> u64 {
        self.command(&format!("hold {key} 0"));
        let said = self.says().await;
        let fence = said.strip_prefix("held ").unwrap_or_else(|| panic!("{said}"));
        fence.parse().expect("a fence")
    }

    /// Kills it without a chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is our child");
    }

    /// Freezes it. When this returns, none of its threads runs.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        let deadline = Instant::now() + PATIENCE;
        while !self.is_stopped() {
            assert!(Instant::now() < deadline, "it does not stop");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status();
        assert!(status.is_ok_and(|status| status.success()), "{kill}");
    }

    fn is_stopped(&self) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.child.id())) else {
            return true; // no such directory on this system: nothing more can be known
        };
        let mut stats = tasks.flatten().map(|task| task.path().join("stat"));
        stats.all(|stat| {
            let stat = fs::read_to_string(stat).unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
            state.is_none_or(|rest| rest.starts_with('T'))
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An error means that it has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long anything may take that a test waits for. Nothing that works comes near it.
const PATIENCE: Duration = Duration::from_secs(20 * 60);
