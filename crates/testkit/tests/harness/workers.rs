//! Worker processes: their commands, their replies, and their end with the test.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bellwether_testkit::processes::{Worker, lives, work};
use bellwether_testkit::wait::block_until;
use serde::{Deserialize, Serialize};

/// How long a worker may outlive its test.
const PATIENCE: Duration = Duration::from_secs(120);

/// Set for a process that is to hold workers.
const HOLDER: &str = "BELLWETHER_HOLDS_WORKERS";

/// A command to a worker.
#[derive(Deserialize, Serialize)]
enum Task {
    /// Reply by the number, multiplied by the setup.
    Multiply(u64),
    /// Never reply.
    Hang,
    Panic,
}

#[test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
fn works() {
    let open = async |factor: u64| if factor > 0 { Ok(factor) } else { Err("a zero".into()) };
    work(open, async |factor: Arc<u64>, task| match task {
        Task::Multiply(number) => number * *factor,
        Task::Hang => std::future::pending().await,
        Task::Panic => panic!("as commanded"),
    });
}

async fn worker(factor: u64) -> Worker<Task, u64> {
    Worker::start("workers::works", &factor).await
}

#[tokio::test]
async fn a_worker_replies_to_each_command_though_another_one_hangs() {
    let worker = worker(3).await;
    let hangs = worker.send(&Task::Hang);
    assert_eq!(worker.ask(&Task::Multiply(14)).await, 42);
    assert_eq!(worker.ask(&Task::Multiply(2)).await, 6);
    drop(worker);
    assert!(hangs.await.is_err(), "the worker has gone");
}

#[tokio::test]
async fn a_worker_that_panics_is_gone_at_once() {
    let worker = worker(3).await;
    assert!(worker.send(&Task::Panic).await.is_err());
}

#[tokio::test]
#[should_panic(expected = "the worker can open: \"a zero\"")]
async fn a_worker_that_cannot_open_fails_its_test() {
    worker(0).await;
}

#[tokio::test]
async fn a_stopped_worker_replies_when_it_is_resumed() {
    let worker = worker(3).await;
    worker.stop();
    let mut reply = worker.send(&Task::Multiply(14));
    assert!(tokio::time::timeout(crate::SILENCE, &mut reply).await.is_err());
    worker.resume();
    assert_eq!(reply.await, Ok(42));
}

#[tokio::test]
async fn a_killed_worker_leaves_nothing_behind() {
    let mut worker = worker(3).await;
    assert!(lives(worker.pid()));
    worker.kill();
    assert!(!lives(worker.pid()));
}

/// Holds two workers until its input ends, for
/// [`workers_die_with_their_test_even_if_they_are_stopped`] to kill.
#[tokio::test]
#[ignore = "only of use to another test, which runs it in a process of its own"]
async fn holds_workers() {
    if std::env::var_os(HOLDER).is_none() {
        return;
    }
    let [stopped, running] = [worker(1).await, worker(1).await];
    stopped.stop();
    println!("\n@{} {}", stopped.pid(), running.pid());
    let _ = io::stdin().lines().count();
}

#[test]
fn workers_die_with_their_test_even_if_they_are_stopped() {
    let mut holder = Command::new(std::env::current_exe().expect("the path of this binary"))
        .args(["workers::holds_workers", "--exact", "--ignored", "--nocapture"])
        .env(HOLDER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this binary runs");
    let mut lines = BufReader::new(holder.stdout.take().expect("stdout is piped")).lines();
    let pids = lines.find_map(|line| Some(line.ok()?.strip_prefix('@')?.to_owned()));
    let pids = pids.expect("it holds workers");
    let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().expect("a number")).collect();
    assert!(pids.iter().copied().all(lives));
    holder.kill().expect("it can be killed");
    holder.wait().expect("it is our child");
    block_until(PATIENCE, "both are gone", || !pids.iter().copied().any(lives));
}
