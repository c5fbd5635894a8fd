//! What failed in this process a moment ago, with the loader's own error.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::core::Landing;
use crate::key::Digest;

/// Failures of this process, each for its window.
///
/// The store remembers failures for the fleet, as words at best. This remembers them as they were,
/// for those who ask here; and where the store is down, it is all that is remembered.
#[derive(Default)]
pub(crate) struct Recall(Mutex<Table>);

#[derive(Default)]
struct Table {
    failed: HashMap<Digest, Failed>,
    /// When it has grown to this, those that are over are removed: as many as were added since the
    /// last time, so it costs each of them a constant share.
    sweep_at: usize,
}

struct Failed {
    landing: Landing,
    times: u32,
    until: Instant,
    /// Until when it counts for the next one in a row.
    known_until: Instant,
}

impl Recall {
    /// Remembers a failure for a window.
    pub(crate) fn note(&self, key: Digest, landing: Landing, times: u32, window: Duration) {
        let now = Instant::now();
        let until = now + window;
        let failed = Failed { landing, times, until, known_until: until + window };
        let mut over = Vec::new();
        let earlier = {
            let mut table = self.table();
            if table.failed.len() >= table.sweep_at {
                over.extend(table.failed.extract_if(|_, failed| failed.known_until <= now));
                table.sweep_at = (table.failed.len() * 2).max(FIRST_SWEEP);
            }
            table.failed.insert(key, failed)
        };
        // After the lock: they may be of anybody's type.
        drop((over, earlier));
    }

    /// What failed, if its window is not over, and what is left of that.
    pub(crate) fn of(&self, key: &Digest) -> Option<(Landing, Duration)> {
        let table = self.table();
        let failed = table.failed.get(key)?;
        let left = failed.until.checked_duration_since(Instant::now())?;
        Some((failed.landing.clone(), left))
    }

    /// How many times in a row it has failed, as far as that is known.
    pub(crate) fn times(&self, key: &Digest) -> u32 {
        let table = self.table();
        let failed = table.failed.get(key).filter(|failed| failed.known_until > Instant::now());
        failed.map_or(0, |failed| failed.times)
    }

    /// It has not failed any more.
    pub(crate) fn forget(&self, key: &Digest) {
        let earlier = self.table().failed.remove(key);
        drop(earlier);
    }

    /// Guards the table only: held for a map operation, never across an `.await`.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recall").field("failed", &self.table().failed.len()).finish()
    }
}

const FIRST_SWEEP: usize = 64;
