//! The worker processes of a run, seen from outside.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::worker::{FLAG, Report, Setup};

/// From when all are ready to when they begin.
const LEAD: Duration = Duration::from_millis(300);

/// A worker. It is killed on drop.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts one, which connects.
    pub(crate) fn start(setup: &Setup) -> Self {
        let setup = serde_json::to_string(setup).expect("it is JSON");
        let mut child = Command::new(env::current_exe().expect("the path of this program"))
            .args([FLAG, &setup])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("this program runs");
        let input = child.stdin.take().expect("stdin is piped");
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { child, input, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the line that ends a step.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the worker lives");
        assert!(line.ends_with('\n'), "a worker has ended");
        line
    }

    fn tell(&mut self, line: &str) {
        let told = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        told.expect("the worker lives");
    }

    pub(crate) fn begin(&mut self, start: SystemTime) {
        let start = start.duration_since(SystemTime::UNIX_EPOCH).expect("a time of today");
        self.tell(&start.as_millis().to_string());
    }

    /// Ends it, once its callers have their answers.
    pub(crate) fn report(&mut self) -> Report {
        self.tell("report");
        let report = serde_json::from_str(&self.hear()).expect("a report");
        self.tell("end");
        let _ = self.child.wait();
        report
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The moment at which all workers begin.
pub(crate) fn start_soon() -> SystemTime {
    SystemTime::now() + LEAD
}
