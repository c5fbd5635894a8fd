//! A lost push is told from a load that takes long.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::fleet::{Fleet, all_have, end, gather};
use crate::messages::{Setup, Sums};
use crate::process::Worker;

const KEY: u64 = 7;
const PROCESSES: usize = 4;
const CALLERS: usize = 10;

/// The processes that wait for the load of another one.
const WAITING: u64 = PROCESSES as u64 - 1;

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_takes_long_is_no_missed_push() {
    let fleet = Fleet::start().await;
    let sums = long_load(&fleet, &fleet.setup()).await;
    assert_eq!(sums.missed_pushes, 0, "{sums:?}");
    assert!(sums.pushes >= WAITING, "{sums:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_the_rights_for_messages_misses_the_push_of_each_load() {
    let fleet = Fleet::start().await;
    let url = fleet.url_of_user(&["+@all", "-client", "-subscribe"]);
    let sums = long_load(&fleet, &Setup { url, ..fleet.setup() }).await;
    assert_eq!((sums.pushes, sums.missed_pushes), (0, WAITING), "{sums:?}");
}

/// What ended the waits for a load that lasts until each waiting process has polled several times.
async fn long_load(fleet: &Fleet, setup: &Setup) -> Sums {
    let workers = fleet.workers(PROCESSES, setup).await;
    let mut loads = fleet.database.hold(KEY);
    gather(fleet, &workers, KEY, CALLERS).await;
    let load = loads.next().await;
    let deadline = Instant::now() + PATIENCE;
    while sums(&workers).await.pauses < 5 * WAITING {
        assert!(Instant::now() < deadline, "they poll");
        sleep(Duration::from_millis(20)).await;
    }
    load.answer();
    all_have(&end(&workers, KEY).await, 1);
    sums(&workers).await
}

async fn sums(workers: &[Worker]) -> Sums {
    let mut sums = Sums::default();
    for report in join_all(workers.iter().map(Worker::report)).await {
        sums += report.sums;
    }
    sums
}

/// How long waiters may take to poll. Nothing that works comes near it.
const PATIENCE: Duration = Duration::from_secs(120);
