//! Other processes: copies of this binary, which hold a key or count under it.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use bellwether_lock::{Claim, Term, ZooKeeperLock, ZooKeeperOptions};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::board::{PATIENCE, SESSION, claim, fence, free, take, wait};

/// Set to what a process is to do.
const WORK: &str = "BELLWETHER_LOCK_WORK";

/// What begins a line of a worker's, among those of its test harness.
const MARK: char = '@';

/// A process. Killed and reaped on drop; it dies with the test, too, as its input ends then.
pub(crate) struct Worker {
    child: Child,
    _input: ChildStdin,
    said: mpsc::UnboundedReceiver<String>,
}

impl Worker {
    /// A process that holds the key, and goes on writing with its fence whatever it is told.
    pub(crate) fn holder(hosts: &str) -> Self {
        Self::start(&format!("hold {hosts}"))
    }

    /// A process that counts in a file, so many tasks so many times, holding the key each time.
    pub(crate) fn counter(hosts: &str, file: &Path, tasks: usize, rounds: usize) -> Self {
        Self::start(&format!("count {hosts} {} {tasks} {rounds}", file.display()))
    }

    fn start(work: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("the path of this binary"))
            .args(["process::works", "--exact", "--ignored", "--nocapture"])
            .env(WORK, work)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let input = child.stdin.take().expect("stdin is piped");
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (says, said) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // Who does not listen any more has seen enough.
                let _ = line.strip_prefix(MARK).map(|line| says.send(line.to_owned()));
            }
        });
        Self { child, _input: input, said }
    }

    /// What follows the first thing it says that begins like this.
    pub(crate) async fn says(&mut self, beginning: &str) -> String {
        let said = timeout(PATIENCE, self.says_at_last(beginning)).await;
        said.expect("it says that")
    }

    /// The same, however long it takes.
    pub(crate) async fn says_at_last(&mut self, beginning: &str) -> String {
        loop {
            let said = self.said.recv().await.expect("it lives");
            if let Some(rest) = said.strip_prefix(beginning) {
                return rest.trim().to_owned();
            }
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is our child");
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status();
        assert!(status.is_ok_and(|status| status.success()), "{kill}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An error means that it has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Works until it is done or its standard input ends.
#[tokio::test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
async fn works() {
    // Run by hand, there is nobody who has work.
    let Ok(work) = std::env::var(WORK) else { return };
    thread::spawn(|| {
        let _ = io::stdin().lines().count();
        std::process::exit(0);
    });
    let words: Vec<_> = work.split(' ').collect();
    let options = ZooKeeperOptions::new(words[1]).expect("an address");
    match words[0] {
        "hold" => hold(options.session_timeout(SESSION).expect("a time-out")).await,
        "count" => {
            let number = |at: usize| words[at].parse::<usize>().expect("a number");
            let lock = options.connect().await.expect("a session");
            let count = |_| count(lock.clone(), Path::new(words[2]), number(4));
            futures_util::future::join_all((0..number(3)).map(count)).await;
            say("done");
        }
        other => panic!("no such work: {other}"),
    }
}

fn say(line: &str) {
    // The test harness writes there as well, and not always to the end of a line.
    let line = format!("\n{MARK}{line}\n");
    // If nobody reads any more, the end of our input is near.
    let _ = io::stdout().lock().write_all(line.as_bytes());
}

async fn hold(options: ZooKeeperOptions) {
    let lock = options.connect().await.expect("a session");
    let grant = take(&lock, &claim()).await;
    let fence = fence(&grant);
    say(&format!("holds {fence}"));
    // Work that looks at nothing but itself.
    thread::spawn(move || {
        loop {
            say(&format!("writes {fence}"));
            thread::sleep(Duration::from_millis(5));
        }
    });
    let Term::Session(mut session) = grant.term else { panic!("not by a session") };
    session.ended().await;
    say("lost");
    std::future::pending().await
}

/// Reads, gives way and writes: two at a time would lose a count, or find half a file.
async fn count(lock: ZooKeeperLock, file: &Path, rounds: usize) {
    for _ in 0..rounds {
        let claim = Claim::new(claim().key().clone());
        let fence = fence(&wait(&lock, &claim).await);
        let text = fs::read_to_string(file).expect("the file is there");
        let (count, last) = text.split_once(' ').expect("it is whole");
        let [count, last] = [count, last].map(|number| number.parse::<u64>().expect("a number"));
        assert!(fence > last, "{fence} came after {last}");
        tokio::task::yield_now().await;
        fs::write(file, format!("{} {fence}", count + 1)).expect("it can be written");
        free(&lock, claim).await;
    }
}
