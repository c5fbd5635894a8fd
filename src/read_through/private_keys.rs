//! `PrivateKeys`: keys whose last answers in this process were private.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::Digest;
use crate::locked::locked;

/// Keys whose last answers in this process were private, and how many such answers came in a row.
///
/// Callers of such a key may bypass coalescing: at most as many at once as there were private
/// answers in a row, and none after a single one. A key whose answers are all private reaches this
/// with its first burst. A caller that provokes private answers for a shared key lets at most as
/// many loads bypass as it has caused itself. The first answer that can be shared ends it. Locked
/// for a map operation, never across an `.await`.
#[derive(Default)]
pub struct PrivateKeys(Mutex<PrivateKeyTable>);

#[derive(Default)]
struct PrivateKeyTable {
    keys: HashMap<Digest, PrivateKeyRecord>,
    /// At this size the table removes its expired records. It doubles between two sweeps, so a
    /// sweep costs each added key a constant share.
    sweep_at: usize,
}

struct PrivateKeyRecord {
    /// How many private answers came in a row.
    in_a_row: usize,
    /// How many of the last answers in a row were incomplete at their time limit.
    slow: u32,
    /// How many callers bypass right now.
    bypassing: Arc<AtomicUsize>,
    /// When the record expires.
    until: Instant,
}

/// A permit of one caller to load individually. Hold it until the answer is known.
#[derive(Debug)]
pub struct BypassPermit(Arc<AtomicUsize>);

impl Drop for BypassPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PrivateKeys {
    /// Notes a private answer, which is remembered for as long as it `lasts`.
    pub fn note_private(&self, key: Digest, lasts: Duration) {
        locked(&self.0).note(key, lasts).slow = 0;
    }

    /// Notes an answer that is private because it was not complete in time.
    pub fn note_slow(&self, key: Digest, lasts: Duration) {
        let mut table = locked(&self.0);
        let record = table.note(key, lasts);
        record.slow = record.slow.saturating_add(1);
    }

    /// Notes an answer that can be shared: callers are coalesced again.
    pub fn note_shared(&self, key: &Digest) {
        locked(&self.0).keys.remove(key);
    }

    /// A permit to load without waiting for another caller, if the key has enough private answers.
    pub fn bypass(&self, key: &Digest) -> Option<BypassPermit> {
        let table = locked(&self.0);
        let record = table.live(key).filter(|record| record.in_a_row >= ENOUGH)?;
        if record.bypassing.fetch_add(1, Ordering::Relaxed) < record.in_a_row {
            return Some(BypassPermit(Arc::clone(&record.bypassing)));
        }
        record.bypassing.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// How many answers in a row were not complete in time.
    pub fn slow_in_a_row(&self, key: &Digest) -> u32 {
        locked(&self.0).live(key).map_or(0, |record| record.slow)
    }
}

impl PrivateKeyTable {
    fn live(&self, key: &Digest) -> Option<&PrivateKeyRecord> {
        self.keys.get(key).filter(|record| Instant::now() < record.until)
    }

    fn note(&mut self, key: Digest, lasts: Duration) -> &mut PrivateKeyRecord {
        let now = Instant::now();
        if self.keys.len() >= self.sweep_at && !self.keys.contains_key(&key) {
            self.sweep(now);
        }
        let record = self.keys.entry(key).or_insert_with(|| PrivateKeyRecord::new(now));
        if record.until <= now {
            *record = PrivateKeyRecord::new(now);
        }
        record.in_a_row = record.in_a_row.saturating_add(1);
        record.until = now + lasts;
        record
    }

    fn sweep(&mut self, now: Instant) {
        self.keys.retain(|_, record| now < record.until);
        if self.keys.len() >= MAX_KEYS {
            self.keys.clear();
        }
        self.sweep_at = (self.keys.len() * 2).clamp(FIRST_SWEEP, MAX_KEYS);
    }
}

impl PrivateKeyRecord {
    fn new(now: Instant) -> Self {
        Self { in_a_row: 0, slow: 0, bypassing: Arc::default(), until: now }
    }
}

impl fmt::Debug for PrivateKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKeys").field("keys", &locked(&self.0).keys.len()).finish()
    }
}

/// After how many private answers in a row callers bypass. One may be an exception.
const ENOUGH: usize = 2;

const FIRST_SWEEP: usize = 64;

/// How many keys are remembered at most. Beyond that all are forgotten, and found again by a few
/// loads each.
const MAX_KEYS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    const WINDOW: Duration = Duration::from_secs(10);

    fn digest(nth: usize) -> Digest {
        Key::of("target").with(nth).digest()
    }

    fn len(private_keys: &PrivateKeys) -> usize {
        locked(&private_keys.0).keys.len()
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
            assert_eq!(bypassing(&private_keys).len(), expected, "the permits were given back");
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
    async fn the_number_of_keys_is_bounded() {
        let private_keys = PrivateKeys::default();
        for nth in 0..MAX_KEYS * 2 {
            private_keys.note_private(digest(nth), WINDOW);
            assert!(len(&private_keys) <= MAX_KEYS);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn expired_keys_are_removed() {
        let private_keys = PrivateKeys::default();
        for nth in 0..FIRST_SWEEP * 100 {
            private_keys.note_private(digest(nth), Duration::from_millis(1));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(len(&private_keys) <= FIRST_SWEEP, "{private_keys:?}");
    }
}
