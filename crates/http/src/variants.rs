//! `Variants`: which variants this process has stored of each target, and which of them make room.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::Key;
use tokio::time::Instant;

use super::kept::VaryIndex;

/// Which variants this process has stored of each target.
///
/// A target has at most [`MOST_VARIANTS`](Self::MOST_VARIANTS) of them, for a client can ask for as
/// many as it likes. One more takes the place of another, in this order:
///
/// 1. one that is stale,
/// 2. one that was never used, the oldest first,
/// 3. one that is used least, where a few uses lately count for more than many long ago.
///
/// Variants that have lost their place are remembered for a while, in a sample of bounded size: one
/// that is asked for again and again comes back with its uses, however many others come between.
#[derive(Default)]
pub(super) struct Variants {
    table: Mutex<VariantTable>,
}

#[derive(Default)]
struct VariantTable {
    targets: HashMap<Key, TargetVariants>,
    /// How many bytes of memory they take in all.
    bytes: usize,
    lost: Lost,
    /// Counts what happens, to tell which was first.
    clock: u64,
    /// Draws lots.
    hasher: RandomState,
}

/// The variants of one target.
struct TargetVariants {
    /// Of its `Vary` index: with another one, none of them is found any more.
    nonce: [u8; 16],
    slots: Vec<VariantSlot>,
}

struct VariantSlot {
    key: Key,
    until: Instant,
    uses: Uses,
    touched: u64,
}

impl Variants {
    /// How many variants are kept of one target.
    pub(super) const MOST_VARIANTS: usize = 64;

    /// Notes that a variant is stored for so long. Says which one has to make room for it.
    pub(super) fn add(
        &self,
        vary_index: &VaryIndex,
        target: &Key,
        key: &Key,
        life: Duration,
    ) -> Option<Key> {
        let now = Instant::now();
        self.table().add(vary_index.nonce(), target, key, now + life.min(A_YEAR), now)
    }

    /// Notes that a variant was given out. A hit waits for nothing: while others use the table, it
    /// is not counted, which leaves those that are used most with most uses.
    pub(super) fn touch(&self, target: &Key, key: &Key) {
        if let Ok(mut table) = self.table.try_lock() {
            table.touch(target, key, Instant::now());
        }
    }

    /// Guards the table only: held for a few operations on it, never across an `.await`.
    fn table(&self) -> MutexGuard<'_, VariantTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VariantTable {
    fn add(
        &mut self,
        nonce: [u8; 16],
        target: &Key,
        key: &Key,
        until: Instant,
        now: Instant,
    ) -> Option<Key> {
        self.clock += 1;
        let touched = self.clock;
        self.make_room(target);
        let variants = self.targets.entry(target.clone()).or_insert_with(|| {
            self.bytes += bytes_of(target);
            TargetVariants::new(nonce)
        });
        if variants.nonce != nonce {
            self.bytes -= variants.bytes();
            *variants = TargetVariants::new(nonce);
        }
        if let Some(slot) = variants.slots.iter_mut().find(|slot| slot.key == *key) {
            slot.until = until;
            return None;
        }
        let is_full = variants.slots.len() >= Variants::MOST_VARIANTS;
        let victim = is_full.then(|| variants.victim(&self.hasher, now)).flatten();
        let gone = victim.map(|place| variants.slots.swap_remove(place));
        // Only where places are scarce does it matter how often a variant was asked for before.
        let uses = if is_full { self.lost.take(key, now) } else { Uses::NONE };
        variants.slots.push(VariantSlot { key: key.clone(), until, uses, touched });
        self.bytes += bytes_of(key);
        gone.map(|slot| {
            self.bytes -= bytes_of(&slot.key);
            self.lost.note(&slot, now);
            slot.key
        })
    }

    fn touch(&mut self, target: &Key, key: &Key, now: Instant) {
        self.clock += 1;
        let slots = self.targets.get_mut(target).map(|target| &mut target.slots);
        if let Some(slot) = slots.into_iter().flatten().find(|slot| slot.key == *key) {
            slot.uses.count(now);
            slot.touched = self.clock;
        }
    }

    /// Forgets other targets while the table takes too much memory. Their stored variants expire, or
    /// their store evicts them.
    fn make_room(&mut self, target: &Key) {
        while self.bytes >= MOST_BYTES {
            let other = self.targets.keys().find(|known| *known != target).cloned();
            let Some(other) = other else { return };
            let forgotten = self.targets.remove(&other);
            let of_variants = forgotten.map_or(0, |forgotten| forgotten.bytes());
            self.bytes -= bytes_of(&other) + of_variants;
        }
    }
}

impl TargetVariants {
    fn new(nonce: [u8; 16]) -> Self {
        Self { nonce, slots: Vec::new() }
    }

    fn bytes(&self) -> usize {
        self.slots.iter().map(|slot| bytes_of(&slot.key)).sum()
    }

    /// The place of the variant that can be spared first.
    fn victim(&self, lots: &RandomState, now: Instant) -> Option<usize> {
        let rank = |slot: &VariantSlot| match slot.uses.lately(now).rank() {
            _ if slot.until <= now => (0, 0, slot.touched),
            0 => (1, 0, slot.touched),
            // Of those that are used alike each has its turn, also where they come in a circle.
            uses => (1, uses, lots.hash_one(slot.touched)),
        };
        (0..self.slots.len()).min_by_key(|place| rank(&self.slots[*place]))
    }
}

/// How often a variant was used, where uses count for half as much after each [`HALF_LIFE`].
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    count: f32,
    at: Option<Instant>,
}

impl Uses {
    const NONE: Self = Self { count: 0.0, at: None };

    fn lately(self, now: Instant) -> Self {
        let Some(at) = self.at else { return self };
        let halves = now.saturating_duration_since(at).as_secs_f32() / HALF_LIFE.as_secs_f32();
        Self { count: self.count * (-halves).exp2(), at: Some(now) }
    }

    fn count(&mut self, now: Instant) {
        let count = self.lately(now).count + 1.0;
        *self = Self { count, at: Some(now) };
    }

    /// In steps of doubling, so that those that are used about as often are alike. Less than a quarter
    /// of a use is none.
    fn rank(self) -> u32 {
        // At most 130: a count is finite, and no less than a quarter.
        if self.count < 0.25 { 0 } else { (self.count.log2() + 2.5) as u32 }
    }
}

/// Variants that have lost their place lately, and how often each was asked for.
///
/// A sample: of more than there is room for, those whose hashes are smallest. So one that is asked
/// for again is either remembered each time or not at all; by which hashes changes with every
/// period, so that each has its turn.
#[derive(Default)]
struct Lost {
    now: Period,
    before: Period,
}

#[derive(Default)]
struct Period {
    hasher: RandomState,
    began: Option<Instant>,
    uses: BTreeMap<u64, Uses>,
}

impl Lost {
    /// Remembers one that makes room.
    fn note(&mut self, slot: &VariantSlot, now: Instant) {
        let began = *self.now.began.get_or_insert(now);
        if now.saturating_duration_since(began) >= PERIOD {
            self.before = std::mem::take(&mut self.now);
            self.now.began = Some(now);
        }
        let hash = self.now.hasher.hash_one(&slot.key);
        self.now.uses.insert(hash, slot.uses);
        if self.now.uses.len() > MOST_LOST {
            self.now.uses.pop_last();
        }
    }

    /// The uses of one that is asked for: this one counts, if it was there before.
    fn take(&mut self, key: &Key, now: Instant) -> Uses {
        let found = [&mut self.now, &mut self.before].into_iter().find_map(|period| {
            let hash = period.hasher.hash_one(key);
            period.uses.remove(&hash)
        });
        found.map_or(Uses::NONE, |mut uses| {
            uses.count(now);
            uses
        })
    }
}

impl fmt::Debug for Variants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table();
        f.debug_struct("Variants")
            .field("targets", &table.targets.len())
            .field("bytes", &table.bytes)
            .finish_non_exhaustive()
    }
}

/// A use counts for half as much after this: what is used once a minute is told from what is not.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// How long a variant that has lost its place is remembered, once and up to twice.
const PERIOD: Duration = Duration::from_secs(60);

/// How many of them are remembered in one period: about 300 KiB.
const MOST_LOST: usize = 4_096;

/// How many bytes of memory the known variants take at most: 16,000 variants with keys of usual
/// length. Names of targets are the clients' choice, so their number alone would bound nothing.
const MOST_BYTES: usize = 4 << 20;

/// About how many bytes a place in the table takes beside the bytes of its key, spare places of
/// the tables included.
const BYTES_OF_A_PLACE: usize = 192;

fn bytes_of(key: &Key) -> usize {
    BYTES_OF_A_PLACE + key.byte_len()
}

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(nth: usize) -> Key {
        Key::of("variant").with(nth)
    }

    fn vary_index() -> VaryIndex {
        VaryIndex::new(&[], A_YEAR)
    }

    fn slots(variants: &Variants) -> usize {
        variants.table().targets.values().map(|target| target.slots.len()).sum()
    }

    /// What the table has counted, and what it holds.
    fn counted_and_held(variants: &Variants) -> (usize, usize) {
        let table = variants.table();
        let held = table.targets.iter().map(|(key, target)| bytes_of(key) + target.bytes());
        (table.bytes, held.sum())
    }

    #[tokio::test(start_paused = true)]
    async fn known_variants_take_no_more_memory_than_there_is_room_for_however_long_their_keys_are()
    {
        for length in [1, 900] {
            let variants = Variants::default();
            let vary_index = vary_index();
            let name = "x".repeat(length);
            for target in 0..512 {
                let target = Key::of("target").with(&name).with(target);
                for nth in 0..Variants::MOST_VARIANTS * 2 {
                    variants.add(&vary_index, &target, &key(nth).with(&name), A_YEAR);
                }
                let (counted, held) = counted_and_held(&variants);
                assert_eq!(counted, held);
                assert!(held < MOST_BYTES + 2 * bytes_of(&target), "{held} bytes");
            }
            assert!(slots(&variants) > 3_000, "{variants:?}");
            assert!(variants.table().lost.now.uses.len() <= MOST_LOST);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_variant_makes_room_for_each_that_comes_once_there_are_as_many_as_may_be() {
        let (variants, vary_index, target) = (Variants::default(), vary_index(), Key::of("target"));
        for nth in 0..Variants::MOST_VARIANTS {
            assert_eq!(variants.add(&vary_index, &target, &key(nth), A_YEAR), None);
        }
        assert_eq!(variants.add(&vary_index, &target, &key(7), A_YEAR), None, "it is there");
        variants.touch(&target, &key(0));
        assert_eq!(variants.add(&vary_index, &target, &key(100), A_YEAR), Some(key(1)));
        assert_eq!(variants.add(&vary_index, &target, &key(101), A_YEAR), Some(key(2)));
    }

    /// The others are not found any more.
    #[tokio::test(start_paused = true)]
    async fn a_new_spec_begins_without_variants() {
        let (variants, target) = (Variants::default(), Key::of("target"));
        for vary_index in [vary_index(), vary_index()] {
            for nth in 0..Variants::MOST_VARIANTS {
                assert_eq!(variants.add(&vary_index, &target, &key(nth), A_YEAR), None);
            }
            assert_eq!(slots(&variants), Variants::MOST_VARIANTS);
        }
    }

    /// At a hundred a second, of which none comes again, for as long as it takes.
    #[tokio::test(start_paused = true)]
    async fn a_variant_that_is_asked_for_every_second_gets_in_at_any_rate() {
        let (variants, vary_index, target) = (Variants::default(), vary_index(), Key::of("target"));
        let real = Key::of("variant").with("real");
        let mut hits = 0;
        for second in 0..3_600 {
            let is_there = variants
                .table()
                .targets
                .get(&target)
                .is_some_and(|target| target.slots.iter().any(|slot| slot.key == real));
            match is_there {
                true => variants.touch(&target, &real),
                false => _ = variants.add(&vary_index, &target, &real, A_YEAR),
            }
            hits += usize::from(is_there);
            for nth in 0..100 {
                variants.add(&vary_index, &target, &key(second * 100 + nth), A_YEAR);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(hits > 1_800, "{hits} of 3,600");
    }
}
