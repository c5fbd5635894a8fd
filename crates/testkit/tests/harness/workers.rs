//! Worker processes end with their test.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bellwether_testkit::processes::{Worker, lives, work};
use bellwether_testkit::wait::block_until;

/// How long a worker may outlive its test.
const PATIENCE: Duration = Duration::from_secs(120);

/// Set for a process that is to hold workers.
const HOLDER: &str = "BELLWETHER_HOLDS_WORKERS";

#[test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
fn works() {
    work(async |(): ()| Ok(()), async |_: Arc<()>, (): ()| ());
}

async fn worker() -> Worker<(), ()> {
    Worker::start("workers::works", &()).await
}

/// Holds two workers until its input ends, for
/// [`workers_die_with_their_test_even_if_they_are_stopped`] to kill.
#[tokio::test]
#[ignore = "only of use to another test, which runs it in a process of its own"]
async fn holds_workers() {
    if std::env::var_os(HOLDER).is_none() {
        return;
    }
    let [stopped, running] = [worker().await, worker().await];
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
