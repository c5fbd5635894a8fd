//! Promise 2 on servers without client tracking: waiters are told by messages, and only a lease with
//! waiters costs any.

use bellwether_testkit::servers::{RedisCluster, Reply};
use bellwether_testkit::wait::until;
use futures_util::future::join_all;

use crate::answer::How;
use crate::cluster::calls;
use crate::database::Database;
use crate::fleet::{Fleet, all_have, begin, count, end, gather};
use crate::messages::Setup;
use crate::process::Worker;

const KEY: u64 = 7;
const PROCESSES: usize = 4;
const CALLERS: usize = 250;

/// The processes that wait for the load of another one.
const WAITING: u64 = PROCESSES as u64 - 1;

fn setup_over_resp2(fleet: &Fleet) -> Setup {
    Setup { resp2: true, ..fleet.setup_without_pauses() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_over_resp2_is_one_load_and_a_message_to_each_waiting_process() {
    let fleet = Fleet::start().await;
    burst(&fleet, &setup_over_resp2(&fleet)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_where_tracking_is_refused_is_one_load_and_a_message_to_each_waiting_process() {
    let fleet = Fleet::start().await;
    let url = fleet.url_of_user(&["+@all", "-client"]);
    burst(&fleet, &Setup { url, ..fleet.setup_without_pauses() }).await;
}

async fn burst(fleet: &Fleet, setup: &Setup) {
    let workers = fleet.workers(PROCESSES, setup).await;
    let before = fleet.calls();
    let mut loads = fleet.database.hold(KEY);
    gather(fleet, &workers, KEY, CALLERS).await;
    loads.next().await.answer();
    let answers = end(&workers, KEY).await;
    all_have(&answers, 1);
    assert_eq!(answers.len(), PROCESSES * CALLERS);
    assert_eq!(count(&answers, How::Led { stored: true }), 1);
    assert_eq!(fleet.database.loads(KEY), 1);
    let calls = fleet.calls().since(&before);
    println!("{PROCESSES} processes without tracking: {calls:?}");
    assert!(calls.of("mget") <= PROCESSES as u64 + WAITING, "{calls:?}");
    assert_eq!(calls.of("publish"), WAITING, "{calls:?}");
    is_told(&workers, WAITING).await;
}

/// So many messages have arrived, and as many waits were ended by them.
async fn is_told(workers: &[Worker], messages: u64) {
    let reports = join_all(workers.iter().map(Worker::report)).await;
    assert!(reports.iter().all(|report| report.receives_pushes), "{reports:?}");
    assert_eq!(reports.iter().map(|report| report.pushes).sum::<u64>(), messages, "{reports:?}");
    let woken = reports.iter().map(|report| report.sums.pushes);
    assert_eq!(woken.sum::<u64>(), messages, "{reports:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_without_waiters_cost_no_message() {
    let fleet = Fleet::start().await;
    let workers = fleet.workers(1, &setup_over_resp2(&fleet)).await;
    let before = fleet.calls();
    for key in 0..20 {
        workers[0].read(key).await;
        workers[0].invalidate(key).await;
        assert_eq!(workers[0].read(key).await.how, How::Led { stored: true });
    }
    assert_eq!(fleet.calls().since(&before).of("publish"), 0);
}

/// Messages of the time without a subscription are lost. So its waiters ask again.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_subscription_is_killed_is_told_over_the_next_one() {
    let fleet = Fleet::start().await;
    let workers = fleet.workers(PROCESSES, &setup_over_resp2(&fleet)).await;
    let mut loads = fleet.database.hold(KEY);
    gather(&fleet, &workers, KEY, 10).await;
    let load = loads.next().await;
    let former = subscriptions(&fleet);
    assert_eq!(former.len(), PROCESSES);
    fleet.kill_clients(&former);
    until("all are subscribed again", || {
        let now = subscriptions(&fleet);
        now.len() == PROCESSES && now.iter().all(|id| !former.contains(id))
    })
    .await;
    load.answer();
    all_have(&end(&workers, KEY).await, 1);
    assert_eq!(fleet.database.loads(KEY), 1);
}

/// The connections that are subscribed to a channel, by their numbers.
fn subscriptions(fleet: &Fleet) -> Vec<String> {
    let Reply::Text(clients) = fleet.redis.command(&["CLIENT", "LIST", "TYPE", "pubsub"]) else {
        return Vec::new();
    };
    let ids = clients.lines().filter_map(|client| client.strip_prefix("id=")?.split_once(' '));
    ids.map(|(id, _)| id.to_owned()).collect()
}

/// The nodes pass messages on to each other, so one subscription is enough.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_told_by_messages_on_all_nodes_of_a_cluster() {
    let cluster = RedisCluster::start();
    let database = Database::start().await;
    let setup = Setup::over(cluster.url(), &database);
    let setup = Setup { lease_ms: 60_000, pause_ms: Some(60_000), resp2: true, ..setup };
    let workers = join_all((0..PROCESSES).map(|_| Worker::start(setup.clone()))).await;
    let before = calls(&cluster);
    for key in 0..KEYS {
        let mut loads = database.hold(key);
        let asked = calls(&cluster);
        begin(&workers, key, key, 1).await;
        let load = loads.next().await;
        let have_asked = || calls(&cluster).since(&asked).of("evalsha") >= PROCESSES as u64;
        until("all have asked for the lease", have_asked).await;
        load.answer();
        all_have(&end(&workers, key).await, 1);
        assert_eq!(database.loads(key), 1);
    }
    assert_eq!(calls(&cluster).since(&before).of("publish"), KEYS * WAITING);
    is_told(&workers, KEYS * WAITING).await;
}

/// Enough keys to be on all nodes.
const KEYS: u64 = 8;
