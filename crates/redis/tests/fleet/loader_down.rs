//! A failing loader is protected, too.

use std::time::Duration;

use futures_util::future::join_all;

use crate::fared::Fared;
use crate::fleet::{Fleet, SLACK};
use crate::messages::{Setup, Storm};
use crate::process::Worker;

const PROCESSES: usize = 4;
const KEY: u64 = 7;
const STORM: Storm = Storm { key: KEY, callers: 250, millis: 10_000, rest_millis: 250 };

/// How long the failing query takes.
const QUERY: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_loader_is_probed_once_per_interval_and_all_processes_learn_of_it_at_once() {
    let fleet = Fleet::start().await;
    let workers = fleet.workers(PROCESSES, &fleet.setup()).await;
    fleet.database.fails_after(QUERY);
    let fared = storm(&workers).await;
    println!("{}; loads {:?}", fared.summary(), fleet.database.times(KEY));
    assert_eq!(fared.failed as usize, fared.calls());
    each_probe_waits_for_its_interval(&fleet.database.times(KEY));
    let soon = QUERY * 2 + Duration::from_millis(50) + SLACK;
    assert!(fared.slower_than(990) < soon, "there is a convoy");
    fleet.nothing_is_left_behind();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_loader_fails_no_caller_that_has_a_stale_answer() {
    let fleet = Fleet::start().await;
    let setup = Setup { ttl_ms: 200, stale_if_error_ms: 600_000, ..fleet.setup() };
    let workers = fleet.workers(PROCESSES, &setup).await;
    workers[0].read(KEY).await;
    fleet.database.fails_after(QUERY);
    let before = fleet.database.times(KEY).len();
    let fared = storm(&workers).await;
    println!("{}; loads {:?}", fared.summary(), fleet.database.times(KEY));
    assert_eq!(fared.failed, 0, "{:?}", fared.error);
    assert!(fared.stale > 1_000, "only {} stale answers", fared.stale);
    each_probe_waits_for_its_interval(&fleet.database.times(KEY)[before..]);
    let soon = QUERY * 2 + Duration::from_millis(50) + SLACK;
    assert!(fared.slower_than(990) < soon, "there is a convoy");
}

async fn storm(workers: &[Worker]) -> Fared {
    Fared::all(join_all(workers.iter().map(|worker| worker.storm(STORM))).await)
}

/// After two loads the pauses are 100, 200, 400, 800 ms and then a second, and the storm lasts 10: by
/// the clock of the server, which may tick a little otherwise than ours.
fn each_probe_waits_for_its_interval(loads: &[Duration]) {
    assert!((6..=15).contains(&loads.len()), "loads at {loads:?}");
    for (number, pair) in loads.windows(2).skip(1).enumerate() {
        let pause = Duration::from_millis((100 << number.min(4)).min(1_000));
        assert!(pair[1] - pair[0] > pause.mul_f64(0.95), "loads at {loads:?}");
    }
}
