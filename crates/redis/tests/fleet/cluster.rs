//! A fleet on a cluster: what holds on one server holds there.

use bellwether_testkit::clock;
use bellwether_testkit::servers::{RedisCluster, RedisServer};
use bellwether_testkit::wait::until;
use futures_util::future::join_all;

use crate::answer::How;
use crate::burst::behind;
use crate::database::Database;
use crate::fleet::{Calls, all_have, begin, count, end};
use crate::messages::Setup;
use crate::process::Worker;

const PROCESSES: usize = 4;
const CALLERS: usize = 250;

/// Enough keys to be on all nodes.
const KEYS: u64 = 8;

pub(crate) fn calls(cluster: &RedisCluster) -> Calls {
    let is_primary =
        |node: &&RedisServer| node.info("replication", "role").as_deref() == Some("master");
    Calls::on(cluster.nodes().iter().filter(is_primary))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_load_per_key_per_fleet_of_four_processes_on_a_cluster() {
    let cluster = RedisCluster::start();
    let database = Database::start().await;
    let setup = Setup::over(cluster.url(), &database);
    // Waiters find the value by a push message, or not at all.
    let setup = Setup { lease_ms: 60_000, pause_ms: Some(60_000), ..setup };
    let workers: Vec<_> =
        join_all((0..PROCESSES).map(|_| Worker::start(setup.clone()))).await.into_iter().collect();
    for key in 0..KEYS {
        let mut loads = database.hold(key);
        let before = calls(&cluster);
        begin(&workers, key, key, CALLERS).await;
        let load = loads.next().await;
        for command in ["mget", "evalsha"] {
            let has_asked = || calls(&cluster).since(&before).of(command) >= PROCESSES as u64;
            until(command, has_asked).await;
        }
        let released = clock::now();
        load.answer();
        let answers = end(&workers, key).await;
        println!("{PROCESSES} processes on a cluster: {}", behind(&answers, released));
        assert_eq!(database.loads(key), 1);
        all_have(&answers, 1);
        assert_eq!(answers.len(), PROCESSES * CALLERS);
        assert_eq!(count(&answers, How::Led { stored: true }), 1);
        let calls = calls(&cluster).since(&before);
        let sent = calls.of("mget") + calls.of("evalsha") + calls.of("eval");
        assert!(sent <= 4 * PROCESSES as u64, "{calls:?}");
    }
}
