//! A server that forgets everything in the middle of a burst causes no error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use crate::fared::Fared;
use crate::fleet::{Fleet, all_have, begin, end};
use crate::messages::Storm;

const PROCESSES: usize = 4;
const CALLERS: usize = 25;
const KEY: u64 = 5;

/// The lease is lost with everything else, which wakes the waiters: one of them leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_lease_is_taken_over_at_once() {
    let fleet = Fleet::start().await;
    let workers = fleet.workers(PROCESSES, &fleet.setup_without_pauses()).await;
    let mut loads = fleet.database.hold(KEY);
    let before = fleet.calls();
    begin(&workers, KEY, KEY, CALLERS).await;
    let first = loads.next().await;
    fleet.has_called(&before, "evalsha", PROCESSES as u64).await;
    fleet.redis.command(&["FLUSHALL"]);
    let second = loads.next().await;
    first.answer();
    second.answer();
    all_have(&end(&workers, KEY).await, 1);
    assert_eq!(fleet.database.loads(KEY), 2);
    assert!(loads.try_next().is_none());
    fleet.nothing_is_left_behind();
}

/// Every tenth of a second, for ten of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_everything_again_and_again_costs_a_load_each_time() {
    let fleet = Fleet::start().await;
    let workers = fleet.workers(PROCESSES, &fleet.setup()).await;
    let storm = Storm { key: KEY, callers: CALLERS, millis: 10_000, rest_millis: 5 };
    let storms = join_all(workers.iter().map(|worker| worker.storm(storm)));
    let over = AtomicBool::new(false);
    let (fared, flushes) = tokio::join!(
        async {
            let fared = Fared::all(storms.await);
            over.store(true, Ordering::Relaxed);
            fared
        },
        async {
            let mut flushes = 0;
            while !over.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(100)).await;
                fleet.redis.command(&["FLUSHALL", "SYNC"]);
                fleet.redis.command(&["SCRIPT", "FLUSH"]);
                flushes += 1;
            }
            flushes
        }
    );
    let loads = fleet.database.loads(KEY);
    println!("{flushes} flushes, {loads} loads; {}", fared.summary());
    assert_eq!(fared.failed, 0, "{:?}", fared.error);
    assert!(loads <= flushes + 1, "{loads} loads for {flushes} flushes");
    assert!(flushes > 50 && loads > 50, "{flushes} flushes and {loads} loads show nothing");
}
