//! Promises 5 and 6: a dead leader costs at most its lease, and a late one does no harm.

use std::time::Duration;

use bellwether_testkit::clock;
use bellwether_testkit::wait::until;
use futures_util::future::join_all;

use crate::answer::How;
use crate::database::{Load, Loads};
use crate::fleet::{Fleet, SLACK, all_have, begin, count, end, gather, last_after};
use crate::messages::Setup;
use crate::process::Worker;

const KEY: u64 = 3;
const OTHER: u64 = 4;
const CALLERS: usize = 20;

/// The longest pause of a waiter.
const PAUSE: Duration = Duration::from_millis(250);

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_costs_at_most_its_lease() {
    let lease = Duration::from_secs(2);
    let fleet = Fleet::start().await;
    let setup = with_lease(&fleet, lease);
    let mut loads = fleet.database.hold(KEY);
    let mut leader = fleet.workers(1, &setup).await.remove(0);
    leader.begin(KEY, KEY, CALLERS).await;
    let _load = loads.next().await;
    let others = fleet.workers(3, &setup).await;
    begin(&others, KEY, KEY, CALLERS).await;
    // The second load is not held.
    drop(loads);
    leader.kill();
    let killed = clock::now();
    let rest = fleet.lease(KEY).life().expect("leases end");
    assert!(Duration::ZERO < rest && rest <= lease, "{rest:?}");
    let answers = end(&others, KEY).await;
    all_have(&answers, 1);
    assert_eq!(answers.len(), 3 * CALLERS);
    assert_eq!(fleet.database.loads(KEY), 2);
    let last = last_after(&answers, killed);
    println!("killed: the last answer came {last:?} later; {rest:?} were left of the lease");
    assert!(last >= rest.saturating_sub(SLACK), "not before it: {last:?}");
    assert!(last < rest + PAUSE + SLACK, "{last:?}, {rest:?}");
    fleet.nothing_is_left_behind();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_does_no_harm_to_what_was_stored_meanwhile() {
    let stage = Stage::set().await;
    stage.source_changes_and_is_invalidated().await;
    drop(stage.loads);
    all_have(&[stage.others[0].read(KEY).await], 2);
    let stored = stage.fleet.entry(KEY).mark();
    stage.load.answer();
    stage.leader.resume();
    the_opener_alone_has_the_old(&stage.leader).await;
    all_have(&stage.leader.end(KEY).await, 2);
    assert_eq!(stage.fleet.entry(KEY).mark(), stored, "refused");
    every_worker_reads_the_new(&stage.fleet, &stage.leader, &stage.others).await;
    assert_eq!(stage.fleet.database.loads(KEY), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_does_no_harm_to_a_load_of_another_process() {
    let mut stage = Stage::set().await;
    stage.source_changes_and_is_invalidated().await;
    begin(&stage.others, KEY, KEY, CALLERS).await;
    let second = stage.loads.next().await;
    assert_eq!(second.version, 2);
    let held = stage.fleet.lease(KEY).holder();
    assert!(held.is_some());
    stage.load.answer();
    stage.leader.resume();
    the_opener_alone_has_the_old(&stage.leader).await;
    assert_eq!(stage.fleet.lease(KEY).holder(), held, "not its own any more");
    assert_eq!(stage.fleet.entry(KEY).mark(), None, "refused");
    second.answer();
    all_have(&end(&stage.others, KEY).await, 2);
    all_have(&stage.leader.end(KEY).await, 2);
    every_worker_reads_the_new(&stage.fleet, &stage.leader, &stage.others).await;
    assert_eq!(stage.fleet.database.loads(KEY), 2);
    stage.fleet.nothing_is_left_behind();
}

/// Nothing was invalidated. A later lease that was committed first is enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_does_no_harm_to_the_next_holder_of_its_lease() {
    let mut stage = Stage::set().await;
    stage.fleet.database.write(KEY);
    begin(&stage.others, KEY, KEY, CALLERS).await;
    stage.loads.next().await.answer();
    all_have(&end(&stage.others, KEY).await, 2);
    let stored = stage.fleet.entry(KEY).mark();
    stage.load.answer();
    stage.leader.resume();
    the_opener_alone_has_the_old(&stage.leader).await;
    all_have(&stage.leader.end(KEY).await, 2);
    assert_eq!(stage.fleet.entry(KEY).mark(), stored, "refused");
    every_worker_reads_the_new(&stage.fleet, &stage.leader, &stage.others).await;
    assert_eq!(stage.fleet.database.loads(KEY), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_fails_late_ends_no_other_lease() {
    let mut stage = Stage::set().await;
    begin(&stage.others, KEY, KEY, CALLERS).await;
    let second = stage.loads.next().await;
    let held = stage.fleet.lease(KEY).holder();
    assert!(held.is_some());
    // The first load fails, and the leader gives up a lease that is not its own any more.
    drop(stage.load);
    stage.leader.resume();
    let late = stage.leader.end(OPENER).await;
    assert!(late[0].version.is_err(), "{late:?}");
    // The leader gives its lease up before it asks for anything else. Its other callers wait for the
    // load that runs.
    stage.leader.read(OTHER).await;
    assert_eq!(stage.fleet.lease(KEY).holder(), held, "not its own any more");
    second.answer();
    all_have(&end(&stage.others, KEY).await, 1);
    all_have(&stage.leader.end(KEY).await, 1);
    assert_eq!(stage.fleet.database.loads(KEY), 2);
    stage.fleet.nothing_is_left_behind();
}

/// A load slower than its lease would never be stored otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_stores_a_key_that_was_not_loaded_or_changed_meanwhile() {
    let stage = Stage::set().await;
    stage.lease_lapses().await;
    stage.load.answer();
    stage.leader.resume();
    let late = stage.leader.end(OPENER).await;
    all_have(&late, 1);
    assert_eq!(late[0].how, How::Led { stored: true });
    all_have(&stage.leader.end(KEY).await, 1);
    assert_eq!(stage.others[0].read(KEY).await.how, How::Hit);
    assert_eq!(stage.fleet.database.loads(KEY), 1);
}

/// It has been executed, and is asked for again over the next connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_costs_no_second_load() {
    let (fleet, proxy) = Fleet::proxied().await;
    let far = Setup { url: proxy.url(), ..fleet.setup_without_pauses() };
    let far = fleet.workers(1, &far).await;
    let near = fleet.workers(1, &fleet.setup_without_pauses()).await;
    let mut loads = fleet.database.hold(KEY);
    gather(&fleet, &far, KEY, CALLERS).await;
    let load = loads.next().await;
    gather(&fleet, &near, KEY, CALLERS).await;
    proxy.delay(Duration::ZERO, FOR_EVER);
    load.answer();
    all_have(&end(&near, KEY).await, 1);
    proxy.cut();
    proxy.delay(Duration::ZERO, Duration::ZERO);
    all_have(&end(&far, KEY).await, 1);
    assert_eq!(fleet.database.loads(KEY), 1);
}

/// A leader that is stopped in the middle of its load, and two other processes.
struct Stage {
    fleet: Fleet,
    leader: Worker,
    others: Vec<Worker>,
    loads: Loads,
    /// The load of the leader, which has read version 1.
    load: Load,
}

impl Stage {
    async fn set() -> Self {
        let fleet = Fleet::start().await;
        let mut workers = fleet.workers(3, &with_lease(&fleet, LEASE)).await;
        let leader = workers.remove(0);
        let others = workers;
        let mut loads = fleet.database.hold(KEY);
        leader.begin(OPENER, KEY, 1).await;
        let load = loads.next().await;
        leader.begin(KEY, KEY, CALLERS).await;
        leader.stop();
        Self { fleet, leader, others, loads, load }
    }

    async fn lease_lapses(&self) {
        let lapsed = || self.fleet.lease(KEY).life() == Some(Duration::ZERO);
        until("the lease lapses", lapsed).await;
    }

    async fn source_changes_and_is_invalidated(&self) {
        self.lease_lapses().await;
        assert_eq!(self.fleet.database.write(KEY), 2);
        self.others[0].invalidate(KEY).await;
    }
}

fn with_lease(fleet: &Fleet, lease: Duration) -> Setup {
    Setup { lease_ms: lease.as_millis() as u64, ..fleet.setup() }
}

/// The caller of the stopped leader had asked before the change, so it may get the old version.
/// Callers that joined during the load may not.
async fn the_opener_alone_has_the_old(leader: &Worker) {
    let late = leader.end(OPENER).await;
    all_have(&late, 1);
    assert_eq!(late[0].how, How::Led { stored: false });
}

/// Asks in the process of the late leader, in the others, and in a new one.
async fn every_worker_reads_the_new(fleet: &Fleet, leader: &Worker, others: &[Worker]) {
    let new = fleet.workers(1, &with_lease(fleet, LEASE)).await;
    let readers = others.iter().chain(&new).chain([leader]);
    let answers = join_all(readers.map(|worker| worker.read(KEY))).await;
    all_have(&answers, 2);
    assert_eq!(count(&answers, How::Hit), answers.len());
}

const LEASE: Duration = Duration::from_millis(700);

/// Longer than any test lasts.
const FOR_EVER: Duration = Duration::from_secs(600);

/// The burst of the caller that the leader loads for; the burst `KEY` joins it.
const OPENER: u64 = 0;
