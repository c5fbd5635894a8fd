//! The test's side of a worker: it commands, freezes and kills it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fmt, thread};

use bellwether::adapter::locked;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::frozen::{freeze, thaw};
use super::messages::{MARK, Order, SETUP_VARIABLE, WorkerMessage};

/// The limit for a worker to open, and to [reply](Worker::ask). Nothing that works comes near it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A copy of this test binary that obeys commands `C` by replies `R`. Killed and reaped on drop.
///
/// If the test dies, a worker's input ends, and it dies too. A frozen one cannot read: it has asked
/// the system to be killed then.
pub struct Worker<C, R> {
    child: Child,
    /// Held to write a line.
    commands: Mutex<ChildStdin>,
    pending: Arc<Pending<R>>,
    asked: AtomicU64,
    obeys: PhantomData<fn(C)>,
}

/// Which command's reply goes where. `None` when no more will come.
type Pending<R> = Mutex<Option<HashMap<u64, oneshot::Sender<R>>>>;

impl<C: Serialize, R: DeserializeOwned + Send + 'static> Worker<C, R> {
    /// Starts the ignored test `entry` of this binary in a process of its own, where it is to
    /// [`work`](super::work) with `setup`, and waits until it is ready for commands.
    pub async fn start(entry: &str, setup: &impl Serialize) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("the path of this binary"))
            .args([entry, "--exact", "--ignored", "--nocapture"])
            .env(SETUP_VARIABLE, serde_json::to_string(setup).expect("it is JSON"))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let commands = child.stdin.take().expect("stdin is piped").into();
        let output = child.stdout.take().expect("stdout is piped");
        let pending = Arc::new(Mutex::new(Some(HashMap::new())));
        let (opens, opened) = oneshot::channel();
        let waiting = Arc::clone(&pending);
        thread::spawn(move || receive(output, opens, &waiting));
        let worker =
            Self { child, commands, pending, asked: AtomicU64::new(0), obeys: PhantomData };
        let opened = timeout(PATIENCE, opened).await.expect("the worker opens");
        opened.expect("the worker lives").expect("the worker can open");
        worker
    }

    /// Gives a command and waits for the reply; panics if that takes minutes.
    pub async fn ask(&self, command: &C) -> R {
        let reply = timeout(PATIENCE, self.send(command)).await;
        reply.expect("the worker answers").expect("the worker lives")
    }

    /// Gives a command. The reply comes however long it takes; an error means that the worker has
    /// gone.
    pub fn send(&self, command: &C) -> oneshot::Receiver<R> {
        let id = self.asked.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let mut pending = locked(&self.pending);
        pending.as_mut().expect("the worker lives").insert(id, answer);
        drop(pending);
        let line = serde_json::to_string(&Order { id, command }).expect("it is JSON") + "\n";
        let written = locked(&self.commands).write_all(line.as_bytes());
        written.expect("the worker reads");
        answered
    }
}

impl<C, R> Worker<C, R> {
    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it without a clean shutdown.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is our child");
    }

    /// Freezes it. When this returns, none of its threads runs.
    pub fn stop(&self) {
        freeze(self.pid());
    }

    /// Lets it go on after a stop.
    pub fn resume(&self) {
        thaw(self.pid());
    }
}

impl<C, R> Drop for Worker<C, R> {
    fn drop(&mut self) {
        // An error means that it has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<C, R> fmt::Debug for Worker<C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

/// Hands replies to the askers that wait for them, until the worker has gone.
fn receive<R: DeserializeOwned>(
    output: ChildStdout,
    opens: oneshot::Sender<Result<(), String>>,
    pending: &Pending<R>,
) {
    let mut opens = Some(opens);
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let Some(line) = line.strip_prefix(MARK) else {
            continue;
        };
        // What a killed worker could not end is no reply. An asker may not wait any more.
        match serde_json::from_str(line) {
            Ok(WorkerMessage::Opened(opened)) => _ = opens.take().map(|opens| opens.send(opened)),
            Ok(WorkerMessage::Reply { id, reply }) => {
                let waiting = locked(pending).as_mut().and_then(|pending| pending.remove(&id));
                let _ = waiting.map(|waiting| waiting.send(reply));
            }
            Err(_) => break,
        }
    }
    *locked(pending) = None;
}
