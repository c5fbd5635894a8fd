//! Promise 2: waiters are notified and need not poll. A lost message costs a pause.

use std::time::Duration;

use bellwether_testkit::clock;
use bellwether_testkit::faults::FaultProxy;
use futures_util::future::join_all;

use crate::answer::How;
use crate::database::{Load, Loads};
use crate::fleet::{Calls, Fleet, SLACK, all_have, begin, count, end, gather, last_after};
use crate::messages::{Report, Setup};
use crate::process::Worker;

const KEY: u64 = 7;

/// The longest pause of a waiter, which is the promised cost of a lost message.
const PAUSE: Duration = Duration::from_millis(250);

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_notified() {
    let mut stage = Stage::set(|fleet| fleet.setup_without_pauses()).await;
    let before = reports(&stage.waiters).await;
    let released = stage.release();
    let answers = end(&stage.waiters, KEY).await;
    all_have(&answers, 1);
    assert_eq!(count(&answers, How::CollapsedElsewhere), answers.len());
    let last = last_after(&answers, released);
    println!("notified: the last waiter was answered {last:?} behind the load");
    assert!(last < SLACK, "{last:?}");
    for (before, after) in before.iter().zip(reports(&stage.waiters).await) {
        assert!(after.pushes > before.pushes, "{before:?} {after:?}");
        assert_eq!(after.connects, before.connects);
    }
    let calls = stage.fleet.calls().since(&stage.begun);
    calls.are_those_of_a_burst();
    let (processes, waiting) = (WAITERS as u64 + 1, WAITERS as u64);
    assert_eq!(calls.of("evalsha"), processes + 1, "{calls:?}");
    assert!(calls.of_clients() <= 2 * processes + 1 + waiting, "{calls:?}");
    assert_eq!(stage.fleet.database.loads(KEY), 1);
}

/// A message that is lost with its connection is not sent again, so the loss of a connection has to
/// wake the waiters.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_connection_is_killed_is_notified_over_the_next_one() {
    let mut stage = Stage::set(|fleet| fleet.setup_without_pauses()).await;
    let killed = stage.kill_connections_of_waiters();
    stage.waiters_ask_again(&killed).await;
    stage.every_waiter_is_answered_within(SLACK).await;
    assert_eq!(stage.fleet.database.loads(KEY), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_killed_as_the_value_is_stored_cost_at_most_a_pause() {
    for _ in 0..10 {
        let mut stage = Stage::set(Fleet::setup).await;
        stage.kill_connections_of_waiters();
        stage.every_waiter_is_answered_within(PAUSE + SLACK).await;
    }
}

/// A lost connection does not mean that the store is down. Uncached loads would be one load for
/// each process that had just asked, and none would be stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_lost_with_its_connection_is_sent_again() {
    let (fleet, proxy) = Fleet::proxied().await;
    let setup = fleet.setup_without_pauses();
    let of_waiters = Setup { url: proxy.url(), ..setup.clone() };
    let leader = fleet.workers(1, &setup).await;
    let waiters = fleet.workers(WAITERS, &of_waiters).await;
    let mut loads = fleet.database.hold(KEY);
    gather(&fleet, &leader, KEY, CALLERS).await;
    let load = loads.next().await;
    drop(loads);
    let begun = fleet.calls();
    // The server is asked, and its answers do not come through.
    proxy.delay(Duration::ZERO, Duration::from_secs(60));
    begin(&waiters, KEY, KEY, CALLERS).await;
    fleet.has_called(&begun, "evalsha", WAITERS as u64).await;
    proxy.cut();
    proxy.delay(Duration::ZERO, Duration::ZERO);
    load.answer();
    all_have(&end(&waiters, KEY).await, 1);
    assert_eq!(fleet.database.loads(KEY), 1);
}

/// Redis sends no push message for `SWAPDB`. So the entry, prepared in another database, appears as
/// if its message were lost on a working connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_message_costs_at_most_a_pause() {
    let fleet = Fleet::start().await;
    let setup = fleet.setup();
    let elsewhere = Setup { url: format!("{}/1", setup.url), ..setup.clone() };
    let other = Worker::start(elsewhere).await;
    assert_eq!(other.read(KEY).await.how, How::Led { stored: true });
    let stage = Stage::with(fleet, &setup, &setup).await;
    let before = reports(&stage.waiters).await;
    let swapped = clock::now();
    stage.fleet.redis.command(&["SWAPDB", "0", "1"]);
    let answers = end(&stage.waiters, KEY).await;
    all_have(&answers, 1);
    for (before, after) in before.iter().zip(reports(&stage.waiters).await) {
        assert_eq!(after.pushes, before.pushes, "there was no push message");
    }
    let last = last_after(&answers, swapped);
    println!("lost message: the last waiter was answered {last:?} after the value was there");
    assert!(last < PAUSE + SLACK, "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_behind_a_network_failure_is_answered_when_it_ends() {
    let (mut stage, proxy) = Stage::proxied(|fleet| fleet.setup_without_pauses()).await;
    proxy.blackhole();
    stage.release();
    all_have(&stage.leader[0].end(KEY).await, 1);
    let passed = clock::now();
    proxy.pass();
    let answers = end(&stage.waiters, KEY).await;
    all_have(&answers, 1);
    let last = last_after(&answers, passed);
    println!("network failure: the last waiter was answered {last:?} after its end");
    assert!(last < SLACK, "{last:?}");
    assert_eq!(stage.fleet.database.loads(KEY), 1);
}

/// It pauses, asks until the timeout of the store, and makes an uncached load.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_behind_an_endless_network_failure_makes_an_uncached_load() {
    let budget = Duration::from_millis(250);
    let (stage, proxy) =
        Stage::proxied(|fleet| Setup { timeout_ms: budget.as_millis() as u64, ..fleet.setup() })
            .await;
    let cut_off = clock::now();
    proxy.blackhole();
    drop(stage.loads);
    let answers = end(&stage.waiters, KEY).await;
    all_have(&answers, 1);
    assert_eq!(stage.fleet.database.loads(KEY), 1 + WAITERS as u64);
    let last = last_after(&answers, cut_off);
    println!("network failure without end: the last waiter was answered after {last:?}");
    assert!(last < PAUSE + budget + SLACK, "{last:?}");
}

const WAITERS: usize = 3;
const CALLERS: usize = 20;

/// A load that is held, its leader, and waiters in other processes.
struct Stage {
    fleet: Fleet,
    /// One process, in a list like the waiters.
    leader: Vec<Worker>,
    waiters: Vec<Worker>,
    loads: Loads,
    /// `None` once it was released.
    load: Option<Load>,
    /// The connection of the leader, by its number in Redis.
    leading: Vec<String>,
    /// What the server had executed before the first caller asked.
    begun: Calls,
}

impl Stage {
    async fn set(setup: impl Fn(&Fleet) -> Setup) -> Self {
        let fleet = Fleet::start().await;
        let setup = setup(&fleet);
        Self::with(fleet, &setup, &setup).await
    }

    /// The waiters are connected by a proxy.
    async fn proxied(setup: impl Fn(&Fleet) -> Setup) -> (Self, FaultProxy) {
        let (fleet, proxy) = Fleet::proxied().await;
        let setup = setup(&fleet);
        let of_waiters = Setup { url: proxy.url(), ..setup.clone() };
        let stage = Self::with(fleet, &setup, &of_waiters).await;
        // What the server has answered may still be in the proxy. Answers come in order, so the
        // answers to later requests show that it is not.
        let others = stage.waiters.iter().zip(KEY + 1..);
        join_all(others.map(|(waiter, other)| waiter.read(other))).await;
        (stage, proxy)
    }

    async fn with(fleet: Fleet, of_leader: &Setup, of_waiters: &Setup) -> Self {
        let leader = fleet.workers(1, of_leader).await;
        let waiters = fleet.workers(WAITERS, of_waiters).await;
        let earlier = fleet.asking_clients();
        let begun = fleet.calls();
        let mut loads = fleet.database.hold(KEY);
        gather(&fleet, &leader, KEY, CALLERS).await;
        let load = Some(loads.next().await);
        let leading = fleet.new_connections_ask(&earlier, 1).await;
        gather(&fleet, &waiters, KEY, CALLERS).await;
        fleet.new_connections_ask(&earlier, 1 + WAITERS).await;
        Self { fleet, leader, waiters, loads, load, leading, begun }
    }

    /// Kills the connections over which waiters have asked, and returns their numbers.
    fn kill_connections_of_waiters(&self) -> Vec<String> {
        let mut losing = self.fleet.asking_clients();
        losing.retain(|id| !self.leading.contains(id));
        self.fleet.kill_clients(&losing);
        self.fleet.end_subscriptions();
        losing
    }

    /// Waits until each waiter has been answered `busy` over another connection.
    async fn waiters_ask_again(&self, former: &[String]) {
        let known = [former, &self.leading].concat();
        self.fleet.new_connections_ask(&known, WAITERS).await;
    }

    /// Lets the load go, and says when that was.
    fn release(&mut self) -> u64 {
        let released = clock::now();
        self.load.take().expect("it is held").answer();
        released
    }

    /// Lets the load go, and measures how long the waiters take.
    async fn every_waiter_is_answered_within(&mut self, bound: Duration) {
        let released = self.release();
        all_have(&self.leader[0].end(KEY).await, 1);
        let answers = end(&self.waiters, KEY).await;
        assert_eq!(answers.len(), WAITERS * CALLERS);
        all_have(&answers, 1);
        let last = last_after(&answers, released);
        println!("the last waiter was answered {last:?} behind the load");
        assert!(last < bound, "{last:?}");
    }
}

async fn reports(workers: &[Worker]) -> Vec<Report> {
    join_all(workers.iter().map(Worker::report)).await
}
