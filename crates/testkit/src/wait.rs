//! Waiting for what cannot be awaited.

use std::thread;
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// How long anything may take that a test waits for. Nothing that works comes near it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two checks.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until something holds; panics with what it is if it takes longer than [`PATIENCE`].
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(PAUSE).await;
    }
}

/// Waits until something holds; panics if it takes longer than that.
pub async fn within(limit: Duration, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "not within {limit:?}");
        sleep(PAUSE).await;
    }
}

/// As [`until`], outside of a runtime, and no longer than that.
pub fn block_until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(PAUSE);
    }
}
