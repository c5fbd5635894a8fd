//! Waiting for what cannot be awaited.

use std::thread;
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// The limit of all that a test waits for. Nothing that works comes near it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than any lease and any load: a test that waits for it waits for ever. A paused clock moves
/// on to it when nothing else can happen.
pub const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

/// The time between two checks.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until `holds` returns true. Panics with `what` after [`PATIENCE`].
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(PAUSE).await;
    }
}

/// Waits until `holds` returns true. Panics after `limit`.
pub async fn within(limit: Duration, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "not within {limit:?}");
        sleep(PAUSE).await;
    }
}

/// Like [`until`], but without a runtime and with a limit of its own.
pub fn block_until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(PAUSE);
    }
}
