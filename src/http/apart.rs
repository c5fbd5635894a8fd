//! `Apart`: targets for which requests with credentials do not wait for each other.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::mode::Judgement;
use super::rules::Why;
use crate::key::{Digest, Key};

/// Targets whose answers to requests with credentials are, by the last of them, for one caller
/// each. Whoever has credentials is answered by what is kept for such a target, or goes to the
/// origin alone. Requests without are not concerned: what they are given may well be kept.
#[derive(Default)]
pub(super) struct Apart(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Until when.
    targets: HashMap<Digest, Instant>,
    /// When it has grown to this, those that are over are removed: as many as were added since the
    /// last time, so it costs each of them a constant share.
    sweep_at: usize,
}

impl Apart {
    /// Hears what became of the answer to a request with credentials. That it is for others too
    /// ends it; a refusal or a failure says nothing of the answers to others.
    pub(super) fn hear(
        &self,
        target: &Key,
        status: StatusCode,
        judgement: &Judgement,
        window: Duration,
    ) {
        match judgement {
            Judgement::Private(Why::Authorization | Why::Cookie)
                if status.is_success() || status.is_redirection() =>
            {
                self.table().note(target.digest(), window);
            }
            Judgement::Keep(_) => {
                self.table().targets.remove(&target.digest());
            }
            _ => {}
        }
    }

    /// Whether requests with credentials do not wait for each other.
    pub(super) fn has(&self, target: &Key) -> bool {
        let until = self.table().targets.get(&target.digest()).copied();
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Guards the table only: held for a map operation, never across an `.await`.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn note(&mut self, target: Digest, window: Duration) {
        let now = Instant::now();
        if self.targets.len() >= self.sweep_at {
            self.targets.retain(|_, until| now < *until);
            if self.targets.len() >= MOST {
                self.targets.clear();
            }
            self.sweep_at = (self.targets.len() * 2).clamp(FIRST_SWEEP, MOST);
        }
        self.targets.insert(target, now + window);
    }
}

impl fmt::Debug for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apart").field("targets", &self.table().targets.len()).finish()
    }
}

const FIRST_SWEEP: usize = 64;

/// How many targets are known at most. Where there are more they are forgotten, and found out
/// again by one load each.
const MOST: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(apart: &Apart, target: usize, window: Duration) {
        let private = Judgement::Private(Why::Authorization);
        apart.hear(&Key::of("target").with(target), StatusCode::OK, &private, window);
    }

    fn len(apart: &Apart) -> usize {
        apart.table().targets.len()
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_targets_are_known_than_there_is_room_for() {
        let apart = Apart::default();
        for target in 0..MOST * 2 {
            hear(&apart, target, Duration::from_secs(10));
            assert!(len(&apart) <= MOST);
        }
        assert!(apart.has(&Key::of("target").with(MOST * 2 - 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn targets_whose_time_is_over_take_no_room_for_long() {
        let apart = Apart::default();
        for target in 0..FIRST_SWEEP * 100 {
            hear(&apart, target, Duration::from_millis(1));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(len(&apart) <= FIRST_SWEEP, "{apart:?}");
    }
}
