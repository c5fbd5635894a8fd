//! A program that a test runs beside itself.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take to say that it has started. The first start of the catalog fills its
/// database.
const PATIENCE: Duration = Duration::from_secs(120);

/// Becomes the program, after leaving a guard behind that reads our standard input. It reads its
/// end when the test process dies, however that dies, and then kills the whole process group. A
/// line means that the test process has done both.
const GUARDED: &str = r#"
exec 3<&0
{ read -r _ <&3 || kill -9 -$$; } >/dev/null 2>&1 &
exec 3<&- </dev/null "$@"
"#;

/// A program in a process group of its own. The group is killed and the program reaped on drop.
#[derive(Debug)]
pub struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    /// Starts a program.
    pub fn start<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: &[A]) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", GUARDED, "sh"])
            .arg(program)
            .args(args)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (sender, lines) = mpsc::channel();
        // Reads to the end even without a receiver, or the program could not write any more.
        thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|l| drop(sender.send(l)))
        });
        Self { child, lines }
    }

    /// Waits for a line from which something can be read.
    pub fn said<T>(&self, read: impl Fn(&str) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).expect("the program says where it listens");
            if let Some(found) = read(&line) {
                return found;
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        // The guard ends with its group. If that fails, this line tells it to kill nothing later.
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.stdin.take().map(|mut input| input.write_all(b"done\n"));
        let _ = self.child.wait();
    }
}
