//! A process of its own that locks: what it is told by its environment, and what it says.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bellwether_lock::{FairLock, Lock, RedisLock, Redlock, ReentrantLock, Renew};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::world::{LONG, claim, free, options_of, take, wait};

/// What a process does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// Takes the key 1 and renews it, at a third of the lease in ms, until it is lost.
    Hold { lease_ms: u64 },
    /// Counts to so many rounds, by several tasks, in a file that does not exclude anybody.
    Count { tasks: u32, rounds: u32 },
}

/// A process, killed and reaped on drop.
pub(crate) struct Process {
    child: Child,
    lines: io::Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Of a kind of lock on these servers, with a file to count in.
    pub(crate) fn start(kind: &str, urls: &str, file: &str, task: Task) -> Self {
        let told = match task {
            Task::Hold { lease_ms } => format!("{kind} {urls} {file} hold {lease_ms} 0"),
            Task::Count { tasks, rounds } => format!("{kind} {urls} {file} count {tasks} {rounds}"),
        };
        let mut child = Command::new(env::current_exe().expect("the path of this binary"))
            .args(["process::locks", "--exact", "--ignored", "--nocapture"])
            .env(TOLD, told)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        Self { child, lines }
    }

    /// What it says next, by its first word, which it has to be.
    pub(crate) fn says(&mut self, word: &str) -> String {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        let said = lines.find_map(|line| line.strip_prefix('@').map(str::to_owned));
        let said = said.unwrap_or_else(|| panic!("it ended before it said {word}"));
        let (first, rest) = said.split_once(' ').unwrap_or((&said, ""));
        assert_eq!(first, word, "{said}");
        rest.to_owned()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is our child");
    }

    /// Freezes it. When this returns, none of its threads runs.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        let stat = format!("/proc/{}/stat", self.child.id());
        let deadline = Instant::now() + LONG;
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") T ")) {
            assert!(Instant::now() < deadline, "it does not stop");
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status();
        assert!(status.is_ok_and(|status| status.success()), "{kill}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process is told.
const TOLD: &str = "BELLWETHER_LOCKS";

#[test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
fn locks() {
    let Ok(told) = env::var(TOLD) else { return };
    let words: Vec<_> = told.split(' ').collect();
    let [kind, urls, file, task, first, second] = words[..] else { panic!("{told}") };
    let [first, second] = [first, second].map(|number| number.parse::<u32>().expect("a number"));
    // It dies with the test, however that dies.
    thread::spawn(|| {
        let _ = io::stdin().lines().count();
        std::process::exit(0);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let lock = lock(kind, urls).await;
        match task {
            "hold" => hold(&*lock, Duration::from_millis(first.into())).await,
            _ => count(lock, file, first, second).await,
        }
    });
}

fn say(words: &str) {
    // The test harness writes there as well, and not always to the end of a line.
    let _ = io::stdout().write_all(format!("\n@{words}\n").as_bytes());
    let _ = io::stdout().flush();
}

async fn lock(kind: &str, urls: &str) -> Arc<dyn Lock> {
    let nodes: Vec<_> = urls.split(',').map(options_of).collect();
    let first = nodes[0].clone();
    match kind {
        "redis" => Arc::new(RedisLock::connect(first).await.expect("a lock")),
        "fair" => Arc::new(FairLock::connect(first).await.expect("a lock")),
        "reentrant" => Arc::new(ReentrantLock::connect(first).await.expect("a lock")),
        _ => Arc::new(Redlock::connect(nodes).await.expect("a lock")),
    }
}

async fn hold(lock: &dyn Lock, lease: Duration) {
    let ours = claim(1);
    let fence = take(lock, &ours, lease).await.fence.unwrap_or_default();
    say(&format!("held {fence}"));
    while let Renew::Held = lock.renew(&ours, lease).await.expect("an answer") {
        sleep(lease / 3).await;
    }
    say("lost");
    // Until the test has heard it.
    sleep(LONG).await;
}

/// The tasks of one process take their turns among themselves, as under a policy.
async fn count(lock: Arc<dyn Lock>, file: &str, tasks: u32, rounds: u32) {
    let turn = Arc::new(Mutex::new(()));
    let mut counting = JoinSet::new();
    for _ in 0..tasks {
        let (lock, turn, file) = (Arc::clone(&lock), Arc::clone(&turn), file.to_owned());
        counting.spawn(async move {
            for _ in 0..rounds {
                let _turn = turn.lock().await;
                let ours = claim(1);
                let fence = wait(&*lock, &ours, LONG).await.fence;
                count_one(&file, fence).await;
                free(&*lock, &ours).await;
            }
        });
    }
    counting.join_all().await;
    say("counted");
    sleep(LONG).await;
}

/// Reads, gives way, and writes: without exclusion, counts get lost.
async fn count_one(file: &str, fence: Option<u64>) {
    let text = fs::read_to_string(file).expect("the count");
    let (count, last) = text.split_once(' ').expect("a count and a fence");
    let (count, last): (u64, u64) = (count.parse().expect("it"), last.parse().expect("it"));
    assert!(fence.is_none_or(|fence| fence > last), "{fence:?} after {last}");
    tokio::task::yield_now().await;
    fs::write(file, format!("{} {}", count + 1, fence.unwrap_or(last))).expect("it is written");
}
