//! `PrivateKeys`: keys whose last answers in this process were each for one caller.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::Digest;

/// Keys whose last answers in this process were each for one caller, and how many of them there
/// were in a row.
///
/// Callers of such a key need not wait for each other: they may bypass the coalescing, at most as
/// many at once as there were such answers in a row, and none after a single one. A target whose
/// answers are all private gets there with its first burst. A caller that can provoke private
/// answers for a key that is shared lets past at most as many loads as it has caused itself, and
/// the first answer that may be shared ends it.
#[derive(Default)]
pub struct PrivateKeys(Mutex<Table>);

#[derive(Default)]
struct Table {
    keys: HashMap<Digest, Record>,
    /// When the table has grown to this, the records that are over are removed: as many as were
    /// added since the last time, so it costs each of them a constant share.
    sweep_at: usize,
}

struct Record {
    in_a_row: usize,
    /// How many of the last answers in a row were still coming when they had to be complete.
    slow: u32,
    /// How many callers bypass right now.
    bypassing: Arc<AtomicUsize>,
    until: Instant,
}

/// Leave for one caller to load for itself, until its answer is known.
#[derive(Debug)]
pub struct BypassPermit(Arc<AtomicUsize>);

impl Drop for BypassPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PrivateKeys {
    /// An answer was for one caller only. This is known for a while.
    pub fn note_private(&self, key: Digest, window: Duration) {
        self.table().note(key, window).slow = 0;
    }

    /// The same, and it was for one caller only because it took too long to be complete.
    pub fn note_slow(&self, key: Digest, window: Duration) {
        let mut table = self.table();
        let record = table.note(key, window);
        record.slow = record.slow.saturating_add(1);
    }

    /// An answer may be shared: callers wait for each other again.
    pub fn note_shared(&self, key: &Digest) {
        self.table().keys.remove(key);
    }

    /// Leave to load without waiting for the load of another caller.
    pub fn bypass(&self, key: &Digest) -> Option<BypassPermit> {
        let table = self.table();
        let record = table.live(key).filter(|record| record.in_a_row >= ENOUGH)?;
        if record.bypassing.fetch_add(1, Ordering::Relaxed) < record.in_a_row {
            return Some(BypassPermit(Arc::clone(&record.bypassing)));
        }
        record.bypassing.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// How many answers in a row took too long to be complete.
    pub fn slow_in_a_row(&self, key: &Digest) -> u32 {
        self.table().live(key).map_or(0, |record| record.slow)
    }

    /// Guards the table only: held for a map operation, never across an `.await`.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn live(&self, key: &Digest) -> Option<&Record> {
        self.keys.get(key).filter(|record| Instant::now() < record.until)
    }

    fn note(&mut self, key: Digest, window: Duration) -> &mut Record {
        let now = Instant::now();
        if self.keys.len() >= self.sweep_at && !self.keys.contains_key(&key) {
            self.sweep(now);
        }
        let record = self.keys.entry(key).or_insert_with(|| Record::new(now));
        if record.until <= now {
            *record = Record::new(now);
        }
        record.in_a_row = record.in_a_row.saturating_add(1);
        record.until = now + window;
        record
    }

    fn sweep(&mut self, now: Instant) {
        self.keys.retain(|_, record| now < record.until);
        if self.keys.len() >= MOST {
            self.keys.clear();
        }
        self.sweep_at = (self.keys.len() * 2).clamp(FIRST_SWEEP, MOST);
    }
}

impl Record {
    fn new(now: Instant) -> Self {
        Self { in_a_row: 0, slow: 0, bypassing: Arc::default(), until: now }
    }
}

impl fmt::Debug for PrivateKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKeys").field("keys", &self.table().keys.len()).finish()
    }
}

/// After how many answers in a row callers bypass: one says nothing of the answers to others.
const ENOUGH: usize = 2;

const FIRST_SWEEP: usize = 64;

/// How many keys are known at most. Where there are more they are forgotten, and found out again
/// by a few loads each.
const MOST: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    const WINDOW: Duration = Duration::from_secs(10);

    fn digest(nth: usize) -> Digest {
        Key::of("target").with(nth).digest()
    }

    fn len(private_keys: &PrivateKeys) -> usize {
        private_keys.table().keys.len()
    }

    fn bypassing(private_keys: &PrivateKeys) -> Vec<BypassPermit> {
        std::iter::from_fn(|| private_keys.bypass(&digest(0))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_bypass_at_once_as_there_were_private_answers_but_none_after_one() {
        let private_keys = PrivateKeys::default();
        for (answers, expected) in [(1, 0), (2, 2), (3, 3)] {
            private_keys.note_private(digest(0), WINDOW);
            let all = bypassing(&private_keys);
            assert_eq!(all.len(), expected, "after {answers} answers");
            drop(all);
            assert_eq!(bypassing(&private_keys).len(), expected, "those before have left");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shared_answer_or_the_end_of_the_window_ends_it() {
        let private_keys = PrivateKeys::default();
        let note = || (0..5).for_each(|_| private_keys.note_private(digest(0), WINDOW));
        note();
        private_keys.note_shared(&digest(0));
        assert!(bypassing(&private_keys).is_empty());
        note();
        tokio::time::advance(WINDOW).await;
        assert!(bypassing(&private_keys).is_empty());
        private_keys.note_private(digest(0), WINDOW);
        assert!(bypassing(&private_keys).is_empty(), "they are counted from the beginning");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_keys_are_known_than_there_is_room_for() {
        let private_keys = PrivateKeys::default();
        for nth in 0..MOST * 2 {
            private_keys.note_private(digest(nth), WINDOW);
            assert!(len(&private_keys) <= MOST);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_whose_window_is_over_take_no_room_for_long() {
        let private_keys = PrivateKeys::default();
        for nth in 0..FIRST_SWEEP * 100 {
            private_keys.note_private(digest(nth), Duration::from_millis(1));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(len(&private_keys) <= FIRST_SWEEP, "{private_keys:?}");
    }
}
