//! A key that a process releases is free for its next attempt.

use std::sync::Arc;
use std::time::Duration;

use super::subject::LockSubject;
use bellwether_test::suite::{Checked, Deviation, ensure};

pub(super) async fn what_was_dropped_is_free_for_the_next_attempt_of_this_process(
    on: Arc<LockSubject>,
) -> Checked {
    let locks = on.locks();
    let key = on.key();
    for round in 0..ROUNDS {
        match locks.try_lock(&key).await {
            Ok(held) => drop(held),
            Err(error) => {
                return Err(Deviation::new(format!("attempt {round} of {ROUNDS}: {error}")));
            }
        }
    }
    let kept = locks.shutdown(CLOSING).await;
    ensure!(kept == 0, "{kept} were still held after {CLOSING:?}");
    Ok(())
}

/// The other process does not know of a release that is under way.
pub(super) async fn what_ran_under_it_has_released_it_when_it_returns(
    on: Arc<LockSubject>,
) -> Checked {
    let processes = [on.locks(), on.locks()];
    let key = on.key();
    for round in 0..ROUNDS {
        let ran = processes[round % 2].run(&key, async { round }).await;
        ensure!(ran.is_ok(), "run {round} of {ROUNDS}: {ran:?}");
    }
    Ok(())
}

const ROUNDS: usize = 100;

/// Longer than any release takes.
const CLOSING: Duration = Duration::from_secs(10);
