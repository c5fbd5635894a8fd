//! `Variants`: which variants this process has stored of each target, and which of them are evicted.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use bellwether::Key;
use bellwether::adapter::locked;
use tokio::time::Instant;

use super::vary_index::VaryIndex;

/// Which variants this process has stored of each target.
///
/// A target has at most [`MOST_VARIANTS`](Self::MOST_VARIANTS) variants, since clients could request
/// any number of them. One more evicts another, in this order:
///
/// 1. one that is stale,
/// 2. one that was requested once, the oldest first,
/// 3. the least requested one, where recent requests count for more than old ones.
///
/// Requests are [counted](UseCounts) for evicted variants, too. So a variant that is requested regularly
/// returns with its count, whatever else is requested.
#[derive(Default)]
pub(super) struct Variants {
    table: Mutex<VariantTable>,
}

#[derive(Default)]
struct VariantTable {
    targets: HashMap<Key, TargetVariants>,
    /// How many bytes of memory the targets and their variants take together.
    bytes: usize,
    uses: UseCounts,
    /// Counts the variants that were added, to order them.
    added: u64,
}

/// The variants of one target.
struct TargetVariants {
    /// The nonce of its `Vary` index. With another index, the old variants are not found.
    nonce: [u8; 16],
    slots: Vec<VariantSlot>,
}

struct VariantSlot {
    key: Key,
    until: Instant,
    added: u64,
}

impl Variants {
    /// How many variants of one target are stored.
    pub(super) const MOST_VARIANTS: usize = 64;

    /// Notes that a variant is stored for `life`. Returns the key of the variant that it evicts.
    pub(super) fn add(
        &self,
        vary_index: &VaryIndex,
        target: &Key,
        key: &Key,
        life: Duration,
    ) -> Option<Key> {
        locked(&self.table).add(vary_index.nonce, target, key, life.min(A_YEAR))
    }

    /// Counts a use of a variant. A hit never waits: while another thread holds the table, the use
    /// is not counted. The most used variants still have the most uses.
    pub(super) fn touch(&self, key: &Key) {
        if let Ok(mut table) = self.table.try_lock() {
            table.uses.count(key, Instant::now());
        }
    }
}

impl VariantTable {
    fn add(&mut self, nonce: [u8; 16], target: &Key, key: &Key, life: Duration) -> Option<Key> {
        let now = Instant::now();
        self.added += 1;
        let slot = VariantSlot { key: key.clone(), until: now + life, added: self.added };
        self.uses.count(key, now);
        self.free_memory(target);
        let variants = self.targets.entry(target.clone()).or_insert_with(|| {
            self.bytes += bytes_of(target);
            TargetVariants::new(nonce)
        });
        if variants.nonce != nonce {
            self.bytes -= variants.bytes();
            *variants = TargetVariants::new(nonce);
        }
        if let Some(known) = variants.slots.iter_mut().find(|known| known.key == *key) {
            known.until = slot.until;
            return None;
        }
        let is_full = variants.slots.len() >= Variants::MOST_VARIANTS;
        let victim = is_full.then(|| variants.victim(&self.uses, now)).flatten();
        let evicted = victim.map(|index| variants.slots.swap_remove(index).key);
        variants.slots.push(slot);
        self.bytes += bytes_of(key);
        self.bytes -= evicted.as_ref().map_or(0, bytes_of);
        evicted
    }

    /// Forgets other targets while the table takes too much memory. Their stored variants expire, or
    /// their store evicts them.
    fn free_memory(&mut self, target: &Key) {
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

    /// The index of the variant to evict first.
    fn victim(&self, uses: &UseCounts, now: Instant) -> Option<usize> {
        let rank = |slot: &VariantSlot| match uses.of(&slot.key) {
            _ if slot.until <= now => (0, 0, slot.added),
            0..=A_FIRST => (1, 0, slot.added),
            // In steps of doubling, so that variants with similar counts rank equal. Among these the victim
            // is random, so that requests in a cycle do not always evict the variant that is requested
            // next.
            count => (1, count.ilog2(), uses.hasher.hash_one((slot.added, now))),
        };
        (0..self.slots.len()).min_by_key(|index| rank(&self.slots[*index]))
    }
}

/// How often variants were requested lately, stored and evicted ones: a count-min sketch, as in TinyLFU.
///
/// Variants share counters, so a count may be too high. It is too low for none.
struct UseCounts {
    /// [`ROWS`] rows, of which each variant has one counter each.
    counts: Vec<u16>,
    hasher: RandomState,
    /// When the counts were halved.
    halved: Option<Instant>,
}

impl UseCounts {
    fn count(&mut self, key: &Key, now: Instant) {
        let halved = *self.halved.get_or_insert(now);
        let halves = now.saturating_duration_since(halved).as_secs() / HALF_LIFE.as_secs();
        if halves > 0 {
            let left = |count: u16| count.checked_shr(halves as u32).unwrap_or_default();
            self.counts.iter_mut().for_each(|count| *count = left(*count));
            self.halved = Some(now);
        }
        let earlier = self.of(key);
        let count = earlier.saturating_add(if earlier == 0 { A_FIRST } else { A_USE });
        for counter in self.counters(key) {
            self.counts[counter] = self.counts[counter].max(count);
        }
    }

    fn of(&self, key: &Key) -> u16 {
        self.counters(key).map(|counter| self.counts[counter]).into_iter().fold(u16::MAX, u16::min)
    }

    fn counters(&self, key: &Key) -> [usize; ROWS] {
        let hash = self.hasher.hash_one(key);
        std::array::from_fn(|row| row * COUNTERS + (hash >> (16 * row)) as usize % COUNTERS)
    }
}

impl Default for UseCounts {
    fn default() -> Self {
        Self { counts: vec![0; ROWS * COUNTERS], hasher: RandomState::new(), halved: None }
    }
}

const ROWS: usize = 4;

/// How many counters a row has: 32 KiB in all rows.
const COUNTERS: usize = 4_096;

/// How much the first request for a variant counts, which loads it.
const A_FIRST: u16 = 1;

/// How much any later request counts. So one per minute is visible.
const A_USE: u16 = 4;

/// A request counts for half as much after this time.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// How many bytes of memory the table takes at most, enough for 16,000 variants with keys of usual
/// length. Clients choose the length of targets, so a bound on their number would not bound memory.
const MOST_BYTES: usize = 4 << 20;

/// About how many bytes a slot takes beside its key, with the unused capacity of the tables.
const BYTES_OF_A_SLOT: usize = 192;

fn bytes_of(key: &Key) -> usize {
    BYTES_OF_A_SLOT + key.byte_len()
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
        locked(&variants.table).targets.values().map(|target| target.slots.len()).sum()
    }

    /// The bytes that the table has counted, and those that it holds.
    fn counted_and_held(variants: &Variants) -> (usize, usize) {
        let table = locked(&variants.table);
        let held = table.targets.iter().map(|(key, target)| bytes_of(key) + target.bytes());
        (table.bytes, held.sum())
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_of_variants_has_a_bound_in_bytes_for_keys_of_any_length() {
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
            assert!(slots(&variants) > 3_000, "{}", slots(&variants));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_target_evicts_one_variant_for_each_new_one() {
        let variants = Variants::default();
        let vary_index = vary_index();
        let target = Key::of("target");
        for nth in 0..Variants::MOST_VARIANTS {
            assert_eq!(variants.add(&vary_index, &target, &key(nth), A_YEAR), None);
        }
        assert_eq!(variants.add(&vary_index, &target, &key(7), A_YEAR), None, "it is there");
        variants.touch(&key(0));
        assert_eq!(variants.add(&vary_index, &target, &key(100), A_YEAR), Some(key(1)));
        assert_eq!(variants.add(&vary_index, &target, &key(101), A_YEAR), Some(key(2)));
    }

    /// The variants of the old index are not found.
    #[tokio::test(start_paused = true)]
    async fn a_new_vary_index_begins_without_variants() {
        let variants = Variants::default();
        let target = Key::of("target");
        for vary_index in [vary_index(), vary_index()] {
            for nth in 0..Variants::MOST_VARIANTS {
                assert_eq!(variants.add(&vary_index, &target, &key(nth), A_YEAR), None);
            }
            assert_eq!(slots(&variants), Variants::MOST_VARIANTS);
        }
    }

    /// A hundred other variants per second are requested once each.
    #[tokio::test(start_paused = true)]
    async fn a_variant_that_is_requested_every_second_stays_among_many_that_are_requested_once() {
        let variants = Variants::default();
        let vary_index = vary_index();
        let target = Key::of("target");
        let real = Key::of("variant").with("real");
        let mut hits = 0;
        for second in 0..3_600 {
            let is_there = locked(&variants.table)
                .targets
                .get(&target)
                .is_some_and(|target| target.slots.iter().any(|slot| slot.key == real));
            match is_there {
                true => variants.touch(&real),
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
