//! What ended a wait for another process: a push, a pause, or a pause though there was a push.

use bellwether::stats::WakeStats;
use bellwether::{MemoryStore, Wait};
use bellwether_testkit::caches::{MINUTE, SECOND, answers, burst, commit, idle, layer, lease};
use bellwether_testkit::loaders::Loader;
use tokio::time::sleep;
use tower::Layer;

use crate::support::store::{Faulty, losing_push, remote};

/// What ended the waits of a process for a load of three seconds in another one.
async fn wakes_of_a_long_load(process: impl FnOnce(&MemoryStore) -> Faulty) -> WakeStats {
    let memory = MemoryStore::new(10);
    let other = lease(&memory, 1, MINUTE).await;
    let cached =
        layer(process(&memory)).wait(Wait::at_most(MINUTE)).build().unwrap().layer(Loader::new());
    let asked = burst(&cached, 1, 10);
    idle().await;
    sleep(SECOND * 3).await;
    commit(&memory, other, "42").await;
    assert_eq!(answers(asked).await, vec![42; 10]);
    cached.stats().wakes
}

#[tokio::test(start_paused = true)]
async fn pauses_during_a_long_load_are_no_missed_pushes() {
    let wakes = wakes_of_a_long_load(remote).await;
    assert_eq!((wakes.push, wakes.missed_push), (1, 0), "{wakes:?}");
    assert!(wakes.pause >= 6, "{wakes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_push_is_missed_once_however_long_the_load_takes() {
    let wakes = wakes_of_a_long_load(|memory| losing_push(remote(memory))).await;
    assert_eq!((wakes.push, wakes.missed_push), (0, 1), "{wakes:?}");
    assert!(wakes.pause >= 6, "{wakes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_reports_changes_misses_none() {
    let wakes = wakes_of_a_long_load(|memory| remote(memory).without_push()).await;
    assert_eq!((wakes.push, wakes.missed_push), (0, 0), "{wakes:?}");
}

/// Its holder has died, so nothing was reported.
#[tokio::test(start_paused = true)]
async fn a_lease_that_has_lapsed_is_no_missed_push() {
    let memory = MemoryStore::new(10);
    let _dead = lease(&memory, 1, SECOND).await;
    let cached = layer(losing_push(remote(&memory))).build().unwrap().layer(Loader::new());
    answers(burst(&cached, 1, 10)).await;
    let stats = cached.stats();
    assert_eq!((stats.wakes.missed_push, stats.requests.led_stored), (0, 1), "{:?}", stats.wakes);
    assert!(stats.wakes.pause > 0, "{:?}", stats.wakes);
}
