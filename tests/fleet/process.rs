//! Workers as a test sees them: processes to be commanded, stopped and killed.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command as Program, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::fleet::Fleet;
use crate::messages::{Answer, Command, Event, Game, Reply, Report, Request, Response, Setup};
use crate::storm::{Fared, Storm};

/// Set for a process that is to be a worker.
pub(crate) const WORKER: &str = "BELLWETHER_FLEET_WORKER";

/// What begins a line of a worker's, among those of its test harness.
pub(crate) const MARK: char = '@';

/// A process of the fleet. Killed and reaped on drop.
///
/// If the test dies, a worker's input ends, and it dies too. A stopped one cannot read: it has asked
/// the system to be killed then.
pub(crate) struct Worker {
    child: Child,
    /// Held to write a line.
    commands: Mutex<ChildStdin>,
    pending: Arc<Pending>,
    asked: AtomicU64,
}

/// Who waits for which reply. `None` when no more will come.
type Pending = Mutex<Option<HashMap<u64, oneshot::Sender<Reply>>>>;

impl Worker {
    pub(crate) async fn start(setup: Setup) -> Self {
        let mut child = Program::new(std::env::current_exe().expect("the path of this binary"))
            .args(["worker::works", "--exact", "--ignored", "--nocapture"])
            .env(WORKER, "1")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let commands = child.stdin.take().expect("stdin is piped").into();
        let replies = child.stdout.take().expect("stdout is piped");
        let pending = Arc::new(Mutex::new(Some(HashMap::new())));
        let waiting = Arc::clone(&pending);
        thread::spawn(move || receive(replies, &waiting));
        let asked = AtomicU64::new(0);
        let worker = Self { child, commands, pending, asked };
        worker.must(Command::Open(setup)).await;
        worker
    }

    /// Lets callers ask for a key. When this returns, each has been polled once.
    pub(crate) async fn begin(&self, burst: u64, key: u64, callers: usize) {
        let begin = Command::Begin { burst, key, callers };
        self.must(begin).await;
    }

    /// Drops some callers of a burst.
    pub(crate) async fn leave(&self, burst: u64, callers: Vec<usize>) {
        self.must(Command::Leave { burst, callers }).await;
    }

    /// The answers to those callers of a burst that have not left.
    pub(crate) async fn end(&self, burst: u64) -> Vec<Answer> {
        answers(self.ask(Command::End { burst }).await)
    }

    /// Lets callers come and go, and gives the answers to those that were answered before.
    pub(crate) async fn waver(&self, key: u64, stays: Vec<u64>) -> Vec<Answer> {
        answers(self.ask(Command::Waver { key, stays }).await)
    }

    /// One caller's answer.
    pub(crate) async fn read(&self, key: u64) -> Answer {
        let burst = self.asked.load(Ordering::Relaxed) + A_READ;
        self.begin(burst, key, 1).await;
        self.end(burst).await.remove(0)
    }

    pub(crate) async fn invalidate(&self, key: u64) {
        self.must(Command::Invalidate { key }).await;
    }

    pub(crate) async fn play(&self, game: Game) -> Vec<Event> {
        match self.ask(Command::Play(game)).await {
            Reply::History(events) => events,
            other => panic!("no history: {other:?}"),
        }
    }

    pub(crate) async fn storm(&self, storm: Storm) -> Fared {
        match self.ask(Command::Storm(storm)).await {
            Reply::Fared(fared) => fared,
            other => panic!("no storm: {other:?}"),
        }
    }

    pub(crate) async fn report(&self) -> Report {
        match self.ask(Command::Report).await {
            Reply::Report(report) => report,
            other => panic!("no report: {other:?}"),
        }
    }

    /// Waits until it asks and loads nothing any more: until what it had begun is over.
    pub(crate) async fn rests(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.report().await.in_flight > 0 {
            assert!(Instant::now() < deadline, "a flight never ends");
            tokio::time::sleep(GLANCE).await;
        }
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
            thread::sleep(GLANCE);
        }
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.pid());
        let status = Program::new("sh").args(["-c", &kill]).status();
        assert!(status.is_ok_and(|status| status.success()), "{kill}");
    }

    fn is_stopped(&self) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid())) else {
            return true; // no such directory on this system: nothing more can be known
        };
        let mut stats = tasks.flatten().map(|task| task.path().join("stat"));
        stats.all(|stat| {
            let stat = fs::read_to_string(stat).unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
            state.is_none_or(|rest| rest.starts_with('T'))
        })
    }

    async fn must(&self, command: Command) {
        let reply = self.ask(command.clone()).await;
        assert!(matches!(reply, Reply::Done), "{command:?}: {reply:?}");
    }

    async fn ask(&self, command: Command) -> Reply {
        let reply = timeout(PATIENCE, self.send(command)).await;
        reply.expect("the worker answers").expect("the worker lives")
    }

    fn send(&self, command: Command) -> oneshot::Receiver<Reply> {
        let id = self.asked.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let mut pending = lock(&self.pending);
        let waiting = pending.as_mut().expect("the worker lives");
        waiting.insert(id, answer);
        drop(pending);
        let line = serde_json::to_string(&Request { id, command }).expect("it is JSON") + "\n";
        let written = lock(&self.commands).write_all(line.as_bytes());
        written.expect("the worker reads");
        answered
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An error means that it has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answers(reply: Reply) -> Vec<Answer> {
    match reply {
        Reply::Answers(answers) => answers,
        other => panic!("no answers: {other:?}"),
    }
}

/// Hands replies to who waits for them, until the worker has gone.
fn receive(replies: ChildStdout, pending: &Pending) {
    for line in BufReader::new(replies).lines().map_while(Result::ok) {
        let Some(line) = line.strip_prefix(MARK) else {
            continue;
        };
        // What a killed worker could not end is no reply.
        let Ok(Response { id, reply }) = serde_json::from_str(line) else {
            break;
        };
        let waiting = lock(pending).as_mut().and_then(|pending| pending.remove(&id));
        // Who asked may not wait any more.
        let _ = waiting.map(|waiting| waiting.send(reply));
    }
    *lock(pending) = None;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bursts of a test's own have smaller numbers.
const A_READ: u64 = 1 << 32;

/// How long anything may take that a test waits for. Nothing that works comes near it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks at something that cannot be awaited.
const GLANCE: Duration = Duration::from_millis(2);

/// Holds two workers until its input ends, for [`workers_die_with_their_test`] to kill.
#[tokio::test]
#[ignore = "only of use to another test, which runs it in a process of its own"]
async fn holds_workers() {
    if std::env::var_os(WORKER).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let workers = fleet.workers(2, &fleet.setup()).await;
    workers[0].stop();
    println!("\n{MARK}{} {}", workers[0].pid(), workers[1].pid());
    let _ = io::stdin().lines().count();
}

#[test]
fn workers_die_with_their_test_even_if_they_are_stopped() {
    let mut holder = Program::new(std::env::current_exe().expect("the path of this binary"))
        .args(["process::holds_workers", "--exact", "--ignored", "--nocapture"])
        .env(WORKER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this binary runs");
    let mut lines = BufReader::new(holder.stdout.take().expect("stdout is piped")).lines();
    let pids = lines.find_map(|line| Some(line.ok()?.strip_prefix(MARK)?.to_owned()));
    let pids = pids.expect("it holds workers");
    assert!(pids.split(' ').all(lives));
    holder.kill().expect("it can be killed");
    holder.wait().expect("it is our child");
    let deadline = Instant::now() + PATIENCE;
    while pids.split(' ').any(lives) {
        assert!(Instant::now() < deadline, "one of {pids} is left behind");
        thread::sleep(GLANCE);
    }
}

/// Whether there is such a process, and not only its remains.
fn lives(pid: &str) -> bool {
    let alive = format!("kill -0 {pid} 2>&- && case $(ps -o stat= -p {pid}) in Z*) false;; esac");
    Program::new("sh").args(["-c", &alive]).status().is_ok_and(|status| status.success())
}
