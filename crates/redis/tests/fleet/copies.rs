//! Copies in processes that are stopped.

use std::time::Duration;

use tokio::time::sleep;

use crate::fleet::{Fleet, all_have};
use crate::messages::Setup;
use crate::process::Worker;

const KEY: u64 = 7;

/// The timeout of the store plus a second: a copy is served for that long after the last message of
/// its connection.
const TIMEOUT_MS: u64 = 250;
const BOUND: Duration = Duration::from_millis(1000 + TIMEOUT_MS);

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_stopped_serves_no_copy_before_its_connection_answers() {
    let (fleet, proxy) = Fleet::proxied().await;
    let far = Setup { url: proxy.url(), near: true, timeout_ms: TIMEOUT_MS, ..fleet.setup() };
    let stopped = Worker::start(far).await;
    let other = Worker::start(fleet.setup()).await;
    all_have(&[other.read(KEY).await], 1);
    for version in 2..5 {
        reads_a_copy(&fleet, &stopped).await;
        stopped.stop();
        // Its connection ends without a word.
        proxy.blackhole();
        assert_eq!(fleet.database.write(KEY), version);
        other.invalidate(KEY).await;
        sleep(BOUND).await;
        stopped.resume();
        all_have(&[stopped.read(KEY).await], version);
        proxy.pass();
        all_have(&[other.read(KEY).await], version);
    }
}

/// Reads until a read sends the server nothing.
async fn reads_a_copy(fleet: &Fleet, worker: &Worker) {
    loop {
        let before = fleet.calls();
        worker.read(KEY).await;
        let calls = fleet.calls().since(&before);
        if calls.of("mget") + calls.of("evalsha") == 0 {
            return;
        }
    }
}
