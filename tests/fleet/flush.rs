//! A server that forgets everything, in the middle of a burst, fails nobody.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fleet::{Fleet, all_have, begin, end};

const PROCESSES: usize = 4;
const CALLERS: usize = 25;
const KEY: u64 = 5;

/// The lease is gone with everything else, which wakes the losers: one of them leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_lease_is_taken_over_at_once() {
    let fleet = Fleet::start().await;
    let workers = fleet.workers(PROCESSES, &fleet.setup_without_pauses()).await;
    let (mut loads, before) = (fleet.database.hold(KEY), fleet.calls());
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

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_scripts_are_told_again() {
    let fleet = Fleet::start().await;
    let workers = fleet.workers(PROCESSES, &fleet.setup_without_pauses()).await;
    let mut loads = fleet.database.hold(KEY);
    fleet.redis.command(&["SCRIPT", "FLUSH"]);
    let before = fleet.calls();
    begin(&workers, KEY, KEY, CALLERS).await;
    let load = loads.next().await;
    fleet.has_called(&before, "evalsha", PROCESSES as u64).await;
    fleet.redis.command(&["SCRIPT", "FLUSH"]);
    load.answer();
    all_have(&end(&workers, KEY).await, 1);
    assert_eq!(fleet.database.loads(KEY), 1);
    let calls = fleet.calls().since(&before);
    // To ask, to store, and to ask again.
    assert!(calls.of("eval") >= 3, "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_forgotten_whenever_nobody_gets_an_error() {
    let fleet = Fleet::start().await;
    let workers = fleet.workers(PROCESSES, &fleet.setup()).await;
    let (fleet, over) = (&fleet, &AtomicBool::new(false));
    let bursts = async {
        for key in 0..BURSTS {
            begin(&workers, key, key, CALLERS).await;
            all_have(&end(&workers, key).await, 1);
        }
        over.store(true, Ordering::Relaxed);
    };
    let forgetting = async {
        while !over.load(Ordering::Relaxed) {
            for forget in [["FLUSHALL", "SYNC"], ["SCRIPT", "FLUSH"]] {
                fleet.redis.command(&forget);
                tokio::time::sleep(Duration::from_micros(700)).await;
            }
        }
    };
    tokio::join!(bursts, forgetting);
    let loads = fleet.database.all_loads();
    println!("{BURSTS} bursts in {PROCESSES} processes, always flushed: {loads} loads");
}

const BURSTS: u64 = 100;
